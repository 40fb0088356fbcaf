"""What `--model_args` may say to a transformers model: lm-evaluation-harness's names, each read once and checked at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_bool, parse_value

__all__ = ["HfArguments", "read_arguments"]


def _text(value: Any) -> str:
    return str(value)


_DTYPES = frozenset(
    "auto half float double fp16 bf16 fp32 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()
)


def _dtype(value: Any) -> str:
    """A kind of number a model computes with, known before torch is."""
    name = str(value).removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(f"`{value}` is no dtype of torch for a model: float32, bfloat16, float16 or auto")
    return name


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else bool(parse_bool(str(value)))


def _count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        raise ValueError(f"{value!r} is not a mapping")
    return dict(found)


def _batch(value: Any) -> int | str:
    text = str(value)
    head, colon, rest = text.partition(":")
    if head == "auto" and (not colon or float(rest) > 0):
        return "auto"  # `auto:N` re-detects N times in lm-eval; here the batch adapts all the time
    if int(text) < 1:
        raise ValueError(f"{value!r} is not a batch size")
    return int(text)


def _mark(value: Any) -> str | int:
    """The text of a token, or its number."""
    return int(value) if str(value).isdigit() else str(value)


def _any(value: Any) -> Any:
    return value


def _argument(read: Callable[[Any], Any], default: Any = None, *, answers: bool = True) -> Any:
    """`answers`: whether the argument can change an answer, and so belongs to the model's identity."""
    metadata = {"read": read, "answers": answers}
    if isinstance(default, Mapping):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class HfArguments:
    """The arguments of one model, typed. Empty or None means: as the checkpoint says."""

    pretrained: str = _argument(_text, answers=False)  # the content counts, not where it lies
    revision: str = _argument(_text, "main", answers=False)
    subfolder: str = _argument(_text, "", answers=False)
    tokenizer: str | None = _argument(_text, answers=False)
    backend: str = _argument(_text, "default")
    dtype: str = _argument(_dtype, "auto", answers=False)  # the dtype it becomes is in the identity
    softmax_dtype: str | None = _argument(_dtype)
    mixed_precision_dtype: str | None = _argument(_dtype)
    max_length: int | None = _argument(_count)
    max_gen_toks: int = _argument(_count, 256)
    truncation: bool = _argument(_flag, False)
    add_bos_token: bool | None = _argument(_flag)
    prefix_token_id: int | None = _argument(_count)
    use_fast_tokenizer: bool = _argument(_flag, True)
    chat_template: str | None = _argument(_text, answers=False)
    chat_template_args: Mapping[str, Any] = _argument(_mapping, {})
    enable_thinking: bool | None = _argument(_flag)
    think_end_token: str | int | None = _argument(_mark)
    seed: int = _argument(_count, 0)

    peft: str | None = _argument(_text, answers=False)
    delta: str | None = _argument(_text, answers=False)
    gguf_file: str | None = _argument(_text)
    autogptq: bool | str = _argument(_any, False)
    gptqmodel: bool = _argument(_flag, False)

    batch_size: int | str = _argument(_batch, 1, answers=False)
    max_batch_size: int = _argument(_count, 64, answers=False)
    device: str | None = _argument(_text, answers=False)
    device_map: Any = _argument(_any, answers=False)
    parallelize: bool = _argument(_flag, False, answers=False)
    max_memory_per_gpu: str | int | None = _argument(_any, answers=False)
    max_cpu_memory: str | int | None = _argument(_any, answers=False)
    offload_folder: str = _argument(_text, "./offload", answers=False)
    tp_plan: str | None = _argument(_text, answers=False)
    trust_remote_code: bool = _argument(_flag, False, answers=False)
    logits_cache: bool = _argument(_flag, True, answers=False)
    work_once: bool = _argument(_flag, True, answers=False)
    cache_memory_mb: int | None = _argument(_count, answers=False)

    loading: Mapping[str, Any] = _argument(_mapping, {})
    """Arguments handed on to `from_pretrained`: quantization, `attn_implementation`, …"""

    @property
    def template_arguments(self) -> dict[str, Any]:
        """What the chat template is told beside the messages."""
        thinking = {} if self.enable_thinking is None else {"enable_thinking": self.enable_thinking}
        return {**self.chat_template_args, **thinking}

    def identity(self) -> dict[str, str]:
        """The arguments that can change an answer and are not as they are by default."""
        found = {}
        for one in fields(self):
            value = getattr(self, one.name)
            default = one.default if one.default is not MISSING else {}
            if one.metadata["answers"] and value != default:
                found[one.name] = (
                    json.dumps(value, sort_keys=True, default=str)
                    if isinstance(value, Mapping)
                    else str(value)
                )
        return found


_HANDED_ON = frozenset({
    "attn_implementation", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant", "cache_dir", "code_revision", "experts_implementation", "force_download",
    "ignore_mismatched_sizes", "key_mapping", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight",
    "llm_int8_skip_modules", "llm_int8_threshold", "load_in_4bit", "load_in_8bit", "local_files_only",
    "low_cpu_mem_usage", "max_memory", "offload_buffers", "offload_state_dict", "quantization_config", "token",
    "use_kernels", "use_safetensors", "variant",
})  # fmt: skip
"""What `from_pretrained` takes beside what is read here."""

_SAME = {"torch_dtype": "dtype", "model": "pretrained"}
_NOT_THE_USERS = ("loading",)


def read_arguments(given: Mapping[str, Any], *, name: str = "hf") -> HfArguments:
    """The arguments of a model, checked. Keys of the checkpoint's config are written `config.KEY`.

    Raises:
        InvalidOption: An argument nobody knows, or a value that makes no sense.
    """
    known = {one.name: one for one in fields(HfArguments) if one.name not in _NOT_THE_USERS}
    values: dict[str, Any] = {}
    loading: dict[str, Any] = {}
    for key, value in given.items():
        key = _SAME.get(key, key)
        if key in known:
            if value is not None:
                values[key] = _read(key, value, known[key].metadata["read"], name)
        elif key in _HANDED_ON or key.startswith("config."):
            loading[key] = parse_value(value) if isinstance(value, str) and key != "token" else value
        else:
            raise _unknown(key, (*known, *_HANDED_ON), name)
    arguments = HfArguments(**values, loading=loading)
    _check(arguments, name)
    return arguments


def _read(key: str, value: Any, read: Callable[[Any], Any], name: str) -> Any:
    try:
        return read(value)
    except (TypeError, ValueError, InvalidOption) as error:
        raise InvalidOption(f"the argument `{key}` of `{name}`: {error}", where="--model_args") from None


def _unknown(key: str, known: tuple[str, ...], name: str) -> InvalidOption:
    close = get_close_matches(key, known, n=1)
    hint = (
        f"did you mean `{close[0]}`?"
        if close
        else f"a key of the checkpoint's own config is written `config.{key}`"
    )
    return InvalidOption(
        f"the model `{name}` does not know the argument `{key}`", where="--model_args", hint=hint
    )


def _check(arguments: HfArguments, name: str) -> None:
    def wrong(what: str, hint: str = "") -> InvalidOption:
        return InvalidOption(what, where="--model_args", hint=hint)

    if not arguments.pretrained:
        raise wrong(
            f"the model `{name}` needs `pretrained`", "a folder or a name on the hub: pretrained=gpt2"
        )
    if arguments.backend not in ("default", "causal", "seq2seq"):
        raise wrong(f"`backend` is causal or seq2seq, not `{arguments.backend}`")
    if arguments.peft and arguments.delta:
        raise wrong("`peft` and `delta` exclude each other")
    if arguments.autogptq and arguments.gptqmodel:
        raise wrong("`autogptq` and `gptqmodel` exclude each other")
    if arguments.tp_plan and (arguments.parallelize or arguments.device_map is not None):
        raise wrong("`tp_plan` and `parallelize` or `device_map` exclude each other")
    if arguments.enable_thinking and arguments.think_end_token is None:
        raise wrong(
            "`enable_thinking` needs `think_end_token`, or the thinking would be taken for the answer",
            "for many models it is think_end_token=</think>",
        )
    if arguments.max_length == 0:
        raise wrong("`max_length` is at least 1")
