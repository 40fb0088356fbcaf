"""The processor of a checkpoint: its own, with Assay's video part where transformers has one for torchvision alone.

Whatever a checkpoint's files say about pictures, sounds and templates is used as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError, InvalidOption, MissingPackage
from assay.models.hf.multimodal.image_crops import CroppedPictures
from assay.models.hf.multimodal.options import PROCESSOR_ARGUMENTS
from assay.models.hf.multimodal.video_frames import FRAME_MAKERS, FrameMaker

__all__ = ["backend", "check_arguments", "load_processor"]

_VIDEO_FILES = ("video_preprocessor_config.json", "preprocessor_config.json")
_VIDEO_KINDS = {
    "internvl": "InternVLVideoProcessor",
    "llava_next_video": "LlavaNextVideoVideoProcessor",
    "llava_onevision": "LlavaOnevisionVideoProcessor",
    "qwen2_5_omni": "Qwen2VLVideoProcessor",
    "qwen2_5_vl": "Qwen2VLVideoProcessor",
    "qwen2_vl": "Qwen2VLVideoProcessor",
    "qwen3_vl": "Qwen3VLVideoProcessor",
    "qwen3_vl_moe": "Qwen3VLVideoProcessor",
    "smolvlm": "SmolVLMVideoProcessor",
}
_CROPPING = "phi4_multimodal"
_OLDEST = 5
"""The version of transformers from which processors are made of parts, and pictures need no torchvision."""

_BOUNDS = ("min_pixels", "max_pixels", "total_pixels")


def backend() -> str:
    """What resizes pictures: part of the identity, for the two do not give the same pixels to the last bit."""
    return "torchvision" if find_spec("torchvision") else "pillow"


def check_arguments(processor: Any, asked: Iterable[str], pretrained: str) -> None:
    """Raise `InvalidOption` for settings this processor has no use for: they would change nothing, silently."""
    parts = [getattr(processor, name, None) for name in ("image_processor", "video_processor")]
    known = {
        key
        for part in parts
        if part is not None
        for key in (
            *getattr(getattr(part, "valid_kwargs", None), "__annotations__", ()),
            *vars(part),
            *getattr(part, "defaults", ()),
        )
    }
    if unknown := sorted(set(asked) - known):
        raise InvalidOption(
            f"the processor of `{pretrained}` has no `{unknown[0]}`",
            where="--model_args",
            hint=f"of these settings it has {', '.join(sorted(known & set(PROCESSOR_ARGUMENTS))) or 'none'}",
        )


def load_processor(pretrained: str, model_type: str, arguments: Mapping[str, Any], **source: Any) -> Any:
    """The processor. `arguments` change its settings, `source` says where it is (`revision`, `trust_remote_code`).

    Raises:
        DatasetError: The checkpoint has no processor, or one that cannot be used.
        MissingPackage: It needs a package that is not installed.
    """
    import transformers

    if int(transformers.__version__.partition(".")[0]) < _OLDEST:
        raise MissingPackage(
            f"models that see or hear need transformers {_OLDEST}, and {transformers.__version__} is installed",
            where="--model",
            hint=f"pip install 'transformers>={_OLDEST}'",
        )
    try:
        if model_type in (*_VIDEO_KINDS, _CROPPING):
            return _put_together(transformers, pretrained, model_type, arguments, source)
        return transformers.AutoProcessor.from_pretrained(pretrained, **arguments, **source)
    except ImportError as error:
        raise _missing(error, pretrained) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"the checkpoint's processor cannot be loaded: {str(error).strip().splitlines()[0]}",
            where=pretrained,
            hint="a multimodal checkpoint has preprocessor_config.json or processor_config.json beside its weights",
        ) from None


def _missing(error: ImportError, pretrained: str) -> MissingPackage:
    words = str(error)
    for package in ("torchvision", "num2words", "torchaudio", "sentencepiece", "librosa", "timm"):
        if package in words.lower():
            return MissingPackage(
                f"the processor of this checkpoint needs `{package}`, which is not installed",
                where=pretrained,
                hint=f"pip install {package}",
            )
    return MissingPackage(
        f"the processor of this checkpoint cannot be loaded: {words.strip().splitlines()[0]}",
        where=pretrained,
    )


def _put_together(
    transformers: Any,
    pretrained: str,
    model_type: str,
    arguments: Mapping[str, Any],
    source: Mapping[str, Any],
) -> Any:
    """The processor with a video or picture part of Assay's: transformers' own needs torchvision.

    With torchvision it is the same, so that a video is the same frames and pixels wherever a run goes on.
    """
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    kind = getattr(transformers, PROCESSOR_MAPPING_NAMES[model_type])
    written, _ = kind.get_processor_dict(pretrained, **source)
    parts: dict[str, Any] = {}
    for name in kind.get_attributes():
        if name == "video_processor":
            parts[name] = _frame_maker(pretrained, model_type, arguments, source)
        elif "tokenizer" in name:
            parts[name] = transformers.AutoTokenizer.from_pretrained(pretrained, **source)
        elif "image" in name and model_type == _CROPPING:
            parts[name] = CroppedPictures(_read_json(pretrained, "preprocessor_config.json", source))
        elif "image" in name:
            pictures = {key: value for key, value in arguments.items() if key != "total_pixels"}
            parts[name] = transformers.AutoImageProcessor.from_pretrained(pretrained, **pictures, **source)
        else:
            parts[name] = transformers.AutoFeatureExtractor.from_pretrained(pretrained, **source)
    taken = kind.__init__.__code__.co_varnames[: kind.__init__.__code__.co_argcount]
    others = {key: value for key, value in written.items() if key in taken and key not in parts}
    if written.get("chat_template") is not None:
        others["chat_template"] = written["chat_template"]
    # The processor asks of what class its parts are; without torchvision there is no class for the video part.
    trusting = type(kind.__name__, (kind,), {"check_argument_for_proper_class": lambda *part: None})
    return trusting(**parts, **others)


def _frame_maker(
    pretrained: str, model_type: str, arguments: Mapping[str, Any], source: Mapping[str, Any]
) -> FrameMaker:
    bounds = {key: arguments[key] for key in _BOUNDS if key in arguments}
    return FRAME_MAKERS[_VIDEO_KINDS[model_type]]({**_video_settings(pretrained, source), **bounds})


def _video_settings(pretrained: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """What the checkpoint says about videos; where it says nothing, what it says about pictures."""
    processor = _read_json(pretrained, "processor_config.json", source)
    if isinstance(processor.get("video_processor"), dict):
        return dict(processor["video_processor"])
    for name in _VIDEO_FILES:
        if found := _read_json(pretrained, name, source):
            return found
    return {}


def _read_json(pretrained: str, name: str, source: Mapping[str, Any]) -> dict[str, Any]:
    from transformers.utils import cached_file

    path = cached_file(
        pretrained, name, revision=source.get("revision"), _raise_exceptions_for_missing_entries=False
    )
    return dict(json.loads(Path(path).read_text(encoding="utf-8"))) if path else {}
