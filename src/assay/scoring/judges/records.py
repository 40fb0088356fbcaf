"""The records of LLM judges: the input of a judge, its verdict, and the `Judge` protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from assay.core.records.messages import Media

__all__ = ["InvalidReply", "Judge", "JudgeInput", "JudgeVerdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeInput:
    """One answer to judge."""

    question: str
    response: str
    """The model's answer, after the filters."""

    reference: str = ""
    """The reference answer, or, for a comparison, the other answer."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """The document, for templates that use its columns (`doc.column`)."""

    media: tuple[Media, ...] = ()
    """The media of the prompt, if the judge gets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVerdict:
    """The verdict of one judge on one answer."""

    label: str
    """The verdict in one word: `correct`, `B`, `7`. Judges agree if their labels are equal."""

    value: float | None
    """The score. None: the reply is valid but decides nothing, for the reason `why`."""

    parts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by name: the criteria of a rubric, or whether both orders agree."""

    why: str = ""
    """Why there is no score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidReply:
    """A reply without a valid verdict, and the reason. It never becomes a number."""

    why: str


class Judge(Protocol):
    """A kind of judge, created with the keys of the `judge:` entry."""

    parts: tuple[str, ...]
    """The names of the further numbers of its verdicts."""

    variables: ClassVar[frozenset[str]]
    """The variables of its prompt template, in addition to `doc`."""

    default_combine: ClassVar[str]
    """How verdicts of several judges are combined by default: `mean` or `majority`."""

    def build_prompts(self, judge_input: JudgeInput) -> Sequence[str]:
        """Build the prompts for an answer: one, or one for each order of two answers."""
        ...

    def parse_replies(self, replies: Sequence[str]) -> JudgeVerdict | InvalidReply:
        """Parse the replies, one for each prompt."""
        ...

    def resolve_tie(self, verdicts: Sequence[JudgeVerdict]) -> JudgeVerdict | None:
        """Return the verdict of an evenly split panel, or None if there is none."""
        ...
