"""Which media a checkpoint reads, according to its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.ports import Ability

__all__ = ["find_media_abilities", "is_speech_to_text", "read_model_type"]

_SPEECH_MODEL_TYPES = frozenset({"whisper", "speech_to_text", "moonshine", "moonshine_streaming"})
"""Encoder-decoder models that transcribe audio. They read no prompt."""

_VISION_KEYS = (
    "vision_config",
    "vision_tower",
    "vision_encoder",
    "vision_feature_layer",
    "image_token_id",
    "image_token_index",
)
_AUDIO_KEYS = ("audio_config", "audio_encoder", "audio_token_id", "audio_token_index", "encoder_config")


def read_model_type(config: Mapping[str, Any]) -> str:
    """Return the name of the architecture in transformers."""
    return str(config.get("model_type", ""))


def is_speech_to_text(config: Mapping[str, Any]) -> bool:
    """Return whether the model only transcribes speech."""
    return read_model_type(config) in _SPEECH_MODEL_TYPES


def find_media_abilities(config: Mapping[str, Any]) -> frozenset[Ability]:
    """Return the media that the model reads. A model that reads images also reads videos, at least as frames.

    >>> sorted(find_media_abilities({"model_type": "llava", "vision_config": {}}))
    ['image', 'video']
    """
    if is_speech_to_text(config):
        return frozenset({"audio"})
    inner = config.get("thinker_config")
    parts = [config, inner] if isinstance(inner, Mapping) else [config]
    found: set[Ability] = set()
    for part in parts:
        if any(part.get(key) is not None for key in _VISION_KEYS):
            found |= {"image", "video"}
        if any(part.get(key) is not None for key in _AUDIO_KEYS):
            found.add("audio")
    return frozenset(found)
