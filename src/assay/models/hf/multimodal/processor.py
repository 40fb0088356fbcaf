"""Load the processor of a checkpoint, with Assay's video and image processors where transformers needs torchvision.

All settings in the files of the checkpoint apply.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError, InvalidOption, MissingPackage
from assay.models.hf.multimodal.image_crops import CroppedImageProcessor
from assay.models.hf.multimodal.options import PROCESSOR_ARGUMENTS
from assay.models.hf.multimodal.video_frames import VIDEO_PROCESSORS, VideoProcessor

__all__ = ["check_processor_settings", "find_image_backend", "load_processor"]

_VIDEO_FILES = ("video_preprocessor_config.json", "preprocessor_config.json")
_VIDEO_PROCESSOR_NAMES = {
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
_CROPPED_MODEL_TYPE = "phi4_multimodal"
_MIN_TRANSFORMERS = 5
"""The first major version of transformers whose processors consist of parts and read images without torchvision."""

_PIXEL_LIMITS = ("min_pixels", "max_pixels", "total_pixels")


def find_image_backend() -> str:
    """Return the library that resizes images. It is part of the identity, because pixels differ in the last bit."""
    return "torchvision" if find_spec("torchvision") else "pillow"


def check_processor_settings(processor: Any, requested: Iterable[str], pretrained: str) -> None:
    """Raise `InvalidOption` for settings that this processor does not have."""
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
    if unknown := sorted(set(requested) - known):
        raise InvalidOption(
            f"the processor of `{pretrained}` has no `{unknown[0]}`",
            where="--model_args",
            hint=f"supported settings: {', '.join(sorted(known & set(PROCESSOR_ARGUMENTS))) or 'none'}",
        )


def load_processor(pretrained: str, model_type: str, arguments: Mapping[str, Any], **source: Any) -> Any:
    """Load the processor. `arguments` override its settings; `source` locates it (`revision`, `trust_remote_code`).

    Raises:
        DatasetError: The checkpoint has no usable processor.
        MissingPackage: The processor needs a package that is not installed.
    """
    import transformers

    if int(transformers.__version__.partition(".")[0]) < _MIN_TRANSFORMERS:
        raise MissingPackage(
            f"multimodal models need transformers {_MIN_TRANSFORMERS} or later; {transformers.__version__} is installed",
            where="--model",
            hint=f"pip install 'transformers>={_MIN_TRANSFORMERS}'",
        )
    try:
        if model_type in (*_VIDEO_PROCESSOR_NAMES, _CROPPED_MODEL_TYPE):
            return _assemble_processor(transformers, pretrained, model_type, arguments, source)
        return transformers.AutoProcessor.from_pretrained(pretrained, **arguments, **source)
    except ImportError as error:
        raise _make_missing_package_error(error, pretrained) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"cannot load the processor of the checkpoint: {str(error).strip().splitlines()[0]}",
            where=pretrained,
            hint="a multimodal checkpoint has preprocessor_config.json or processor_config.json beside its weights",
        ) from None


def _make_missing_package_error(error: ImportError, pretrained: str) -> MissingPackage:
    words = str(error)
    for package in ("torchvision", "num2words", "torchaudio", "sentencepiece", "librosa", "timm"):
        if package in words.lower():
            return MissingPackage(
                f"the processor of this checkpoint needs `{package}`, which is not installed",
                where=pretrained,
                hint=f"pip install {package}",
            )
    return MissingPackage(
        f"cannot load the processor of the checkpoint: {words.strip().splitlines()[0]}",
        where=pretrained,
    )


def _assemble_processor(
    transformers: Any,
    pretrained: str,
    model_type: str,
    arguments: Mapping[str, Any],
    source: Mapping[str, Any],
) -> Any:
    """Assemble the processor with Assay's video or image processor, because that of transformers needs torchvision.

    This is also done if torchvision is installed, so that videos give the same pixels on every machine.
    """
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    kind = getattr(transformers, PROCESSOR_MAPPING_NAMES[model_type])
    processor_settings, _ = kind.get_processor_dict(pretrained, **source)
    parts: dict[str, Any] = {}
    for name in kind.get_attributes():
        if name == "video_processor":
            parts[name] = _make_video_processor(pretrained, model_type, arguments, source)
        elif "tokenizer" in name:
            parts[name] = transformers.AutoTokenizer.from_pretrained(pretrained, **source)
        elif "image" in name and model_type == _CROPPED_MODEL_TYPE:
            parts[name] = CroppedImageProcessor(_read_json(pretrained, "preprocessor_config.json", source))
        elif "image" in name:
            image_settings = {key: value for key, value in arguments.items() if key != "total_pixels"}
            parts[name] = transformers.AutoImageProcessor.from_pretrained(
                pretrained, **image_settings, **source
            )
        else:
            parts[name] = transformers.AutoFeatureExtractor.from_pretrained(pretrained, **source)
    taken = kind.__init__.__code__.co_varnames[: kind.__init__.__code__.co_argcount]
    others = {key: value for key, value in processor_settings.items() if key in taken and key not in parts}
    if processor_settings.get("chat_template") is not None:
        others["chat_template"] = processor_settings["chat_template"]
    # The processor checks the classes of its parts; without torchvision, the class of the video part is missing.
    unchecked = type(kind.__name__, (kind,), {"check_argument_for_proper_class": lambda *part: None})
    return unchecked(**parts, **others)


def _make_video_processor(
    pretrained: str, model_type: str, arguments: Mapping[str, Any], source: Mapping[str, Any]
) -> VideoProcessor:
    bounds = {key: arguments[key] for key in _PIXEL_LIMITS if key in arguments}
    return VIDEO_PROCESSORS[_VIDEO_PROCESSOR_NAMES[model_type]](
        {**_read_video_settings(pretrained, source), **bounds}
    )


def _read_video_settings(pretrained: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """Read the video settings of the checkpoint, or else its image settings."""
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
