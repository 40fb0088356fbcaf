"""What is asked of a model. Three kinds, told apart by class: `match`, not strings.

A request is named by its content (`id`): the exact prompt, continuation, settings and repeat number.
Together with the model's identity that name becomes the fingerprint under which a response is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from assay.core.fingerprints import digest_of, digest_words
from assay.core.messages import Prompt
from assay.core.quick_records import quickly_made

__all__ = ["Generate", "Likelihood", "Request", "RollingLikelihood", "Settings", "fingerprint"]

_name = object.__setattr__
_LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to generate: the task's `generation_kwargs`, kept as written, with typed readings.

    >>> Settings({"until": "\\n", "max_new_tokens": 5, "do_sample": False}).stop
    ('\\n',)
    """

    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    _digest: str = field(default="", init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Hash of every setting; computed once."""
        if not self._digest:
            _name(self, "_digest", digest_of(dict(self.values)))
        return self._digest

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end the answer; they are not part of it."""
        until = self.values.get("until", self.values.get("stop", ()))
        if until is None:
            return ()
        return (until,) if isinstance(until, str) else tuple(until)

    @property
    def max_tokens(self) -> int | None:
        """The length limit in tokens, under whichever of its names it was given."""
        for key in _LENGTH_KEYS:
            if self.values.get(key) is not None:
                return int(self.values[key])
        return None

    @property
    def temperature(self) -> float:
        """0 means greedy. `do_sample: false` means 0 whatever else is said."""
        value = self.values.get("temperature")
        if self.values.get("do_sample") is False:
            return 0.0
        if value is None:
            return 1.0 if self.values.get("do_sample") else 0.0
        return float(value)

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
class _Asked:
    """What every request says of itself."""

    task: str
    document: int
    """Position of the document in its task: lm-eval's `doc_id`."""

    index: int = 0
    """Which of the document's requests this is: the number of the choice, for instance."""

    repeat: int = 0
    """Which of the repeats of one prompt this is; part of the identity, so sampled runs resume too."""

    prompt: Prompt
    id: str = field(init=False, repr=False, compare=False)
    """What the request is named by: a hash of its exact content."""

    def __post_init__(self) -> None:
        _name(self, "id", digest_words(self._words()))

    def _words(self) -> str:
        """The words a kind of request is named by, as a tuple of them is written: this is made for every request."""
        return "()"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(_Asked):
    """Write an answer."""

    settings: Settings
    round: int = 0
    """Which turn of a dialogue this is, from 0. Part of the identity: the same question asked again in a later
    turn is another draw, as repeats are."""

    def _words(self) -> str:
        turn = f", 'round {self.round}'" if self.round else ""
        return f"('generate', '{self.prompt.digest}', '{self.settings.digest}', '{self.repeat}'{turn})"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihood(_Asked):
    """How likely is this continuation, and is it what the model would write greedily?"""

    continuation: str

    def _words(self) -> str:
        return f"('likelihood', '{self.prompt.digest}', {self.continuation!a}, '{self.repeat}')"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class RollingLikelihood(_Asked):
    """How likely is the whole text of the prompt, every token of it?"""

    def _words(self) -> str:
        return f"('rolling', '{self.prompt.digest}', '{self.repeat}')"


Request = Generate | Likelihood | RollingLikelihood


def fingerprint(model_digest: str, request_id: str) -> str:
    """The name under which a response is kept: who was asked, and exactly what.

    >>> fingerprint("ab" * 16, "cd" * 16)
    'ababababababababcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd'
    """
    return model_digest[:16] + request_id
