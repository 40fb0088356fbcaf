"""Group scores from the scores of the tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.stats.confidence_intervals import Interval
from assay.stats.distributions import t_quantile
from assay.stats.exact_summation import sum_left_to_right

__all__ = ["GroupPart", "compute_stratified_interval", "pool_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """The result of one task, or of the whole group, in one metric."""

    value: float
    stderr: float | None
    size: int
    """Number of documents."""

    interval: tuple[float, float] | None = None
    """Its 95 % confidence interval, if there is one."""


def pool_parts(
    parts: Sequence[GroupPart], *, weight_by_size: bool = True, pooled_error: bool | None = None
) -> GroupPart:
    """Combine the results of several tasks.

    With `weight_by_size` every document has the same weight, else every task. The standard error matches that mean:
    pooled for documents, that of k independent means for tasks. Before 0.4.13, lm-eval used the pooled one in both
    cases, as `pooled_error=True` does.

    >>> pool_parts([GroupPart(value=1.0, stderr=None, size=3), GroupPart(value=0.0, stderr=None, size=1)]).value
    0.75
    """
    if not parts:
        raise AssayError("no task of the group reports this metric, so there is nothing to pool")
    weights = [part.size if weight_by_size else 1 for part in parts]
    value = sum_left_to_right(
        [part.value * weight for part, weight in zip(parts, weights, strict=True)]
    ) / sum(weights)
    pooled = weight_by_size if pooled_error is None else pooled_error
    return GroupPart(
        value=value,
        stderr=_compute_pooled_error(parts) if pooled else _compute_error_of_means(parts),
        size=sum(part.size for part in parts),
    )


def _compute_pooled_error(parts: Sequence[GroupPart]) -> float | None:
    """Return the standard error from the pooled variance; None if a task has no standard error."""
    size = sum(part.size for part in parts)
    if size <= len(parts):
        return None
    terms = []
    for part in parts:
        if part.stderr is None:
            return None
        terms.append((part.size - 1) * part.stderr**2 * part.size)
    return math.sqrt(sum_left_to_right(terms) / (size - len(parts)) / size)


def _compute_error_of_means(parts: Sequence[GroupPart]) -> float | None:
    """Return the standard error of the mean of independent means; None if a task has no standard error."""
    squares = []
    for part in parts:
        if part.stderr is None:
            return None
        squares.append(part.stderr**2)
    return math.sqrt(sum_left_to_right(squares)) / len(parts)


def compute_stratified_interval(
    parts: Sequence[GroupPart], *, weight_by_size: bool = True
) -> Interval | None:
    """Return the 95 % interval of a group mean, with tasks as strata whose uncertainties are independent.

    `weight_by_size` gives the micro mean (weighted by documents), else the macro mean (weighted by tasks). The half width
    of a task is the larger of half its own interval (which accounts for clusters and for scores of 1) and Student's t
    times its standard error. None if a task has neither.

    >>> parts = [GroupPart(value=1.0, stderr=0.1, size=30), GroupPart(value=0.0, stderr=0.1, size=10)]
    >>> round(compute_stratified_interval(parts, weight_by_size=False).half_width, 4)
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


def _half_width(part: GroupPart) -> float | None:
    known = part.stderr is not None and part.size > 1
    by_error = t_quantile(0.975, part.size - 1) * (part.stderr or 0.0) if known else None
    if part.interval is None:
        return by_error
    return max((part.interval[1] - part.interval[0]) / 2, by_error or 0.0)
