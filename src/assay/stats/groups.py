"""Group scores from the scores of the tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import Interval, wilson_interval
from assay.stats.numerics.distributions import t_quantile
from assay.stats.numerics.exact_summation import sum_left_to_right

__all__ = ["GroupPart", "compute_stratified_interval", "pool_parts"]

_PRIOR_DOCUMENTS = 4
_MAX_ADJUSTED_RATIO = 4.0
"""An adjustment for skewness makes one side at most this many times as long as the other. Equal scores near a limit have a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """The result of one task, or of the whole group, in one metric."""

    value: float
    stderr: float | None
    size: int
    """Number of documents."""

    interval: tuple[float, float] | None = None
    """Its confidence interval, if there is one."""

    method: str = ""
    """Method of the interval."""

    units: int | None = None
    """Number of independent documents or clusters behind the interval; None: `size`."""


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
    parts: Sequence[GroupPart], *, weight_by_size: bool = True, level: float = 0.95
) -> Interval | None:
    """Return the interval of a group mean, with tasks as strata whose uncertainties are independent; None if a task has
    neither an interval nor a standard error.

    `weight_by_size` gives the micro mean (weighted by documents), else the macro mean (weighted by tasks). If all scores
    are 0 or 1, it is a Wilson interval with the effective number of documents. Otherwise the distances between the tasks'
    values and their limits are combined (MOVER, Zou and Donner 2008), with Satterthwaite's degrees of freedom. The skewness of
    tasks with intervals that are adjusted for it is combined, too.

    >>> parts = [GroupPart(value=1.0, stderr=0.1, size=30), GroupPart(value=0.0, stderr=0.1, size=10)]
    >>> round(compute_stratified_interval(parts, weight_by_size=False).half_width, 4)
    0.145
    """
    size = sum(part.size for part in parts)
    if not size:
        return None
    weights = [part.size / size if weight_by_size else 1 / len(parts) for part in parts]
    if all(part.interval is not None and part.method == "wilson" for part in parts):
        return _compute_stratified_wilson(parts, weights, level)
    sides = [_find_sides(part, level) for part in parts]
    known = [side for side in sides if side is not None]
    if len(known) < len(parts):
        return None
    value = math.fsum(weight * part.value for part, weight in zip(parts, weights, strict=True))
    scale = _compute_quantile_ratios(known, weights, level)
    pairs = [
        (weight * side[0] * by, weight * side[1] * by)
        for side, weight, by in zip(known, weights, scale, strict=True)
    ]
    adjusted = all(
        part.method == "adjusted t" and max(side[:2]) <= _MAX_ADJUSTED_RATIO * min(side[:2])
        for part, side in zip(parts, known, strict=True)
    )
    low, high = _combine_adjusted_sides(pairs) if adjusted else _combine_sides(pairs)
    widest = [
        math.fsum(weight * side[end] for side, weight in zip(known, weights, strict=True)) for end in (0, 1)
    ]
    clustered = any("clustered" in part.method for part in parts)
    return Interval(
        low=value - min(low, widest[0]),
        high=value + min(high, widest[1]),
        method="stratified, clustered" if clustered else "stratified",
        level=level,
    )


def _combine_sides(sides: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Combine the weighted distances to the limits of each task (MOVER): both sides on their own."""
    below, above = (math.sqrt(math.fsum(side[end] ** 2 for side in sides)) for end in (0, 1))
    return below, above


def _combine_adjusted_sides(sides: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Combine the sides of intervals that are adjusted for skewness; the sides of a single task stay as they are.

    The variances of tasks add up, and so do their third moments: tasks that are skewed in opposite directions make a group
    that is hardly skewed, and the skewness of equal tasks decreases with their number. The half width of a task without its
    adjustment is the harmonic mean of its sides; half the difference of its sides is proportional to its third moment divided
    by its variance.
    """
    halves = [2 * below * above / (below + above) if below + above > 0 else 0.0 for below, above in sides]
    square = math.fsum(half * half for half in halves)
    if not square:
        return _combine_sides(sides)
    shift = (
        math.fsum(half * half * (above - below) for half, (below, above) in zip(halves, sides, strict=True))
        / square
        / 2
    )
    middle = (math.sqrt(square) + math.sqrt(square + 4 * shift * shift)) / 2
    return middle - shift, middle + shift


def _compute_stratified_wilson(
    parts: Sequence[GroupPart], weights: Sequence[float], level: float
) -> Interval:
    """Return the Wilson interval with the number of documents that would give the same variance in one task.

    The share of each task is shrunk to that of the group by the weight of four documents: a task with few documents, or with
    none wrong, does not show its own variance.
    """
    sizes = [part.units or part.size for part in parts]
    value = math.fsum(weight * part.value for part, weight in zip(parts, weights, strict=True))
    total = sum(sizes)
    centre = (value * total + _PRIOR_DOCUMENTS / 2) / (total + _PRIOR_DOCUMENTS)
    shares = [
        (part.value * size + _PRIOR_DOCUMENTS * centre) / (size + _PRIOR_DOCUMENTS)
        for part, size in zip(parts, sizes, strict=True)
    ]
    variance = math.fsum(
        weight**2 * share * (1 - share) / size
        for weight, share, size in zip(weights, shares, sizes, strict=True)
    )
    middle = math.fsum(weight * share for weight, share in zip(weights, shares, strict=True))
    effective = middle * (1 - middle) / variance
    found = wilson_interval(min(max(value, 0.0), 1.0) * effective, effective, level=level)
    return replace(found, method="stratified")


def _find_sides(part: GroupPart, level: float) -> tuple[float, float, float] | None:
    """Return the distances of a task's value from its limits and the degrees of freedom; None if unknown."""
    units = part.units or part.size
    degrees = math.inf if part.method == "wilson" else units - 1.0
    if part.interval is not None:
        return part.value - part.interval[0], part.interval[1] - part.value, max(degrees, 1.0)
    if part.stderr is None or units < 2:
        return None
    half = t_quantile((1 + level) / 2, degrees) * part.stderr
    return half, half, degrees


def _compute_quantile_ratios(
    sides: Sequence[tuple[float, float, float]], weights: Sequence[float], level: float
) -> list[float]:
    """Return the quantile of the whole group divided by that of each task."""
    quantiles = [t_quantile((1 + level) / 2, degrees) for *_, degrees in sides]
    variances = [
        (weight * (below + above) / 2 / quantile) ** 2
        for (below, above, _), weight, quantile in zip(sides, weights, quantiles, strict=True)
    ]
    uncertain = math.fsum(one**2 / degrees for one, (*_, degrees) in zip(variances, sides, strict=True))
    whole = t_quantile((1 + level) / 2, math.fsum(variances) ** 2 / uncertain if uncertain > 0 else math.inf)
    return [whole / quantile for quantile in quantiles]
