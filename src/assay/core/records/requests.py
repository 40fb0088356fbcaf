"""Requests to a model: one class per kind.

The `id` of a request is a hash of its content: the exact prompt, continuation, settings and repeat number. The id and
the identity of the model form the fingerprint under which a response is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from assay.core.fingerprints import digest_ascii_tuple, digest_json
from assay.core.records.messages import Prompt
from assay.core.records.tools import ResponseFormat, Tools

__all__ = [
    "REASONING_KEYS",
    "Generate",
    "Likelihood",
    "Request",
    "RollingLikelihood",
    "Settings",
    "compute_fingerprint",
]

_set_frozen = object.__setattr__
REASONING_KEYS = ("reasoning_effort", "thinking_budget", "include_reasoning")
"""Settings of reasoning, which each adapter translates for its service."""

_LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class Settings:
    """Generation settings: the `generation_kwargs` of the task as written, with typed properties.

    >>> Settings({"until": "\\n", "max_new_tokens": 5, "do_sample": False}).stop
    ('\\n',)
    """

    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    _digest: str = field(default="", init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Hash of all settings. Computed once."""
        if not self._digest:
            _set_frozen(self, "_digest", digest_json(dict(self.values)))
        return self._digest

    @property
    def stop(self) -> tuple[str, ...]:
        """Stop strings. They are not part of the response."""
        until = self.values.get("until", self.values.get("stop", ()))
        if until is None:
            return ()
        return (until,) if isinstance(until, str) else tuple(text for text in until if text is not None)

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of generated tokens, under any of its usual keys."""
        for key in _LENGTH_KEYS:
            if self.values.get(key) is not None:
                return int(self.values[key])
        return None

    @property
    def temperature(self) -> float:
        """Sampling temperature; 0 is greedy. `do_sample: false` takes precedence and means 0."""
        value = self.values.get("temperature")
        if self.values.get("do_sample") is False:
            return 0.0
        if value is None:
            return 1.0 if self.values.get("do_sample") else 0.0
        return float(value)

    @property
    def reasoning_effort(self) -> str:
        """How much to reason, as services name it: `low`, `medium`, `high`, …; empty: the default of the model."""
        return str(self.values.get("reasoning_effort") or "")

    @property
    def thinking_budget(self) -> int | None:
        """The maximum number of reasoning tokens, in addition to those of the answer; None: no limit of its own."""
        value = self.values.get("thinking_budget")
        return None if value is None else int(value)

    @property
    def include_reasoning(self) -> bool:
        """Whether a service is asked to return the reasoning."""
        return self.values.get("include_reasoning") is not False

    @property
    def top_p(self) -> float:
        value = self.values.get("top_p")
        return 1.0 if value is None else float(value)

    @property
    def top_k(self) -> int:
        """0 means no limit."""
        value = self.values.get("top_k")
        return 0 if value is None else int(value)

    @property
    def seed(self) -> int | None:
        value = self.values.get("seed")
        return None if value is None else int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestBase:
    """Fields that all requests have."""

    task: str
    document: int
    """Index of the document in its task: the `doc_id` of lm-eval."""

    index: int = 0
    """Index among the requests of the document, for instance the number of the choice."""

    repeat: int = 0
    """Index among the repeats of one prompt. It is part of the id, so that sampled runs can be resumed."""

    prompt: Prompt
    id: str = field(init=False, repr=False, compare=False)
    """Hash of the exact content."""

    def __post_init__(self) -> None:
        _set_frozen(self, "id", digest_ascii_tuple(self._identity_text()))

    def _identity_text(self) -> str:
        """Return the text that is hashed into `id`: a tuple in the form `ascii()` writes it."""
        return "()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(_RequestBase):
    """Generate text."""

    settings: Settings
    round: int = 0
    """Round of a dialogue, from 0. It is part of the id: the same prompt in a later round is a new sample, like a
    repeat."""

    tools: Tools | None = None
    """The tools that the model may call. They are part of the id only if there are any."""

    response_format: ResponseFormat | None = None
    """The format that the answer must have. It is part of the id only if it is set."""

    @property
    def native_tools(self) -> Tools | None:
        """The tools that the model gets in its own format; None if there are none, or if the prompt describes them."""
        tools = self.tools
        return None if tools is None or tools.syntax else tools

    def _identity_text(self) -> str:
        turn = f", 'round {self.round}'" if self.round else ""
        if self.tools is not None:
            turn += f", 'tools {self.tools.digest}'"
        if self.response_format is not None:
            turn += f", 'format {self.response_format.digest}'"
        return f"('generate', '{self.prompt.digest}', '{self.settings.digest}', '{self.repeat}'{turn})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihood(_RequestBase):
    """Compute the log probability of a continuation, and whether greedy decoding would generate it."""

    continuation: str

    def _identity_text(self) -> str:
        return f"('likelihood', '{self.prompt.digest}', {self.continuation!a}, '{self.repeat}')"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingLikelihood(_RequestBase):
    """Compute the log probability of the whole prompt text."""

    def _identity_text(self) -> str:
        return f"('rolling', '{self.prompt.digest}', '{self.repeat}')"


Request = Generate | Likelihood | RollingLikelihood


def compute_fingerprint(model_digest: str, request_id: str) -> str:
    """Return the key of a stored response: the identity of the model and the id of the request.

    >>> compute_fingerprint("ab" * 16, "cd" * 16)
    'ababababababababcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd'
    """
    return model_digest[:16] + request_id
