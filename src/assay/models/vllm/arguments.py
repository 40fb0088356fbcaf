"""The `--model_args` of vLLM: the names of lm-evaluation-harness and lmms-eval, and all arguments of the engine.

This module does not import vLLM. Arguments that it does not define are passed to the engine unchanged, which checks them
when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from assay.core.errors import InvalidOption
from assay.models.argument_parsing import argument, parse_argument, parse_count, parse_flag, parse_mapping
from assay.models.hf.arguments import HfArguments

__all__ = ["VllmArguments", "parse_arguments"]

_TRUNCATION_SIDES = ("left", "right", "middle")


def _parse_positive_count(value: Any) -> int:
    if parse_count(value) < 1:
        raise ValueError(f"{value!r} is less than 1")
    return int(value)


def _parse_positive_number(value: Any) -> float:
    if float(value) <= 0:
        raise ValueError(f"{value!r} is not greater than 0")
    return float(value)


def _parse_side(value: Any) -> str:
    if value not in _TRUNCATION_SIDES:
        raise ValueError(f"{value!r} is not one of {', '.join(_TRUNCATION_SIDES)}")
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmArguments:
    """The arguments of one model. None: use the value of the checkpoint or the engine."""

    pretrained: str = argument(
        str, "", changes_answers=False
    )  # the identity has the content, not the location
    revision: str | None = argument(str, changes_answers=False)
    tokenizer: str | None = argument(str, changes_answers=False)
    tokenizer_mode: str = argument(str, "auto")
    tokenizer_revision: str | None = argument(str)
    trust_remote_code: bool = argument(parse_flag, False, changes_answers=False)
    dtype: str = argument(str, "auto", changes_answers=False)  # the identity has the resolved dtype
    quantization: str | None = argument(str)
    max_length: int | None = argument(_parse_positive_count)
    add_bos_token: bool | None = argument(parse_flag)
    prefix_token_id: int | None = argument(parse_count)
    max_gen_toks: int = argument(_parse_positive_count, 256)
    truncation_side: str = argument(_parse_side, "left")
    seed: int = argument(parse_count, 1234)
    chat_template: str | None = argument(str, changes_answers=False)  # the identity has its text
    chat_template_args: Mapping[str, Any] = argument(parse_mapping, {})
    enable_thinking: bool | None = argument(parse_flag)
    think_end_token: str | None = argument(str)
    lora_local_path: str | None = argument(str, changes_answers=False)
    max_lora_rank: int = argument(_parse_positive_count, 16, changes_answers=False)
    share_prefixes: bool = argument(parse_flag, True, changes_answers=False)

    max_new_tokens: int | None = argument(_parse_positive_count)
    """Minimum token limit of every answer, even if the task sets a lower one (as in lmms-eval)."""

    max_frame_num: int = argument(_parse_positive_count, 768)
    nframes: int = argument(_parse_positive_count, 32)
    fps: float | None = argument(_parse_positive_number)
    max_images: int | None = argument(_parse_positive_count)
    image_width: int | None = argument(_parse_positive_count)
    image_height: int | None = argument(_parse_positive_count)
    image_max_side: int | None = argument(_parse_positive_count)
    """Shrink images whose longer side exceeds this; smaller images are not changed."""

    engine: Mapping[str, Any] = argument(parse_mapping, {})
    """Arguments passed to the engine: `tensor_parallel_size`, `gpu_memory_utilization`, `kv_cache_dtype`, …"""

    @property
    def multimodal_frames(self) -> int:
        """Number of frames of a video: `nframes`, or with `fps` at most `max_frame_num`."""
        return self.max_frame_num if self.fps else min(self.nframes, self.max_frame_num)

    def to_tokenizer_arguments(self) -> HfArguments:
        """Return the arguments of the tokenizer and its chat template, for the code of the `hf` adapter."""
        return HfArguments(
            pretrained=self.pretrained,
            revision=(self.tokenizer_revision if self.tokenizer else self.revision) or "main",
            tokenizer=self.tokenizer,
            trust_remote_code=self.trust_remote_code,
            use_fast_tokenizer=self.tokenizer_mode != "slow",
            add_bos_token=self.add_bos_token,
            prefix_token_id=self.prefix_token_id,
            chat_template=self.chat_template,
            chat_template_args=self.chat_template_args,
            enable_thinking=self.enable_thinking,
        )

    def to_engine_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of vLLM's engine. Unset arguments keep the engine's defaults."""
        found: dict[str, Any] = {
            "model": self.pretrained,
            "dtype": self.dtype,
            "tokenizer_mode": self.tokenizer_mode,
            "trust_remote_code": self.trust_remote_code,
            "seed": self.seed,
            "enable_prefix_caching": True,
        }
        others = {
            "revision": self.revision,
            "tokenizer": self.tokenizer,
            "tokenizer_revision": self.tokenizer_revision,
            "quantization": self.quantization,
            "max_model_len": self.max_length,
        }
        found |= {key: value for key, value in others.items() if value is not None}
        if self.lora_local_path:
            found |= {"enable_lora": True, "max_lora_rank": self.max_lora_rank}
        if self.max_images is not None:
            found["limit_mm_per_prompt"] = {"image": self.max_images}
        return {**found, **self.engine}

    def to_identity(self) -> dict[str, str]:
        """Return the arguments that can change an answer and differ from their defaults."""
        plain = VllmArguments()
        found = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "engine" and one.metadata["changes_answers"] and value != getattr(plain, one.name):
                found[one.name] = _to_text(value)
        kept = {key: value for key, value in self.engine.items() if key not in _PERFORMANCE_ARGUMENTS}
        return {**found, **{f"engine.{key}": _to_text(kept[key]) for key in sorted(kept)}}


def _to_text(value: Any) -> str:
    return (
        json.dumps(value, sort_keys=True, default=str) if isinstance(value, (Mapping, list)) else str(value)
    )


_PERFORMANCE_ARGUMENTS = frozenset({
    "async_scheduling", "block_size", "code_revision", "config_format", "cpu_offload_gb", "data_parallel_address",
    "data_parallel_backend", "data_parallel_rpc_port", "data_parallel_size", "data_parallel_size_local",
    "disable_custom_all_reduce", "disable_log_requests", "disable_log_stats", "distributed_executor_backend",
    "download_dir", "enable_chunked_prefill", "enable_expert_parallel", "enable_prefix_caching", "enforce_eager",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "limit_mm_per_prompt", "load_format",
    "max_num_batched_tokens", "max_num_seqs", "max_parallel_loading_workers", "mm_processor_cache_gb",
    "num_gpu_blocks_override", "pipeline_parallel_size", "ray_workers_use_nsight", "safetensors_load_strategy",
    "scheduling_policy", "swap_space", "tensor_parallel_size", "worker_cls",
})  # fmt: skip
"""Engine arguments that affect placement and speed, and at most the last bits of a result."""

_ALIASES = {
    "model": "pretrained",
    "max_model_len": "max_length",
    "torch_dtype": "dtype",
    "max_num_frames": "nframes",
}
_IGNORED_ARGUMENTS = (
    "batch_size",
    "device",
    "threads",
    "min_image_pixels",
    "max_pixels",
    "is_qwen3_vl",
    "image_first",
    "interleave",
)
"""Arguments of the adapters of lm-eval and lmms-eval without effect here: the engine batches by itself, and the
checkpoint's own processor prepares images (see `mm_processor_kwargs`)."""


def parse_arguments(given: Mapping[str, Any], *, name: str = "vllm") -> VllmArguments:
    """Parse and validate the arguments of a model.

    Raises:
        InvalidOption: A value is invalid, or two arguments cannot be combined.
    """
    known = {one.name: one for one in fields(VllmArguments) if one.name != "engine"}
    values: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    for key, value in given.items():
        own = _ALIASES.get(key, key)
        if value is None or key in _IGNORED_ARGUMENTS:
            continue
        if own in known:
            if own in values:
                raise InvalidOption(f"`{key}` is given twice, under two names", where="--model_args")
            values[own] = parse_argument(key, value, known[own].metadata["parse"], model=name)
        elif key == "max_batch_size":
            engine.setdefault("max_num_seqs", parse_argument(key, value, _parse_positive_count, model=name))
        else:
            engine[key] = _parse_json_object(value)
    template = dict(values.get("chat_template_args", {}))
    if "enable_thinking" in template:  # the same setting under another name
        values.setdefault("enable_thinking", parse_flag(template.pop("enable_thinking")))
        values["chat_template_args"] = template
    arguments = VllmArguments(**values, engine=engine)
    _validate(arguments, name)
    return arguments


def _parse_json_object(value: Any) -> Any:
    """Parse a JSON object given as text, such as `hf_overrides={"architectures": […]}`."""
    if isinstance(value, str) and value.strip().startswith("{") and value.strip().endswith("}"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _validate(arguments: VllmArguments, name: str) -> None:
    def make_error(what: str, hint: str = "") -> InvalidOption:
        return InvalidOption(what, where="--model_args", hint=hint)

    if not arguments.pretrained:
        raise make_error(
            f"missing argument `pretrained` of the model `{name}`",
            "a folder or a name on the hub: pretrained=gpt2",
        )
    if arguments.image_max_side and (arguments.image_width or arguments.image_height):
        raise make_error("`image_max_side` cannot be combined with `image_width` or `image_height`")
    if arguments.enable_thinking and arguments.think_end_token is None:
        raise make_error(
            "`enable_thinking` needs `think_end_token` to separate the reasoning from the answer",
            "for many models: think_end_token=</think>",
        )
