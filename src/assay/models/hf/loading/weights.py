"""Load the weights of a checkpoint: dtype, device, quantization, adapters, deltas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError

from assay.core.errors import AssayError, DatasetError, InvalidOption, MissingPackage
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.cpu_instructions import avoid_unusable_amx
from assay.models.hf.loading.packed_linear import pack_linear_layers

__all__ = [
    "explain_loading_errors",
    "find_device",
    "find_text_class",
    "find_torch_dtype",
    "load_config",
    "load_weights",
]

_QUANTIZATION_PREFIXES = ("load_in_", "bnb_4bit_", "llm_int8_")


def find_torch_dtype(name: str, argument: str = "dtype") -> Any:
    """Return the torch dtype for a name such as `float16`; `auto` stays `auto`."""
    import torch

    name = name.removeprefix("torch.")
    if name == "auto":
        return name
    found = getattr(torch, {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise InvalidOption(
            f"`{argument}={name}` is not a torch dtype",
            where="--model_args",
            hint="use float32, bfloat16, float16 or auto",
        )
    return found


def find_device(requested: str | None) -> Any:
    """Return the requested device, else the first GPU, else the CPU.

    Raises:
        InvalidOption: The device is not available.
    """
    import torch

    if requested is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(requested)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0]
        raise InvalidOption(f"device `{requested}` is not available: {first}", where="--device") from None
    return device


@contextmanager
def explain_loading_errors(source: str) -> Iterator[None]:
    """Convert the errors that transformers raises while loading into Assay errors."""
    _silence_transformers()
    try:
        yield
    except AssayError:
        raise
    except ImportError as error:
        raise MissingPackage(f"cannot load `{source}`: {_first_line(error)}", where="--model_args") from error
    except (
        SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError,
    ) as error:  # fmt: skip
        raise DatasetError(
            f"cannot load `{source}`: {type(error).__name__}: {_first_line(error)}", where="--model_args"
        ) from error


def _silence_transformers() -> None:
    """Turn off the progress bars and warnings of transformers, which would overwrite the progress display."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    if logging.get_verbosity() == logging.WARNING:  # the default; any other level was set by the user
        logging.set_verbosity_error()


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def load_config(arguments: HfArguments, checkpoint: Checkpoint) -> Any:
    """Load the config and set the keys given as `config.KEY`."""
    if checkpoint.model is not None:
        return checkpoint.model.config
    from transformers import AutoConfig

    extra = {"gguf_file": arguments.gguf_file} if arguments.gguf_file else {}
    with explain_loading_errors(arguments.pretrained):
        config = AutoConfig.from_pretrained(arguments.pretrained, **_build_source_options(arguments), **extra)
    for key, value in arguments.loading.items():
        if key.startswith("config."):
            if not hasattr(config, name := key.removeprefix("config.")):
                raise InvalidOption(
                    f"the config of `{checkpoint.name}` has no key `{name}`", where="--model_args"
                )
            setattr(config, name, value)
    return config


def find_text_class(config: Any, *, has_encoder: bool) -> Any:
    """Return the auto class for a text model. The class of a multimodal checkpoint also reads text alone."""
    import transformers
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    if has_encoder:
        return transformers.AutoModelForSeq2SeqLM
    kind = config.model_type
    is_multimodal_only = (
        kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES and kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    )
    return (
        transformers.AutoModelForImageTextToText if is_multimodal_only else transformers.AutoModelForCausalLM
    )


def load_weights(arguments: HfArguments, config: Any, auto_class: Any, tokenizer: Any = None) -> Any:
    """Load the model onto its device, in evaluation mode, with its adapter or delta applied."""
    device = find_device(arguments.device)
    options = _build_loading_options(arguments, device)
    dtype = find_torch_dtype(arguments.dtype)
    if device.type == "cpu" and "bfloat16" in str(getattr(config, "dtype", "") if dtype == "auto" else dtype):
        avoid_unusable_amx()
    with explain_loading_errors(arguments.pretrained):
        model = auto_class.from_pretrained(
            arguments.pretrained, config=config, dtype=dtype, **_build_source_options(arguments), **options
        )
        if arguments.peft:
            model = _apply_adapter(model, arguments, tokenizer)
        if arguments.delta:
            _add_delta(model, arguments, auto_class, dtype, options)
        if "device_map" not in options and not arguments.tp_plan:
            model.to(device)
    if not arguments.mixed_precision_dtype:  # with it, layers are computed in that type
        pack_linear_layers(model)
    return model.eval()


def _build_source_options(arguments: HfArguments) -> dict[str, Any]:
    found: dict[str, Any] = {
        "revision": arguments.revision,
        "trust_remote_code": arguments.trust_remote_code,
    }
    if arguments.subfolder:
        found["subfolder"] = arguments.subfolder
    return found


def _build_loading_options(arguments: HfArguments, device: Any) -> dict[str, Any]:
    """Return the keyword arguments of `from_pretrained`."""
    given = {key: value for key, value in arguments.loading.items() if not key.startswith("config.")}
    quantizing = {key: given.pop(key) for key in list(given) if key.startswith(_QUANTIZATION_PREFIXES)}
    if arguments.gguf_file:
        given["gguf_file"] = arguments.gguf_file
    if arguments.tp_plan:
        given["tp_plan"] = arguments.tp_plan
    if arguments.parallelize or arguments.device_map is not None:
        given["device_map"] = "auto" if arguments.device_map is None else arguments.device_map
        given["offload_folder"] = arguments.offload_folder
        if (memory := _build_memory_limits(arguments)) and "max_memory" not in given:
            given["max_memory"] = memory
    if any(quantizing.get(key) for key in ("load_in_8bit", "load_in_4bit")):
        given["quantization_config"] = _make_quantization_config(quantizing)
        given.setdefault("device_map", {"": str(device)})
    return given


def _build_memory_limits(arguments: HfArguments) -> dict[int | str, Any]:
    import torch

    found: dict[int | str, Any] = {}
    if arguments.max_memory_per_gpu is not None:
        found |= dict.fromkeys(range(torch.cuda.device_count()), arguments.max_memory_per_gpu)
    if arguments.max_cpu_memory is not None:
        found["cpu"] = arguments.max_cpu_memory
    return found


def _make_quantization_config(settings: Mapping[str, Any]) -> Any:
    from importlib.util import find_spec

    if find_spec("bitsandbytes") is None:
        raise MissingPackage.of("bitsandbytes", "`load_in_8bit` and `load_in_4bit`", where="--model_args")
    from transformers import BitsAndBytesConfig

    with explain_loading_errors("bitsandbytes"):
        return BitsAndBytesConfig(**settings)


def _apply_adapter(model: Any, arguments: HfArguments, tokenizer: Any) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingPackage.of("peft", "the argument `peft`", where="--model_args") from None
    if tokenizer is not None and len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))  # the adapter was trained with additional tokens
    with explain_loading_errors(str(arguments.peft)):
        return PeftModel.from_pretrained(model, arguments.peft, revision=arguments.revision)


def _add_delta(model: Any, arguments: HfArguments, auto_class: Any, dtype: Any, options: Any) -> None:
    """Add the weights of a delta checkpoint to the model."""
    import torch

    delta = auto_class.from_pretrained(
        arguments.delta, dtype=dtype, trust_remote_code=arguments.trust_remote_code, **options
    )
    changes = delta.state_dict()
    seen: set[int] = set()
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if name not in changes or changes[name].shape != weight.shape:
                raise DatasetError(
                    f"the delta has no matching weights for `{name}`", where=str(arguments.delta)
                )
            if weight.data_ptr() not in seen:  # tied weights appear under two names
                weight += changes[name].to(weight.device, weight.dtype)
                seen.add(weight.data_ptr())
