"""A checkpoint's weights into memory, as the arguments say: dtype, device, quantization, adapters, deltas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError

from assay.core.errors import AssayError, DatasetError, InvalidOption, MissingPackage
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint

__all__ = ["device_of", "load_config", "load_weights", "loading_errors", "text_class", "torch_dtype"]

_QUANTIZING = ("load_in_", "bnb_4bit_", "llm_int8_")


def torch_dtype(name: str, argument: str = "dtype") -> Any:
    """`float16` as torch names it; `auto` stays `auto`."""
    import torch

    name = name.removeprefix("torch.")
    if name == "auto":
        return name
    found = getattr(torch, {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise InvalidOption(
            f"`{argument}={name}` is no dtype of torch",
            where="--model_args",
            hint="float32, bfloat16, float16 or auto",
        )
    return found


def device_of(asked: str | None) -> Any:
    """The device that was asked for; else the first GPU, else the processor.

    Raises:
        InvalidOption: It is not there.
    """
    import torch

    if asked is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(asked)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0]
        raise InvalidOption(f"the device `{asked}` does not work here: {first}", where="--device") from None
    return device


@contextmanager
def loading_errors(source: str) -> Iterator[None]:
    """What transformers raises about files, packages and arguments becomes an error that says so."""
    _be_quiet()
    try:
        yield
    except AssayError:
        raise
    except ImportError as error:
        raise MissingPackage(f"`{source}` does not load: {_first(error)}", where="--model_args") from error
    except (
        SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError,
    ) as error:  # fmt: skip
        raise DatasetError(
            f"`{source}` does not load: {type(error).__name__}: {_first(error)}", where="--model_args"
        ) from error


def _be_quiet() -> None:
    """The run has a progress line of its own; transformers' bars and advice would be written across it."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    if logging.get_verbosity() == logging.WARNING:  # as it is by default: whoever asked for more gets it
        logging.set_verbosity_error()


def _first(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def load_config(arguments: HfArguments, checkpoint: Checkpoint) -> Any:
    """The config, with the keys the user gave as `config.KEY`."""
    from transformers import AutoConfig

    extra = {"gguf_file": arguments.gguf_file} if arguments.gguf_file else {}
    with loading_errors(arguments.pretrained):
        config = AutoConfig.from_pretrained(arguments.pretrained, **_where(arguments), **extra)
    for key, value in arguments.loading.items():
        if key.startswith("config."):
            if not hasattr(config, name := key.removeprefix("config.")):
                raise InvalidOption(
                    f"the config of `{checkpoint.name}` has no key `{name}`", where="--model_args"
                )
            setattr(config, name, value)
    return config


def text_class(config: Any, *, has_encoder: bool) -> Any:
    """The auto class that reads text; that of a multimodal checkpoint reads it without media, too."""
    import transformers
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    if has_encoder:
        return transformers.AutoModelForSeq2SeqLM
    kind = config.model_type
    only_seen = (
        kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES and kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    )
    return transformers.AutoModelForImageTextToText if only_seen else transformers.AutoModelForCausalLM


def load_weights(arguments: HfArguments, config: Any, auto_class: Any, tokenizer: Any = None) -> Any:
    """The model, ready to answer: on its device, in evaluation mode, adapter or delta applied."""
    device = device_of(arguments.device)
    options = _options(arguments, device)
    dtype = torch_dtype(arguments.dtype)
    with loading_errors(arguments.pretrained):
        model = auto_class.from_pretrained(
            arguments.pretrained, config=config, dtype=dtype, **_where(arguments), **options
        )
        if arguments.peft:
            model = _with_adapter(model, arguments, tokenizer)
        if arguments.delta:
            _add_delta(model, arguments, auto_class, dtype, options)
        if "device_map" not in options and not arguments.tp_plan:
            model.to(device)
    return model.eval()


def _where(arguments: HfArguments) -> dict[str, Any]:
    found: dict[str, Any] = {
        "revision": arguments.revision,
        "trust_remote_code": arguments.trust_remote_code,
    }
    if arguments.subfolder:
        found["subfolder"] = arguments.subfolder
    return found


def _options(arguments: HfArguments, device: Any) -> dict[str, Any]:
    """What `from_pretrained` is told beside the name."""
    given = {key: value for key, value in arguments.loading.items() if not key.startswith("config.")}
    quantizing = {key: given.pop(key) for key in list(given) if key.startswith(_QUANTIZING)}
    if arguments.gguf_file:
        given["gguf_file"] = arguments.gguf_file
    if arguments.tp_plan:
        given["tp_plan"] = arguments.tp_plan
    if arguments.parallelize or arguments.device_map is not None:
        given["device_map"] = "auto" if arguments.device_map is None else arguments.device_map
        given["offload_folder"] = arguments.offload_folder
        if (memory := _memory(arguments)) and "max_memory" not in given:
            given["max_memory"] = memory
    if any(quantizing.get(key) for key in ("load_in_8bit", "load_in_4bit")):
        given["quantization_config"] = _bits_and_bytes(quantizing)
        given.setdefault("device_map", {"": str(device)})
    return given


def _memory(arguments: HfArguments) -> dict[int | str, Any]:
    import torch

    found: dict[int | str, Any] = {}
    if arguments.max_memory_per_gpu is not None:
        found |= dict.fromkeys(range(torch.cuda.device_count()), arguments.max_memory_per_gpu)
    if arguments.max_cpu_memory is not None:
        found["cpu"] = arguments.max_cpu_memory
    return found


def _bits_and_bytes(settings: Mapping[str, Any]) -> Any:
    from importlib.util import find_spec

    if find_spec("bitsandbytes") is None:
        raise MissingPackage.of("bitsandbytes", "`load_in_8bit` and `load_in_4bit`", where="--model_args")
    from transformers import BitsAndBytesConfig

    with loading_errors("bitsandbytes"):
        return BitsAndBytesConfig(**settings)


def _with_adapter(model: Any, arguments: HfArguments, tokenizer: Any) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingPackage.of("peft", "the argument `peft`", where="--model_args") from None
    if tokenizer is not None and len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))  # an adapter trained with tokens of its own
    with loading_errors(str(arguments.peft)):
        return PeftModel.from_pretrained(model, arguments.peft, revision=arguments.revision)


def _add_delta(model: Any, arguments: HfArguments, auto_class: Any, dtype: Any, options: Any) -> None:
    """Weights that are stored as a difference are added to the weights they differ from."""
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
                    f"the delta has no fitting weights for `{name}`", where=str(arguments.delta)
                )
            if weight.data_ptr() not in seen:  # tied weights are two names of one thing
                weight += changes[name].to(weight.device, weight.dtype)
                seen.add(weight.data_ptr())
