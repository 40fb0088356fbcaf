"""What a judge is given, and what it may say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from assay.core.messages import Media

__all__ = ["InvalidReply", "Judge", "JudgeInput", "JudgeVerdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeInput:
    """One answer to be judged."""

    question: str
    response: str
    """The model's answer, after the filters."""

    reference: str = ""
    """What the task holds to be right, or, for a comparison, what the answer is compared with."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """The document, for templates that name its columns (`doc.column`)."""

    media: tuple[Media, ...] = ()
    """What the model saw beside the text, where the judge is to see it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVerdict:
    """What one judge holds of one case."""

    label: str
    """The ruling in a word: `correct`, `B`, `7`. Judges agree when their labels do."""

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by name: the criteria of a rubric, whether both orders agreed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidReply:
    """A reply that is no ruling, and why. It never becomes a number."""

    why: str


class Judge(Protocol):
    """A kind of judge, made of the keys its `judge:` entry gives it."""

    parts: tuple[str, ...]
    """Names of the further numbers its rulings have."""

    variables: ClassVar[frozenset[str]]
    """What its prompt template may name beside `doc`."""

    combines: ClassVar[str]
    """What several judges make of it unless told otherwise: `mean` or `majority`."""

    def prompts(self, case: JudgeInput) -> Sequence[str]:
        """What is asked about a case: one text, or one for each order of two answers."""
        ...

    def rule(self, replies: Sequence[str]) -> JudgeVerdict | InvalidReply:
        """What the replies amount to, one for each prompt."""
        ...

    def undecided(self, rulings: Sequence[JudgeVerdict]) -> JudgeVerdict | None:
        """The ruling of judges that are split evenly; None when that is no ruling."""
        ...
