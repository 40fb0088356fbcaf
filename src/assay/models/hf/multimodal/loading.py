"""Load a multimodal model and read its context length and sampling rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.errors import DatasetError
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import is_speech_to_text, read_model_type
from assay.models.hf.loading.weights import load_config, load_weights

__all__ = ["find_context_length", "find_sampling_rate_hz", "load_model"]

_DEFAULT_CONTEXT_LENGTH = 1_000_000
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_target_positions")


def load_model(arguments: HfArguments, checkpoint: Checkpoint, tokenizer: Any) -> Any:
    """Load the model.

    Raises:
        DatasetError: transformers does not support the architecture, or the files do not match it.
        MissingPackage: A required package is not installed.
    """
    config = load_config(arguments, checkpoint)
    if getattr(config, "enable_audio_output", False):
        config.enable_audio_output = False  # only text is generated, so the speech decoder is not loaded
    model = load_weights(arguments, config, _find_model_class(arguments, checkpoint.config), tokenizer)
    return getattr(model, "thinker", model)


def _find_model_class(arguments: HfArguments, config: Mapping[str, Any]) -> Any:
    """Return the auto class of the architecture."""
    import transformers
    from transformers.models.auto import modeling_auto

    model_type = read_model_type(config)
    if is_speech_to_text(config):
        return transformers.AutoModelForSpeechSeq2Seq
    if model_type in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return transformers.AutoModelForImageTextToText
    known = getattr(modeling_auto, "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES", {})
    if model_type in known:
        return transformers.AutoModelForMultimodalLM
    if model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or "auto_map" in config:
        return transformers.AutoModelForCausalLM
    raise DatasetError(
        f"this version of transformers has no multimodal class for `{model_type}`",
        where=arguments.pretrained,
        hint="try a newer transformers, or backend=causal for the text part alone",
    )


def find_context_length(arguments: HfArguments, model: Any) -> int:
    """Return the context length: `max_length`, else that in the config of the text part."""
    if arguments.max_length is not None:
        return arguments.max_length
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for one in (text, config):
        for key in _LENGTH_KEYS:
            if isinstance(value := getattr(one, key, None), int) and value > 0:
                return value
    return _DEFAULT_CONTEXT_LENGTH


def find_sampling_rate_hz(processor: Any) -> int:
    """Return the audio sampling rate of the processor."""
    part = getattr(processor, "audio_processor", None) or getattr(processor, "feature_extractor", None)
    return int(getattr(part, "sampling_rate", 16_000))
