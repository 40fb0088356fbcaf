"""What `--model_args` may say about pictures, sounds, videos and prompts: lmms-eval's names, each read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_bool

__all__ = ["PROCESSOR_ARGUMENTS", "MediaOptions", "take_media_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaOptions:
    """The options of one model, typed. None means: as the name's habits or the checkpoint say."""

    frames: int | None = None
    fps: float | None = None
    system_prompt: str | None = None
    reasoning_prompt: str = ""
    interleave: bool = False
    simple_prompt: bool = False
    """Media marks and the text alone, no template."""

    use_cache: bool = True
    language: str = "en"
    task: str = "transcribe"
    normalize: bool | None = None
    """Whether a transcript is written the way error rates are counted: lower case, no punctuation."""

    processor: dict[str, Any] = field(default_factory=dict)
    """Settings of the checkpoint's processor: bounds of pixels, splitting of pictures."""

    def identity(self) -> dict[str, str]:
        """What differs from the defaults and can change an answer."""
        plain = MediaOptions()
        names = [name for name in self.__slots__ if name not in ("use_cache", "processor")]
        found = {
            name: str(getattr(self, name)) for name in names if getattr(self, name) != getattr(plain, name)
        }
        return {**found, **{f"processor.{key}": str(self.processor[key]) for key in sorted(self.processor)}}


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else bool(parse_bool(str(value)))


def _count(value: Any) -> int:
    if int(value) != float(value) or int(value) < 1:
        raise ValueError("a whole number of at least 1 is wanted")
    return int(value)


def _rate(value: Any) -> float:
    if float(value) <= 0:
        raise ValueError("a number above 0 is wanted")
    return float(value)


def _lines(value: Any) -> str:
    return str(value).replace("\\n", "\n")


_OWN: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "max_num_frames": ("frames", _count),
    "max_frames_num": ("frames", _count),
    "num_frames": ("frames", _count),
    "fps": ("fps", _rate),
    "system_prompt": ("system_prompt", str),
    "reasoning_prompt": ("reasoning_prompt", _lines),
    "interleave_visuals": ("interleave", _flag),
    "simple_prompt": ("simple_prompt", _flag),
    "use_cache": ("use_cache", _flag),
    "language": ("language", str),
    "task": ("task", str),
    "normalize": ("normalize", _flag),
}
PROCESSOR_ARGUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "min_pixels": _count,
    "max_pixels": _count,
    "total_pixels": _count,
    "min_patches": _count,
    "max_patches": _count,
    "crop_to_patches": _flag,
    "do_image_splitting": _flag,
    "do_pan_and_scan": _flag,
}
"""Settings that go to the checkpoint's processor under their own names."""

_ORIGINAL_LLAVA = (
    "conv_template model_name truncation truncate_context customized_config mm_spatial_pool_stride "
    "mm_spatial_pool_mode token_strategy video_decode_backend".split()
)


def take_media_options(given: Mapping[str, Any], name: str) -> tuple[MediaOptions, dict[str, Any]]:
    """The options about media, and the arguments that are left.

    Raises:
        InvalidOption: A value makes no sense, or an argument belongs to code that is not used here.
    """
    own: dict[str, Any] = {}
    processor: dict[str, Any] = {}
    left: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        if key in _OWN:
            field_name, read = _OWN[key]
            own[field_name] = _read(key, value, read, name)
        elif key in PROCESSOR_ARGUMENTS:
            processor[key] = _read(key, value, PROCESSOR_ARGUMENTS[key], name)
        elif key == "use_flash_attention_2":
            left.update({"attn_implementation": "flash_attention_2"} if _flag(value) else {})
        elif key in _ORIGINAL_LLAVA:
            raise InvalidOption(
                f"the argument `{key}` belongs to the original LLaVA code, which `{name}` does not use",
                where="--model_args",
                hint="leave it out and name a checkpoint in transformers' format, such as llava-hf/llava-onevision-qwen2-7b-ov-hf",
            )
        else:
            left[key] = value
    return MediaOptions(**own, processor=processor), left


def _read(key: str, value: Any, read: Callable[[Any], Any], name: str) -> Any:
    try:
        return read(value)
    except (TypeError, ValueError, InvalidOption) as error:
        raise InvalidOption(f"the argument `{key}` of `{name}`: {error}", where="--model_args") from None
