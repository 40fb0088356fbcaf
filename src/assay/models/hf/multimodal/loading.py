"""A checkpoint with eyes or ears into memory: the class its config names, its processor, its longest prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.errors import DatasetError
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.modalities import hears_only, model_type_of
from assay.models.hf.loading.weights import load_config, load_weights

__all__ = ["context_length", "load_model", "sampling_rate_hz"]

_LONGEST = 1_000_000
_LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")


def load_model(arguments: HfArguments, checkpoint: Checkpoint, tokenizer: Any) -> Any:
    """The model, ready to be asked.

    Raises:
        DatasetError: transformers does not know the architecture, or the files do not fit it.
        MissingPackage: Something it needs is not installed.
    """
    config = load_config(arguments, checkpoint)
    if getattr(config, "enable_audio_output", False):
        config.enable_audio_output = False  # nobody listens: the part that speaks is not loaded
    model = load_weights(arguments, config, _class(arguments, checkpoint.config), tokenizer)
    return getattr(model, "thinker", model)


def _class(arguments: HfArguments, config: Mapping[str, Any]) -> Any:
    """The auto class that knows the architecture."""
    import transformers
    from transformers.models.auto import modeling_auto

    model_type = model_type_of(config)
    if hears_only(config):
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
        hint="a newer transformers may; the text part alone can be asked with backend=causal",
    )


def context_length(arguments: HfArguments, model: Any) -> int:
    """The most tokens it holds: what the user says, else what the config of its text part says."""
    if arguments.max_length is not None:
        return arguments.max_length
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for one in (text, config):
        for key in _LENGTHS:
            if isinstance(value := getattr(one, key, None), int) and value > 0:
                return value
    return _LONGEST


def sampling_rate_hz(processor: Any) -> int:
    """Samples per second it wants sounds in."""
    part = getattr(processor, "audio_processor", None) or getattr(processor, "feature_extractor", None)
    return int(getattr(part, "sampling_rate", 16_000))
