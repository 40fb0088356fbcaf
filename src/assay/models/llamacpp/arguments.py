"""The `--model_args` of `llamacpp`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.fingerprints import digest_text
from assay.core.options.parsing import parse_bool
from assay.core.records.requests import Generate

__all__ = ["LlamaCppArguments"]

_DEFAULT_LENGTH = 4096
_AUTO_SLOTS = 4
_SWITCHES = ("flash_attn", "cache_prompt", "add_bos_token")
_NUMBERS = ("n_ctx", "n_threads", "n_gpu_layers", "max_gen_toks", "seed", "slots")
_OTHER_NAMES = {"max_length": "n_ctx", "threads": "n_threads", "n_parallel": "slots"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppArguments:
    """All arguments except the model file."""

    n_ctx: int = 0
    """Context length: tokens of prompt and answer together. 0: that of the model, at most 4096."""

    n_threads: int = 0
    """Number of threads. 0: half the CPUs, which is faster than all of them on a busy machine."""

    n_gpu_layers: int = 0
    """Layers on the GPU, if `xllamacpp` was built for one; -1 for all."""

    slots: int = 1
    """Number of requests computed together: `--batch_size`, or `n_parallel`."""

    max_gen_toks: int = 256
    """Token limit of tasks that set none."""

    seed: int = 0
    """Seed of sampled answers, unless the task sets one."""

    flash_attn: bool = False
    """Flash attention. Off by default, because with it answers depend on earlier prompts of the slot."""

    cache_prompt: bool = True
    """Whether a slot reuses the prefix that its next prompt shares with the last."""

    add_bos_token: bool | None = None
    """Whether prompts start with the start token. None: as configured in the file."""

    chat_template: str = ""
    """Another chat template: a name in the model file, template text, or a file."""

    chat_template_args: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the template besides the messages: `{"enable_thinking": false}`."""

    think_end_token: str = ""
    """The text that ends the reasoning, which is separated from the answer."""

    @classmethod
    def parse(cls, given: Mapping[str, Any], *, batch_size: int | str, model: str) -> LlamaCppArguments:
        """Parse `--model_args`.

        Raises:
            InvalidOption: An argument is unknown or its value is invalid.
        """
        values = {_OTHER_NAMES.get(name, name): value for name, value in given.items()}
        values.setdefault("slots", batch_size)
        if "enable_thinking" in values:
            more = _parse_mapping(values.get("chat_template_args"))
            values["chat_template_args"] = more | {
                "enable_thinking": _parse_bool("enable_thinking", values.pop("enable_thinking"))
            }
        known = sorted(item.name for item in fields(cls))
        if unknown := ", ".join(f"`{name}`" for name in values if name not in known):
            raise InvalidOption(
                f"unknown argument {unknown} of the model `{model}`",
                where="--model_args",
                hint=f"arguments: {', '.join(['pretrained', *known])}",
            )
        read = {name: _parse_value(name, value) for name, value in values.items()}
        return cls(**read)._validate()

    def _validate(self) -> LlamaCppArguments:
        for name, minimum in (("n_ctx", 0), ("n_gpu_layers", -1), ("max_gen_toks", 1), ("slots", 1)):
            if getattr(self, name) < minimum:
                raise InvalidOption(
                    f"`{name}` must be at least {minimum}, got {getattr(self, name)}", where="--model_args"
                )
        if self.n_threads < 1:
            object.__setattr__(self, "n_threads", count_default_threads())
        return self

    def find_template(self, named: Mapping[str, str]) -> str:
        """Return the template given instead of the model's own: by name, as text, or from a file. Empty: none."""
        requested = self.chat_template
        if not requested or requested == "default" or "{" in requested:
            return "" if requested == "default" else requested
        if requested in named:
            return named[requested]
        try:
            return Path(requested).expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidOption(
                f"chat template not found: `{requested}` is not in the model file, and no such file: {error.strerror}",
                where="chat_template",
                hint=f"templates in the model file: {', '.join(sorted(named))}"
                if named
                else "the model file has only one template",
            ) from None

    def find_context_length(self, trained: int | None) -> int:
        """Return the context length of a request."""
        return self.n_ctx or min(trained or _DEFAULT_LENGTH, _DEFAULT_LENGTH)

    def to_identity(self) -> dict[str, str]:
        """Return the arguments that can change answers. Threads, slots and the prompt cache do not change a bit."""
        values: dict[str, Any] = {
            "seed": self.seed,
            "max_gen_toks": self.max_gen_toks,
            "flash_attn": self.flash_attn,
            "n_gpu_layers": self.n_gpu_layers,
        }
        if self.add_bos_token is not None:
            values["add_bos_token"] = self.add_bos_token
        if self.chat_template_args:
            values["chat_template_args"] = json.dumps(dict(self.chat_template_args), sort_keys=True)
        if self.think_end_token:
            values["think_end_token"] = self.think_end_token
        return {name: str(value) for name, value in values.items()}

    def build_sampling(self, request: Generate) -> dict[str, Any]:
        """Return the sampling parameters of a request. Each prompt and repeat has its own seed."""
        settings = request.settings
        penalties = {**_convert_penalties(settings.values), **_build_grammar(request)}
        if settings.temperature <= 0:
            return {
                **penalties,
                "temperature": 0.0,
                "samplers": [*_list_penalty_samplers(penalties), "top_k"],
                "top_k": 1,
            }
        seed = self.seed if settings.seed is None else settings.seed
        own = hashlib.sha256(digest_text(str(seed), request.prompt.digest, str(request.repeat)).encode())
        order = [*_list_penalty_samplers(penalties), "temperature", "top_k", "top_p", "min_p"]
        return {
            **penalties,
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": float(settings.values.get("min_p") or 0.0),
            "samplers": order,
            "seed": int.from_bytes(own.digest()[:4], "big")
            % 0xFFFFFFFF,  # the largest value means a random seed
        }


def _build_grammar(request: Generate) -> dict[str, Any]:
    """Return the JSON schema that the answer must have, from which llama.cpp makes a grammar; empty if there is none.

    Calls as JSON text are constrained if a call is required.
    """
    if request.response_format is not None:
        return {"json_schema": dict(request.response_format.schema or {"type": "object"})}
    tools = request.tools
    if tools is None or tools.syntax != "json" or tools.choice in ("auto", "none"):
        return {}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": dict(tool.parameters)},
            "required": ["name", "arguments"],
        }
        for tool in tools.tools
        if tools.choice in ("required", tool.name)
    ]
    most = {"maxItems": 1} if tools.parallel is False else {}
    return {"json_schema": {"type": "array", "items": {"anyOf": calls}, "minItems": 1, **most}}


def _convert_penalties(values: Mapping[str, Any]) -> dict[str, float]:
    """Convert penalties from the names of transformers and the OpenAI API."""
    names = {
        "repetition_penalty": "repeat_penalty",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
    }
    found = {own: float(values[name]) for name, own in names.items() if values.get(name) is not None}
    return {**found, "repeat_last_n": -1} if found else {}


def _list_penalty_samplers(penalties: Mapping[str, float]) -> list[str]:
    return ["penalties"] if penalties else []


def count_default_threads() -> int:
    """Return half of the CPUs available to this process. Hyperthreads add nothing, and on a busy machine the slowest
    thread delays all."""
    try:
        own = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        own = os.cpu_count() or 1
    return max(1, own // 2)


def _parse_value(name: str, value: Any) -> Any:
    if name == "slots" and value == "auto":
        return _AUTO_SLOTS
    if name in _NUMBERS:
        try:
            return int(value)
        except (TypeError, ValueError):
            raise InvalidOption(f"`{name}` must be an integer, got {value!r}", where="--model_args") from None
    if name in _SWITCHES:
        return _parse_bool(name, value)
    return _parse_mapping(value) if name == "chat_template_args" else str(value)


def _parse_bool(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return bool(parse_bool(str(value)))
    except InvalidOption:
        raise InvalidOption(f"`{name}` must be true or false, got {value!r}", where="--model_args") from None


def _parse_mapping(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise InvalidOption(
            f"`chat_template_args` must be a JSON object, got {value!r}", where="--model_args"
        )
    return dict(found)
