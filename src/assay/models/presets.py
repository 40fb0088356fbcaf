"""The names lmms-eval users know, and what each of them means there: default checkpoint, frames, lengths, stops.

A name chooses nothing about the architecture, that is read from the checkpoint. It chooses the prompt a task has for it
(`lmms_eval_specific_kwargs`), and the defaults below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from assay.core.ports import Ability

__all__ = ["OWN", "PRESETS", "Habits"]

_SEES: frozenset[Ability] = frozenset({"image", "video"})
_HEARS: frozenset[Ability] = frozenset({"audio"})
_HELPFUL = "You are a helpful assistant."


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a model does under a name where the command line and the task say nothing."""

    pretrained: str = ""
    """The checkpoint that is meant when none is given."""

    media: frozenset[Ability] = _SEES
    """What it can look at and listen to, where the checkpoint cannot be asked yet."""

    frames: int = 32
    """Frames of a video, at most."""

    max_new_tokens: int = 256
    system_prompt: str = ""
    """Put before a conversation that has no system message."""

    templated: bool = True
    """Whether prompts with media always go through the chat template, as all models do in lmms-eval."""

    keeps_marks: bool = True
    """Whether `<image>` in a text says where a picture goes; else it is left out and pictures come first."""

    unheeded_stops: frozenset[str] = frozenset({"\n\n"})
    """Stop strings that do not stop it: lmms-eval's models read past the blank line every task has by default."""

    lenient: bool = False
    """Whether settings the processor has not are passed over, as lmms-eval does for this model."""

    normalize: bool = False
    """Whether a transcript is written as error rates are counted."""

    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of the processor that differ from its own defaults."""


OWN = Habits(templated=False, unheeded_stops=frozenset())
"""`hf`: the task's word counts."""


def _qwen(pretrained: str, **others: Any) -> Habits:
    return Habits(pretrained=pretrained, keeps_marks=False, **others)


_QWEN_PIXELS = {"min_pixels": 256 * 28 * 28, "max_pixels": 1_605_632}

PRESETS: dict[str, Habits] = {
    "gemma3": Habits(
        pretrained="google/gemma-3-27b-it",
        system_prompt=_HELPFUL,
        max_new_tokens=128,
        keeps_marks=False,
        lenient=True,
    ),
    "idefics": Habits(pretrained="HuggingFaceM4/idefics2-8b", frames=16, max_new_tokens=1024),
    "idefics2": Habits(
        pretrained="HuggingFaceM4/idefics2-8b",
        frames=16,
        max_new_tokens=1024,
        arguments={"do_image_splitting": False},
    ),
    "internvl_hf": Habits(pretrained="OpenGVLab/InternVL3_5-8B-HF", max_new_tokens=1024),
    "llava_hf": Habits(pretrained="llava-hf/llava-1.5-7b-hf", max_new_tokens=1024),
    "llava_onevision": Habits(pretrained="llava-hf/llava-onevision-qwen2-7b-ov-hf", max_new_tokens=1024),
    "phi4_multimodal": Habits(
        pretrained="microsoft/Phi-4-multimodal-instruct",
        media=_SEES | _HEARS,
        frames=16,
        max_new_tokens=1024,
    ),
    "qwen2_5_omni": _qwen("Qwen/Qwen2.5-Omni-7B", media=_SEES | _HEARS, frames=768, max_new_tokens=4096),
    "qwen2_5_vl": _qwen("Qwen/Qwen2.5-VL-3B-Instruct", max_new_tokens=128, arguments=_QWEN_PIXELS),
    "qwen2_audio": _qwen("Qwen/Qwen2-Audio-7B-Instruct", media=_HEARS),
    "qwen2_vl": _qwen(
        "Qwen/Qwen2-VL-7B-Instruct",
        max_new_tokens=128,
        system_prompt=_HELPFUL,
        arguments={"min_pixels": 3136, "max_pixels": 602_112},
    ),
    "qwen3_vl": _qwen(
        "Qwen/Qwen3-VL-4B-Instruct", max_new_tokens=128, system_prompt=_HELPFUL, arguments=_QWEN_PIXELS
    ),
    "smolvlm": Habits(pretrained="HuggingFaceTB/SmolVLM2-2.2B-Instruct", max_new_tokens=1024),
    "whisper": Habits(pretrained="openai/whisper-tiny", media=_HEARS, normalize=True),
}
for _name in (
    "internvl_hf",
    "llava_hf",
    "phi4_multimodal",
    "qwen2_5_omni",
    "qwen2_5_vl",
    "qwen3_vl",
):  # older command lines
    PRESETS[f"{_name}_chat"] = PRESETS[_name]
