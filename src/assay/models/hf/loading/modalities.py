"""What a checkpoint can look at and listen to, and what kind of class loads it, from its config alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.ports import Ability

__all__ = ["hears_only", "model_type_of", "senses_of"]

_SPEECH = frozenset({"whisper", "speech_to_text", "moonshine", "moonshine_streaming"})
"""Encoder and decoder: a sound in, what is said in it out. They read no prompt."""

_EYES = (
    "vision_config",
    "vision_tower",
    "vision_encoder",
    "vision_feature_layer",
    "image_token_id",
    "image_token_index",
)
_EARS = ("audio_config", "audio_encoder", "audio_token_id", "audio_token_index", "encoder_config")


def model_type_of(config: Mapping[str, Any]) -> str:
    """The architecture's name in transformers."""
    return str(config.get("model_type", ""))


def hears_only(config: Mapping[str, Any]) -> bool:
    """Whether it turns speech into text and nothing else."""
    return model_type_of(config) in _SPEECH


def senses_of(config: Mapping[str, Any]) -> frozenset[Ability]:
    """The media it takes. Whoever sees pictures sees videos: as such, or as some of their frames.

    >>> sorted(senses_of({"model_type": "llava", "vision_config": {}}))
    ['image', 'video']
    """
    if hears_only(config):
        return frozenset({"audio"})
    inner = config.get("thinker_config")
    parts = [config, inner] if isinstance(inner, Mapping) else [config]
    found: set[Ability] = set()
    for part in parts:
        if any(part.get(key) is not None for key in _EYES):
            found |= {"image", "video"}
        if any(part.get(key) is not None for key in _EARS):
            found.add("audio")
    return frozenset(found)
