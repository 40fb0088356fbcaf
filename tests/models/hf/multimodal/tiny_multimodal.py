"""Tiny checkpoints of real architectures: their own classes and processors, random weights, one character per token.

    folder = tiny("qwen2_5_vl")

A folder has the layout of the hub: config.json, model.safetensors, tokenizer files, preprocessor_config.json,
chat_template.jinja. Their answers are random, but always the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.models.hf.multimodal import audio_checkpoints, vision_checkpoints

__all__ = ["KINDS", "make", "tiny"]

KINDS: dict[str, Callable[[Path], None]] = {
    "gemma3": vision_checkpoints.gemma3,
    "idefics3": vision_checkpoints.idefics3,
    "internvl": vision_checkpoints.internvl,
    "llava_onevision": vision_checkpoints.llava_onevision,
    "phi4_multimodal": audio_checkpoints.phi4_multimodal,
    "qwen2_5_omni": audio_checkpoints.qwen2_5_omni,
    "qwen2_5_vl": vision_checkpoints.qwen2_5_vl,
    "qwen2_audio": audio_checkpoints.qwen2_audio,
    "qwen2_vl": vision_checkpoints.qwen2_vl,
    "qwen3_vl": vision_checkpoints.qwen3_vl,
    "smolvlm": vision_checkpoints.smolvlm,
    "whisper": audio_checkpoints.whisper,
}


@cache
def _place() -> TemporaryDirectory[str]:
    """Removed when the process ends."""
    return TemporaryDirectory(prefix="assay-tiny-")


@cache
def tiny(kind: str) -> Path:
    """Return the folder of a checkpoint of that kind, created once per process."""
    return make(kind, Path(_place().name))


def make(kind: str, where: Path) -> Path:
    """Create a checkpoint of a kind, in a folder of its name."""
    folder = where / kind
    folder.mkdir(parents=True, exist_ok=True)
    KINDS[kind](folder)
    return folder
