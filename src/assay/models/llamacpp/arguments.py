"""The arguments of the model `llamacpp`: read once, checked, and split into what changes answers and what does not."""

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
from assay.core.requests import Generate

__all__ = ["Arguments"]

_DEFAULT_LENGTH = 4096
_SLOTS_OF_AUTO = 4
_SWITCHES = ("flash_attn", "cache_prompt", "add_bos_token")
_NUMBERS = ("n_ctx", "n_threads", "n_gpu_layers", "max_gen_toks", "seed", "slots")
_OTHER_NAMES = {"max_length": "n_ctx", "threads": "n_threads", "n_parallel": "slots"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Everything but the file."""

    n_ctx: int = 0
    """Tokens a request may take, prompt and answer together; 0: what the model was trained for, 4096 at most."""

    n_threads: int = 0
    """Threads that compute; 0: half the processors, which is faster than all of them where others work too."""

    n_gpu_layers: int = 0
    """Layers on the GPU, where `xllamacpp` was installed for one; -1 for all."""

    slots: int = 1
    """Requests computed together: `--batch_size`, or `n_parallel`."""

    max_gen_toks: int = 256
    """Length of answers for tasks that do not say."""

    seed: int = 0
    """Where sampled answers start; a task's own seed comes first."""

    flash_attn: bool = False
    """Flash attention. Off, because with it an answer depends on what else a slot has read before."""

    cache_prompt: bool = True
    """Whether a slot keeps the start that its next prompt shares with its last."""

    add_bos_token: bool | None = None
    """Whether prompts begin with the start token; None: as the file says."""

    chat_template: str = ""
    """A file with another template, or the template itself."""

    chat_template_args: Mapping[str, Any] = field(default_factory=dict)
    """What the template is told besides the messages: `{"enable_thinking": false}`."""

    think_end_token: str = ""
    """The text with which thinking ends: what stands before it is kept apart from the answer."""

    @classmethod
    def of(cls, given: Mapping[str, Any], *, batch_size: int | str, model: str) -> Arguments:
        """From model_args.

        Raises:
            InvalidOption: An argument that is no number, no switch, or not known.
        """
        values = {_OTHER_NAMES.get(name, name): value for name, value in given.items()}
        values.setdefault("slots", batch_size)
        if "enable_thinking" in values:
            more = _mapping(values.get("chat_template_args"))
            values["chat_template_args"] = more | {
                "enable_thinking": _switch("enable_thinking", values.pop("enable_thinking"))
            }
        known = sorted(item.name for item in fields(cls))
        if unknown := ", ".join(f"`{name}`" for name in values if name not in known):
            raise InvalidOption(
                f"the model `{model}` does not know the argument {unknown}",
                where="--model_args",
                hint=f"it takes: {', '.join(['pretrained', *known])}",
            )
        read = {name: _read(name, value) for name, value in values.items()}
        return cls(**read)._checked()

    def _checked(self) -> Arguments:
        for name, least in (("n_ctx", 0), ("n_gpu_layers", -1), ("max_gen_toks", 1), ("slots", 1)):
            if getattr(self, name) < least:
                raise InvalidOption(
                    f"`{name}` must be at least {least}, got {getattr(self, name)}", where="--model_args"
                )
        if self.n_threads < 1:
            object.__setattr__(self, "n_threads", default_threads())
        return self

    def template(self, named: Mapping[str, str]) -> str:
        """The template given in place of the model's own, or nothing: one of those it has by name, a text, or a file."""
        asked = self.chat_template
        if not asked or asked == "default" or "{" in asked:
            return "" if asked == "default" else asked
        if asked in named:
            return named[asked]
        try:
            return Path(asked).expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidOption(
                f"no chat template is called `{asked}`, and no such file can be read: {error.strerror}",
                where="chat_template",
                hint=f"the model file has {', '.join(sorted(named))}"
                if named
                else "the model file has no more than one",
            ) from None

    def length(self, trained: int | None) -> int:
        """Tokens a request may take."""
        return self.n_ctx or min(trained or _DEFAULT_LENGTH, _DEFAULT_LENGTH)

    def identity(self) -> dict[str, str]:
        """The arguments that change answers, as far as they differ from what is usual; threads, slots and the cache do
        not, seen bit for bit."""
        facts: dict[str, Any] = {
            "seed": self.seed,
            "max_gen_toks": self.max_gen_toks,
            "flash_attn": self.flash_attn,
            "n_gpu_layers": self.n_gpu_layers,
        }
        if self.add_bos_token is not None:
            facts["add_bos_token"] = self.add_bos_token
        if self.chat_template_args:
            facts["chat_template_args"] = json.dumps(dict(self.chat_template_args), sort_keys=True)
        if self.think_end_token:
            facts["think_end_token"] = self.think_end_token
        return {name: str(value) for name, value in facts.items()}

    def sampling(self, request: Generate) -> dict[str, Any]:
        """llama.cpp's settings for a request: greedy, or drawn with a seed of its own for each prompt and repeat."""
        settings = request.settings
        penalties = _penalties(settings.values)
        if settings.temperature <= 0:
            return {
                **penalties,
                "temperature": 0.0,
                "samplers": [*_penalised(penalties), "top_k"],
                "top_k": 1,
            }
        seed = self.seed if settings.seed is None else settings.seed
        own = hashlib.sha256(digest_text(str(seed), request.prompt.digest, str(request.repeat)).encode())
        order = [*_penalised(penalties), "temperature", "top_k", "top_p", "min_p"]
        return {
            **penalties,
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": float(settings.values.get("min_p") or 0.0),
            "samplers": order,
            "seed": int.from_bytes(own.digest()[:4], "big") % 0xFFFFFFFF,  # the largest means: at random
        }


def _penalties(values: Mapping[str, Any]) -> dict[str, float]:
    """Penalties under the names of transformers and the OpenAI API."""
    names = {
        "repetition_penalty": "repeat_penalty",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
    }
    found = {own: float(values[name]) for name, own in names.items() if values.get(name) is not None}
    return {**found, "repeat_last_n": -1} if found else {}


def _penalised(penalties: Mapping[str, float]) -> list[str]:
    return ["penalties"] if penalties else []


def default_threads() -> int:
    """Half of the processors this process may use: those that are two halves of one core gain nothing, and on a small
    busy machine each thread waits for the slowest."""
    try:
        own = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        own = os.cpu_count() or 1
    return max(1, own // 2)


def _read(name: str, value: Any) -> Any:
    if name == "slots" and value == "auto":
        return _SLOTS_OF_AUTO
    if name in _NUMBERS:
        try:
            return int(value)
        except (TypeError, ValueError):
            raise InvalidOption(
                f"`{name}` must be a whole number, got {value!r}", where="--model_args"
            ) from None
    if name in _SWITCHES:
        return _switch(name, value)
    return _mapping(value) if name == "chat_template_args" else str(value)


def _switch(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return bool(parse_bool(str(value)))
    except InvalidOption:
        raise InvalidOption(f"`{name}` must be true or false, got {value!r}", where="--model_args") from None


def _mapping(value: Any) -> dict[str, Any]:
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
