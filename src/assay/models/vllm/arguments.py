"""What `--model_args` may say to vLLM: lm-evaluation-harness's and lmms-eval's names, and everything the engine itself takes.

Nothing here imports vLLM. Arguments that are not read here go to the engine as they are; whether it knows them is seen
when it is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_bool
from assay.models.hf.arguments import HfArguments

__all__ = ["VllmArguments", "read_arguments"]

_SIDES = ("left", "right", "middle")


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else bool(parse_bool(str(value)))


def _count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _many(value: Any) -> int:
    if _count(value) < 1:
        raise ValueError(f"{value!r} is less than 1")
    return int(value)


def _rate(value: Any) -> float:
    if float(value) <= 0:
        raise ValueError(f"{value!r} is not above 0")
    return float(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        raise ValueError(f"{value!r} is not a mapping")
    return dict(found)


def _side(value: Any) -> str:
    if value not in _SIDES:
        raise ValueError(f"{value!r} is none of {', '.join(_SIDES)}")
    return str(value)


def _argument(read: Callable[[Any], Any], default: Any = None, *, answers: bool = True) -> Any:
    """`answers`: whether the argument by itself can change an answer, and so belongs to the model's identity."""
    metadata = {"read": read, "answers": answers}
    if isinstance(default, Mapping):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmArguments:
    """The arguments of one model, typed. None means: as the checkpoint or the engine says."""

    pretrained: str = _argument(str, "", answers=False)  # the content counts, not where it lies
    revision: str | None = _argument(str, answers=False)
    tokenizer: str | None = _argument(str, answers=False)
    tokenizer_mode: str = _argument(str, "auto")
    tokenizer_revision: str | None = _argument(str)
    trust_remote_code: bool = _argument(_flag, False, answers=False)
    dtype: str = _argument(str, "auto", answers=False)  # the dtype it becomes is in the identity
    quantization: str | None = _argument(str)
    max_length: int | None = _argument(_many)
    add_bos_token: bool | None = _argument(_flag)
    prefix_token_id: int | None = _argument(_count)
    max_gen_toks: int = _argument(_many, 256)
    truncation_side: str = _argument(_side, "left")
    seed: int = _argument(_count, 1234)
    chat_template: str | None = _argument(str, answers=False)  # its text is in the identity
    chat_template_args: Mapping[str, Any] = _argument(_mapping, {})
    enable_thinking: bool | None = _argument(_flag)
    think_end_token: str | None = _argument(str)
    lora_local_path: str | None = _argument(str, answers=False)
    max_lora_rank: int = _argument(_many, 16, answers=False)
    share_prefixes: bool = _argument(_flag, True, answers=False)

    max_new_tokens: int | None = _argument(_many)
    """At least so many tokens for every answer, whatever the task says: lmms-eval's meaning."""

    max_frame_num: int = _argument(_many, 768)
    nframes: int = _argument(_many, 32)
    fps: float | None = _argument(_rate)
    max_images: int | None = _argument(_many)
    image_width: int | None = _argument(_many)
    image_height: int | None = _argument(_many)
    image_max_side: int | None = _argument(_many)
    """Larger pictures are made smaller, to fit; smaller ones stay as they are."""

    engine: Mapping[str, Any] = _argument(_mapping, {})
    """Arguments handed on to the engine: `tensor_parallel_size`, `gpu_memory_utilization`, `kv_cache_dtype`, …"""

    @property
    def multimodal_frames(self) -> int:
        """Frames of a video: `nframes` of them, or with `fps` at most `max_frame_num`."""
        return self.max_frame_num if self.fps else min(self.nframes, self.max_frame_num)

    def for_tokenizer(self) -> HfArguments:
        """The part that the tokenizer and its chat template want to know, in the words of the transformers adapter."""
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

    def for_engine(self) -> dict[str, Any]:
        """Keyword arguments of vLLM's engine; what nobody said is left to it."""
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

    def identity(self) -> dict[str, str]:
        """The arguments that can change an answer and are not as they are by default."""
        plain = VllmArguments()
        found = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "engine" and one.metadata["answers"] and value != getattr(plain, one.name):
                found[one.name] = _said(value)
        kept = {key: value for key, value in self.engine.items() if key not in _WHERE_AND_HOW_FAST}
        return {**found, **{f"engine.{key}": _said(kept[key]) for key in sorted(kept)}}


def _said(value: Any) -> str:
    return (
        json.dumps(value, sort_keys=True, default=str) if isinstance(value, (Mapping, list)) else str(value)
    )


_WHERE_AND_HOW_FAST = frozenset({
    "async_scheduling", "block_size", "code_revision", "config_format", "cpu_offload_gb", "data_parallel_address",
    "data_parallel_backend", "data_parallel_rpc_port", "data_parallel_size", "data_parallel_size_local",
    "disable_custom_all_reduce", "disable_log_requests", "disable_log_stats", "distributed_executor_backend",
    "download_dir", "enable_chunked_prefill", "enable_expert_parallel", "enable_prefix_caching", "enforce_eager",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "limit_mm_per_prompt", "load_format",
    "max_num_batched_tokens", "max_num_seqs", "max_parallel_loading_workers", "mm_processor_cache_gb",
    "num_gpu_blocks_override", "pipeline_parallel_size", "ray_workers_use_nsight", "safetensors_load_strategy",
    "scheduling_policy", "swap_space", "tensor_parallel_size", "worker_cls",
})  # fmt: skip
"""Arguments of the engine that change where and how fast it computes, and the last bits at most."""

_SAME = {
    "model": "pretrained",
    "max_model_len": "max_length",
    "torch_dtype": "dtype",
    "max_num_frames": "nframes",
}
_UNUSED = (
    "batch_size",
    "device",
    "threads",
    "min_image_pixels",
    "max_pixels",
    "is_qwen3_vl",
    "image_first",
    "interleave",
)
"""lm-eval's and lmms-eval's adapters take these; here the engine batches by itself, and pictures go to the checkpoint's own
processor (`mm_processor_kwargs` says how) where the prompt has them."""


def read_arguments(given: Mapping[str, Any], *, name: str = "vllm") -> VllmArguments:
    """The arguments of a model, checked.

    Raises:
        InvalidOption: A value that makes no sense, or two that exclude each other.
    """
    known = {one.name: one for one in fields(VllmArguments) if one.name != "engine"}
    values: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    for key, value in given.items():
        own = _SAME.get(key, key)
        if value is None or key in _UNUSED:
            continue
        if own in known:
            if own in values:
                raise InvalidOption(f"`{key}` and another name of it are both given", where="--model_args")
            values[own] = _read(key, value, known[own].metadata["read"], name)
        elif key == "max_batch_size":
            engine.setdefault("max_num_seqs", _read(key, value, _many, name))
        else:
            engine[key] = _parsed(value)
    template = dict(values.get("chat_template_args", {}))
    if "enable_thinking" in template:  # said either way, it is one thing
        values.setdefault("enable_thinking", _flag(template.pop("enable_thinking")))
        values["chat_template_args"] = template
    arguments = VllmArguments(**values, engine=engine)
    _check(arguments, name)
    return arguments


def _read(key: str, value: Any, read: Callable[[Any], Any], name: str) -> Any:
    try:
        return read(value)
    except (TypeError, ValueError, InvalidOption) as error:
        raise InvalidOption(f"the argument `{key}` of `{name}`: {error}", where="--model_args") from None


def _parsed(value: Any) -> Any:
    """JSON objects written as text become what they say: `hf_overrides={"architectures": […]}`."""
    if isinstance(value, str) and value.strip().startswith("{") and value.strip().endswith("}"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _check(arguments: VllmArguments, name: str) -> None:
    def wrong(what: str, hint: str = "") -> InvalidOption:
        return InvalidOption(what, where="--model_args", hint=hint)

    if not arguments.pretrained:
        raise wrong(
            f"the model `{name}` needs `pretrained`", "a folder or a name on the hub: pretrained=gpt2"
        )
    if arguments.image_max_side and (arguments.image_width or arguments.image_height):
        raise wrong("`image_max_side` and `image_width` or `image_height` exclude each other")
    if arguments.enable_thinking and arguments.think_end_token is None:
        raise wrong(
            "`enable_thinking` needs `think_end_token`, or the thinking would be taken for the answer",
            "for many models it is think_end_token=</think>",
        )
