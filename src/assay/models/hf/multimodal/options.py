"""The `--model_args` about images, audio, video and prompts, under the names of lmms-eval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import InvalidOption
from assay.models.argument_parsing import parse_argument, parse_flag

__all__ = ["PROCESSOR_ARGUMENTS", "MediaOptions", "split_media_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaOptions:
    """The media options of one model. None: use the value of the preset or the checkpoint."""

    frames: int | None = None
    fps: float | None = None
    system_prompt: str | None = None
    reasoning_prompt: str = ""
    interleave: bool = False
    simple_prompt: bool = False
    """Use media placeholders and text without a chat template."""

    use_cache: bool = True
    language: str = "en"
    task: str = "transcribe"
    normalize: bool | None = None
    """Normalize transcripts as word error rates require: lower case, no punctuation."""

    processor: dict[str, Any] = field(default_factory=dict)
    """Settings of the checkpoint's processor: pixel limits, image splitting."""

    def to_identity(self) -> dict[str, str]:
        """Return the options that can change an answer and differ from their defaults."""
        plain = MediaOptions()
        names = [name for name in self.__slots__ if name not in ("use_cache", "processor")]
        found = {
            name: str(getattr(self, name)) for name in names if getattr(self, name) != getattr(plain, name)
        }
        return {**found, **{f"processor.{key}": str(self.processor[key]) for key in sorted(self.processor)}}


def _parse_positive_count(value: Any) -> int:
    if int(value) != float(value) or int(value) < 1:
        raise ValueError(f"{value!r} is not a positive integer")
    return int(value)


def _parse_positive_number(value: Any) -> float:
    if float(value) <= 0:
        raise ValueError(f"{value!r} is not greater than 0")
    return float(value)


def _parse_lines(value: Any) -> str:
    return str(value).replace("\\n", "\n")


_MEDIA_OPTIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "max_num_frames": ("frames", _parse_positive_count),
    "max_frames_num": ("frames", _parse_positive_count),
    "num_frames": ("frames", _parse_positive_count),
    "fps": ("fps", _parse_positive_number),
    "system_prompt": ("system_prompt", str),
    "reasoning_prompt": ("reasoning_prompt", _parse_lines),
    "interleave_visuals": ("interleave", parse_flag),
    "simple_prompt": ("simple_prompt", parse_flag),
    "use_cache": ("use_cache", parse_flag),
    "language": ("language", str),
    "task": ("task", str),
    "normalize": ("normalize", parse_flag),
}
PROCESSOR_ARGUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "min_pixels": _parse_positive_count,
    "max_pixels": _parse_positive_count,
    "total_pixels": _parse_positive_count,
    "min_patches": _parse_positive_count,
    "max_patches": _parse_positive_count,
    "crop_to_patches": parse_flag,
    "do_image_splitting": parse_flag,
    "do_pan_and_scan": parse_flag,
}
"""Settings of the checkpoint's processor and how to parse them."""

_ORIGINAL_LLAVA_ARGUMENTS = (
    "conv_template model_name truncation truncate_context customized_config mm_spatial_pool_stride "
    "mm_spatial_pool_mode token_strategy video_decode_backend".split()
)


def split_media_options(given: Mapping[str, Any], name: str) -> tuple[MediaOptions, dict[str, Any]]:
    """Return the media options and the remaining arguments.

    Raises:
        InvalidOption: A value is invalid, or an argument belongs to code that is not used here.
    """
    options: dict[str, Any] = {}
    processor: dict[str, Any] = {}
    remaining: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        if key in _MEDIA_OPTIONS:
            field_name, parse = _MEDIA_OPTIONS[key]
            options[field_name] = parse_argument(key, value, parse, model=name)
        elif key in PROCESSOR_ARGUMENTS:
            processor[key] = parse_argument(key, value, PROCESSOR_ARGUMENTS[key], model=name)
        elif key == "use_flash_attention_2":
            remaining.update({"attn_implementation": "flash_attention_2"} if parse_flag(value) else {})
        elif key in _ORIGINAL_LLAVA_ARGUMENTS:
            raise InvalidOption(
                f"the argument `{key}` belongs to the original LLaVA code, which `{name}` does not use",
                where="--model_args",
                hint="remove it and use a checkpoint in the format of transformers, such as llava-hf/llava-onevision-qwen2-7b-ov-hf",
            )
        else:
            remaining[key] = value
    return MediaOptions(**options, processor=processor), remaining
