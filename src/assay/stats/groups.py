"""The score of a group of tasks, from the scores of its tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.stats.distributions import t_quantile
from assay.stats.intervals import Interval
from assay.stats.sums import left_sum

__all__ = ["Part", "pool", "stratified_interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task, or the whole group, reports under one metric."""

    value: float
    stderr: float | None
    size: int
    """Documents of the task."""

    interval: tuple[float, float] | None = None
    """Its own 95 % interval, where there is one."""


def pool(parts: Sequence[Part], *, weight_by_size: bool = True, pooled_error: bool | None = None) -> Part:
    """One number for several tasks.

    `weight_by_size` counts every document alike, otherwise every task. The standard error belongs to the mean
    that is taken: the pooled one for documents, that of k independent means for tasks. Before 0.4.13
    lm-evaluation-harness gave the pooled one in both cases, as `pooled_error=True` does.

    >>> pool([Part(value=1.0, stderr=None, size=3), Part(value=0.0, stderr=None, size=1)]).value
    0.75
    """
    if not parts:
        raise AssayError("no task of the group reports this metric, so there is nothing to pool")
    weights = [part.size if weight_by_size else 1 for part in parts]
    value = left_sum([part.value * weight for part, weight in zip(parts, weights, strict=True)]) / sum(
        weights
    )
    pooled = weight_by_size if pooled_error is None else pooled_error
    return Part(
        value=value,
        stderr=_pooled_error(parts) if pooled else _error_of_means(parts),
        size=sum(part.size for part in parts),
    )


def _pooled_error(parts: Sequence[Part]) -> float | None:
    """From the pooled variance of all documents; None when a task has no standard error."""
    size = sum(part.size for part in parts)
    if size <= len(parts):
        return None
    terms = []
    for part in parts:
        if part.stderr is None:
            return None
        terms.append((part.size - 1) * part.stderr**2 * part.size)
    return math.sqrt(left_sum(terms) / (size - len(parts)) / size)


def _error_of_means(parts: Sequence[Part]) -> float | None:
    """Of the plain mean of independent means; None when a task has no standard error."""
    squares = []
    for part in parts:
        if part.stderr is None:
            return None
        squares.append(part.stderr**2)
    return math.sqrt(left_sum(squares)) / len(parts)


def stratified_interval(parts: Sequence[Part], *, weight_by_size: bool = True) -> Interval | None:
    """The 95 % interval of a group's mean, its tasks being strata: each contributes its own uncertainty, weighted as its
    mean is, and the uncertainties add up as independent ones do.

    `weight_by_size` gives the micro mean (every document alike), otherwise the macro mean (every task alike). How unsure
    a task is, is the wider of half its own interval (which knows of clusters, and that a score of 1 is not certain) and
    Student's t times its standard error. None when a task has neither.

    >>> parts = [Part(value=1.0, stderr=0.1, size=30), Part(value=0.0, stderr=0.1, size=10)]
    >>> round(stratified_interval(parts, weight_by_size=False).half_width, 4)
    0.1525
    """
    size = sum(part.size for part in parts)
    value, squares, lowest, highest = 0.0, 0.0, 0.0, 0.0
    for part in parts:
        half = _half_width(part)
        if half is None or not size:
            return None
        share = part.size / size if weight_by_size else 1 / len(parts)
        low, high = part.interval or (part.value - half, part.value + half)
        value += share * part.value
        squares += (share * half) ** 2
        lowest += share * low
        highest += share * high
    reach = math.sqrt(squares)
    low, high = max(value - reach, lowest), min(value + reach, highest)
    return Interval(low=low, high=high, method="stratified")


def _half_width(part: Part) -> float | None:
    known = part.stderr is not None and part.size > 1
    by_error = t_quantile(0.975, part.size - 1) * (part.stderr or 0.0) if known else None
    if part.interval is None:
        return by_error
    return max((part.interval[1] - part.interval[0]) / 2, by_error or 0.0)
