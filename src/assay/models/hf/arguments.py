"""The `--model_args` of a transformers model, under the names of lm-evaluation-harness."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_value
from assay.models.argument_parsing import argument, parse_argument, parse_count, parse_flag, parse_mapping

__all__ = ["HfArguments", "parse_arguments"]


_DTYPES = frozenset(
    "auto half float double fp16 bf16 fp32 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()
)


def _parse_dtype(value: Any) -> str:
    """Check the name of a dtype without importing torch."""
    name = str(value).removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(f"`{value}` is not a supported torch dtype; use float32, bfloat16, float16 or auto")
    return name


def _parse_batch_size(value: Any) -> int | str:
    text = str(value)
    head, colon, rest = text.partition(":")
    if head == "auto" and (not colon or float(rest) > 0):
        return "auto"  # `auto:N` re-detects N times in lm-eval; here the batch size always adapts
    if int(text) < 1:
        raise ValueError(f"{value!r} is not a batch size")
    return int(text)


def _parse_token(value: Any) -> str | int:
    """Parse the text or the id of a token."""
    return int(value) if str(value).isdigit() else str(value)


def _keep_value(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class HfArguments:
    """The arguments of one model. Empty or None: use the value of the checkpoint."""

    pretrained: str = argument(str, changes_answers=False)  # the identity has the content, not the location
    revision: str = argument(str, "main", changes_answers=False)
    subfolder: str = argument(str, "", changes_answers=False)
    tokenizer: str | None = argument(str, changes_answers=False)
    backend: str = argument(str, "default")
    dtype: str = argument(_parse_dtype, "auto", changes_answers=False)  # the identity has the resolved dtype
    softmax_dtype: str | None = argument(_parse_dtype)
    mixed_precision_dtype: str | None = argument(_parse_dtype)
    max_length: int | None = argument(parse_count)
    max_gen_toks: int = argument(parse_count, 256)
    truncation: bool = argument(parse_flag, False)
    add_bos_token: bool | None = argument(parse_flag)
    prefix_token_id: int | None = argument(parse_count)
    use_fast_tokenizer: bool = argument(parse_flag, True)
    chat_template: str | None = argument(str, changes_answers=False)
    chat_template_args: Mapping[str, Any] = argument(parse_mapping, {})
    enable_thinking: bool | None = argument(parse_flag)
    think_end_token: str | int | None = argument(_parse_token)
    seed: int = argument(parse_count, 0)

    peft: str | None = argument(str, changes_answers=False)
    delta: str | None = argument(str, changes_answers=False)
    gguf_file: str | None = argument(str)
    autogptq: bool | str = argument(_keep_value, False)
    gptqmodel: bool = argument(parse_flag, False)

    batch_size: int | str = argument(_parse_batch_size, 1, changes_answers=False)
    max_batch_size: int = argument(parse_count, 64, changes_answers=False)
    device: str | None = argument(str, changes_answers=False)
    device_map: Any = argument(_keep_value, changes_answers=False)
    parallelize: bool = argument(parse_flag, False, changes_answers=False)
    max_memory_per_gpu: str | int | None = argument(_keep_value, changes_answers=False)
    max_cpu_memory: str | int | None = argument(_keep_value, changes_answers=False)
    offload_folder: str = argument(str, "./offload", changes_answers=False)
    tp_plan: str | None = argument(str, changes_answers=False)
    trust_remote_code: bool = argument(parse_flag, False, changes_answers=False)
    logits_cache: bool = argument(parse_flag, True, changes_answers=False)
    work_once: bool = argument(parse_flag, True, changes_answers=False)
    cache_memory_mb: int | None = argument(parse_count, changes_answers=False)

    loading: Mapping[str, Any] = argument(parse_mapping, {})
    """Arguments passed to `from_pretrained`: quantization, `attn_implementation`, …"""

    @property
    def template_arguments(self) -> dict[str, Any]:
        """The variables of the chat template besides the messages."""
        thinking = {} if self.enable_thinking is None else {"enable_thinking": self.enable_thinking}
        return {**self.chat_template_args, **thinking}

    def to_identity(self) -> dict[str, str]:
        """Return the arguments that can change an answer and differ from their defaults."""
        found = {}
        for one in fields(self):
            value = getattr(self, one.name)
            default = one.default if one.default is not MISSING else {}
            if one.metadata["changes_answers"] and value != default:
                found[one.name] = (
                    json.dumps(value, sort_keys=True, default=str)
                    if isinstance(value, Mapping)
                    else str(value)
                )
        return found


_FROM_PRETRAINED_ARGUMENTS = frozenset({
    "attn_implementation", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant", "cache_dir", "code_revision", "experts_implementation", "force_download",
    "ignore_mismatched_sizes", "key_mapping", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight",
    "llm_int8_skip_modules", "llm_int8_threshold", "load_in_4bit", "load_in_8bit", "local_files_only",
    "low_cpu_mem_usage", "max_memory", "offload_buffers", "offload_state_dict", "quantization_config", "token",
    "use_kernels", "use_safetensors", "variant",
})  # fmt: skip
"""Further arguments of `from_pretrained`, passed on unchanged."""

_ALIASES = {"torch_dtype": "dtype", "model": "pretrained"}
_INTERNAL_FIELDS = ("loading",)


def parse_arguments(given: Mapping[str, Any], *, name: str = "hf") -> HfArguments:
    """Parse and validate the arguments of a model. `config.KEY` sets a key of the checkpoint's config.

    Raises:
        InvalidOption: An argument is unknown or its value is invalid.
    """
    known = {one.name: one for one in fields(HfArguments) if one.name not in _INTERNAL_FIELDS}
    values: dict[str, Any] = {}
    loading: dict[str, Any] = {}
    for key, value in given.items():
        key = _ALIASES.get(key, key)
        if key in known:
            if value is not None:
                values[key] = parse_argument(key, value, known[key].metadata["parse"], model=name)
        elif key in _FROM_PRETRAINED_ARGUMENTS or key.startswith("config."):
            loading[key] = parse_value(value) if isinstance(value, str) and key != "token" else value
        else:
            raise _make_unknown_argument_error(key, (*known, *_FROM_PRETRAINED_ARGUMENTS), name)
    arguments = HfArguments(**values, loading=loading)
    _validate(arguments, name)
    return arguments


def _make_unknown_argument_error(key: str, known: tuple[str, ...], name: str) -> InvalidOption:
    close = get_close_matches(key, known, n=1)
    hint = (
        f"did you mean `{close[0]}`?"
        if close
        else f"to set a key of the checkpoint's config, write `config.{key}`"
    )
    return InvalidOption(f"unknown argument `{key}` of the model `{name}`", where="--model_args", hint=hint)


def _validate(arguments: HfArguments, name: str) -> None:
    def make_error(what: str, hint: str = "") -> InvalidOption:
        return InvalidOption(what, where="--model_args", hint=hint)

    if not arguments.pretrained:
        raise make_error(
            f"missing argument `pretrained` of the model `{name}`",
            "a folder or a name on the hub: pretrained=gpt2",
        )
    if arguments.backend not in ("default", "causal", "seq2seq"):
        raise make_error(f"`backend` must be causal or seq2seq, got `{arguments.backend}`")
    if arguments.peft and arguments.delta:
        raise make_error("`peft` and `delta` cannot be combined")
    if arguments.autogptq and arguments.gptqmodel:
        raise make_error("`autogptq` and `gptqmodel` cannot be combined")
    if arguments.tp_plan and (arguments.parallelize or arguments.device_map is not None):
        raise make_error("`tp_plan` cannot be combined with `parallelize` or `device_map`")
    if arguments.enable_thinking and arguments.think_end_token is None:
        raise make_error(
            "`enable_thinking` needs `think_end_token` to separate the reasoning from the answer",
            "for many models: think_end_token=</think>",
        )
    if arguments.max_length == 0:
        raise make_error("`max_length` must be at least 1")
