"""Presets for the model names of lmms-eval: default checkpoint, frames, token limits, stop strings.

A preset does not select the architecture, which is read from the checkpoint. Its name selects the prompt that a task
defines for it (`lmms_eval_specific_kwargs`) and the defaults below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from assay.core.ports import Ability

__all__ = ["DEFAULT_PRESET", "PRESETS", "ModelPreset"]

_VISION: frozenset[Ability] = frozenset({"image", "video"})
_AUDIO: frozenset[Ability] = frozenset({"audio"})
_SYSTEM_PROMPT = "You are a helpful assistant."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPreset:
    """Defaults of a model name, used where the command line and the task set nothing."""

    pretrained: str = ""
    """Checkpoint to load when `pretrained` is not given."""

    media: frozenset[Ability] = _VISION
    """Media that the default checkpoint reads."""

    frames: int = 32
    """Maximum number of frames of a video."""

    max_new_tokens: int = 256
    system_prompt: str = ""
    """Added to conversations without a system message."""

    uses_chat_template: bool = True
    """Apply the chat template to every prompt with media, as lmms-eval does for all models."""

    keeps_placeholders: bool = True
    """Put images where the text contains `<image>`. If false, remove the placeholders and put images first."""

    ignored_stops: frozenset[str] = frozenset({"\n\n"})
    """Stop strings to ignore: the models of lmms-eval ignore the blank line that every task sets by default."""

    ignores_unknown_settings: bool = False
    """Ignore settings that the processor does not have, as lmms-eval does for this model."""

    normalize: bool = False
    """Normalize transcripts as word error rates require."""

    processor_settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the processor that differ from its own defaults."""


DEFAULT_PRESET = ModelPreset(uses_chat_template=False, ignored_stops=frozenset())
"""The preset of `hf`: the settings of the task apply."""


def _qwen(pretrained: str, **others: Any) -> ModelPreset:
    return ModelPreset(pretrained=pretrained, keeps_placeholders=False, **others)


_QWEN_PIXELS = {"min_pixels": 256 * 28 * 28, "max_pixels": 1_605_632}

PRESETS: dict[str, ModelPreset] = {
    "gemma3": ModelPreset(
        pretrained="google/gemma-3-27b-it",
        system_prompt=_SYSTEM_PROMPT,
        max_new_tokens=128,
        keeps_placeholders=False,
        ignores_unknown_settings=True,
    ),
    "idefics": ModelPreset(pretrained="HuggingFaceM4/idefics2-8b", frames=16, max_new_tokens=1024),
    "idefics2": ModelPreset(
        pretrained="HuggingFaceM4/idefics2-8b",
        frames=16,
        max_new_tokens=1024,
        processor_settings={"do_image_splitting": False},
    ),
    "internvl_hf": ModelPreset(pretrained="OpenGVLab/InternVL3_5-8B-HF", max_new_tokens=1024),
    "llava_hf": ModelPreset(pretrained="llava-hf/llava-1.5-7b-hf", max_new_tokens=1024),
    "llava_onevision": ModelPreset(pretrained="llava-hf/llava-onevision-qwen2-7b-ov-hf", max_new_tokens=1024),
    "phi4_multimodal": ModelPreset(
        pretrained="microsoft/Phi-4-multimodal-instruct",
        media=_VISION | _AUDIO,
        frames=16,
        max_new_tokens=1024,
    ),
    "qwen2_5_omni": _qwen("Qwen/Qwen2.5-Omni-7B", media=_VISION | _AUDIO, frames=768, max_new_tokens=4096),
    "qwen2_5_vl": _qwen("Qwen/Qwen2.5-VL-3B-Instruct", max_new_tokens=128, processor_settings=_QWEN_PIXELS),
    "qwen2_audio": _qwen("Qwen/Qwen2-Audio-7B-Instruct", media=_AUDIO),
    "qwen2_vl": _qwen(
        "Qwen/Qwen2-VL-7B-Instruct",
        max_new_tokens=128,
        system_prompt=_SYSTEM_PROMPT,
        processor_settings={"min_pixels": 3136, "max_pixels": 602_112},
    ),
    "qwen3_vl": _qwen(
        "Qwen/Qwen3-VL-4B-Instruct",
        max_new_tokens=128,
        system_prompt=_SYSTEM_PROMPT,
        processor_settings=_QWEN_PIXELS,
    ),
    "smolvlm": ModelPreset(pretrained="HuggingFaceTB/SmolVLM2-2.2B-Instruct", max_new_tokens=1024),
    "whisper": ModelPreset(pretrained="openai/whisper-tiny", media=_AUDIO, normalize=True),
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
