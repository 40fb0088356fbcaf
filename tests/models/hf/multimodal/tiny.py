"""Tiny checkpoints of real architectures: their own classes and processors, random weights, one letter per token.

    folder = tiny("qwen2_5_vl")

A folder is inputs out as on the hub: config.json, model.safetensors, tokenizer files, preprocessor_config.json,
chat_template.jinja. They answer nonsense, but the same nonsense each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.models.hf.multimodal import hearing, seeing

__all__ = ["KINDS", "make", "tiny"]

KINDS: dict[str, Callable[[Path], None]] = {
    "gemma3": seeing.gemma3,
    "idefics3": seeing.idefics3,
    "internvl": seeing.internvl,
    "llava_onevision": seeing.llava_onevision,
    "phi4_multimodal": hearing.phi4_multimodal,
    "qwen2_5_omni": hearing.qwen2_5_omni,
    "qwen2_5_vl": seeing.qwen2_5_vl,
    "qwen2_audio": hearing.qwen2_audio,
    "qwen2_vl": seeing.qwen2_vl,
    "qwen3_vl": seeing.qwen3_vl,
    "smolvlm": seeing.smolvlm,
    "whisper": hearing.whisper,
}


@cache
def _place() -> TemporaryDirectory[str]:
    """Kept until the process ends."""
    return TemporaryDirectory(prefix="assay-tiny-")


@cache
def tiny(kind: str) -> Path:
    """The folder of a checkpoint of that kind, made once a process."""
    return make(kind, Path(_place().name))


def make(kind: str, where: Path) -> Path:
    """A checkpoint of a kind, in a folder of its name."""
    folder = where / kind
    folder.mkdir(parents=True, exist_ok=True)
    KINDS[kind](folder)
    return folder
