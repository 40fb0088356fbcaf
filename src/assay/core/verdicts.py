"""How answers were judged. No NaN, no None, no silent 0: a document without a score says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.quick_records import quickly_made

__all__ = ["Answer", "Estimate", "Evidence", "Repeated", "Score", "Unscored", "Verdict"]


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one filter pipeline made of a document's responses: one value per request, in order."""

    document: int
    pipeline: str
    values: tuple[Any, ...]
    steps: tuple[tuple[Any, ...], ...] = ()
    """What each filter made of them, where one of them is the task's own code: nobody runs that again to show it."""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One metric's number for one document."""

    document: int
    metric: str
    pipeline: str
    value: float
    why: str = ""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a corpus metric needs of one document: a (gold, prediction) pair, a (log-probability, words) pair."""

    document: int
    metric: str
    pipeline: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """The metric could not judge this document: counted, never averaged."""

    document: int
    metric: str
    pipeline: str
    why: str


Verdict = Score | Evidence | Unscored


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What several answers to one document are worth, each judged as if it had been the only one."""

    document: int
    pipeline: str
    answers: tuple[int, ...]
    """Which of them are the same: numbers in the order in which each was first given."""

    scores: Mapping[str, tuple[float, ...]]
    """Of each metric that gives numbers, one per answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A metric over a task or group: the number, how sure it is, and out of how many."""

    task: str
    metric: str
    pipeline: str
    value: Any
    """A number; a few foreign aggregations return dictionaries, which are kept as breakdowns."""

    stderr: float | None = None
    """None when no method is known: never a made-up 0."""

    method: str = ""
    """How the standard error was computed: `mean`, `bootstrap`, `pooled`."""

    interval: tuple[float, float] | None = None
    """Where the value would be, 19 times in 20, were the documents drawn anew; None where no method is known."""

    interval_method: str = ""
    """How it was computed: `wilson`, `t`, `clustered`, `stratified`."""

    plain_stderr: float | None = None
    """Of the mean of the documents' scores as if they were independent, for a task whose numbers are summed up by a
    function of its own: not on the scale of `value` where that function changes it."""

    clustered_stderr: float | None = None
    """The same with documents of one cluster (`cluster_key`) taken as alike."""

    why: str = ""
    """Why there is no value, where there is none."""

    bounds: tuple[float, float] | None = None
    """What the value would be if every document in doubt were wrong, or right; None where few are in doubt."""

    scored: int = 0
    unscored: int = 0
    failed: int = 0
    higher_is_better: bool | None = None
