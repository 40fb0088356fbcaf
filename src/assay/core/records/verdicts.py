"""Answers, verdicts and estimates. A document without a score has a reason instead of NaN, None or 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Estimate", "Evidence", "RepeatScores", "Score", "Unscored", "Verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The output of one filter pipeline for the responses of a document: one value per request, in order."""

    document: int
    pipeline: str
    values: tuple[Any, ...]
    steps: tuple[tuple[Any, ...], ...] = ()
    """The output of each filter. Stored only if a filter is task code, which is not run again for display."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score of one document in one metric."""

    document: int
    metric: str
    pipeline: str
    value: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The input of a corpus metric from one document: a (gold, prediction) or (log probability, words) pair."""

    document: int
    metric: str
    pipeline: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """The metric could not score this document. It is counted, but not averaged."""

    document: int
    metric: str
    pipeline: str
    why: str


Verdict = Score | Evidence | Unscored


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatScores:
    """Scores of the repeated answers to one document, each scored on its own."""

    document: int
    pipeline: str
    answers: tuple[int, ...]
    """A number per answer, in order of first appearance; equal answers have the same number."""

    scores: Mapping[str, tuple[float, ...]]
    """One score per answer, by metric."""

    judge_samples: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    """The scores of each sample of the judges per answer, by metric, if there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The value of a metric over a task or group, with its uncertainty and the number of documents."""

    task: str
    metric: str
    pipeline: str
    value: Any
    """A number. Some aggregations of other harnesses return dictionaries, which are stored as breakdowns."""

    stderr: float | None = None
    """Standard error; None if there is no method to compute it."""

    method: str = ""
    """Method of the standard error: `mean`, `bootstrap`, `pooled`."""

    interval: tuple[float, float] | None = None
    """95 % confidence interval; None if there is no method to compute it."""

    interval_method: str = ""
    """Method of the interval, such as `wilson`, `adjusted t`, `clustered`, `stratified`."""

    clusters: int | None = None
    """Number of clusters if the interval is clustered by `cluster_key`."""

    plain_stderr: float | None = None
    """Standard error of the mean document score, with documents taken as independent, for tasks with their own
    aggregation function. Its scale differs from `value` if that function rescales."""

    clustered_stderr: float | None = None
    """The same, clustered by `cluster_key`."""

    why: str = ""
    """The reason if there is no value."""

    bounds: tuple[float, float] | None = None
    """The value if every document with another ending than `scored` were wrong, or right; None if these are few."""

    population: int | None = None
    """Number of documents of the task if the scored ones are a weighted subset of them."""

    scored: int = 0
    unscored: int = 0
    failed: int = 0
    higher_is_better: bool | None = None
