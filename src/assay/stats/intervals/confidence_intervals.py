"""Confidence intervals of means and ratios, for few, skewed and clustered documents.

The normal approximation (1.96 standard errors) needs many independent documents. These intervals also fit few documents
(Wilson for scores of 0 and 1), clustered documents, and skewed scores (Student's t with a longer side where the scores are
skewed). See Miller, "Adding Error Bars to Evals" (arXiv 2411.00640) and Bowyer et al., "Position: Don't Use the CLT in LLM
Evals With Fewer Than a Few Hundred Datapoints" (arXiv 2503.01747). `benchmarks/COVERAGE.md` shows how often each interval
contains the true value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.numerics.distributions import t_quantile

__all__ = [
    "Clusters",
    "Interval",
    "Limits",
    "RatioEstimate",
    "clustered_interval",
    "compute_corrected_cluster_error",
    "compute_design_effect",
    "encode_clusters",
    "estimate_ratio",
    "guess_limits",
    "is_binary",
    "mean_interval",
    "ratio_interval",
    "sum_by_cluster",
    "t_interval",
    "wilson_interval",
]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Clusters = Sequence[Any] | NDArray[Any]
"""The cluster of each document: names or integer codes."""

Limits = tuple[float, float]
"""The smallest and the largest possible score; infinite if there is none."""

_SKEWNESS_CORRECTION = 10.0
_ONE_SIDED_SKEWNESS_CORRECTION = 650.0
"""A sample of n underestimates the skewness; it is multiplied by 1 + correction / n. Few scores with a limit on one side only
(losses, lengths, durations) can be far more skewed than they show; they are multiplied by 1 + correction / n²."""

_MIN_UNITS_TO_SHORTEN = 10
"""From this number of units on, the side away from the tail is shorter than that of Student's t, by up to half as much as the
sample's skewness suggests."""

_MIN_SKEWNESS_TO_EXTEND = 1.5
"""The skewness of scores of 0 and 1 with a mean of 0.2 or 0.8."""

_MAX_STRETCH = 2.5
"""The long side of a skewness-adjusted interval is at most this many times that of Student's t."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval and its method."""

    low: float
    high: float
    method: str
    level: float = 0.95

    @property
    def half_width(self) -> float:
        """Half the width: the number after ±."""
        return (self.high - self.low) / 2


def mean_interval(
    values: ArrayLike,
    clusters: Clusters | None = None,
    *,
    level: float = 0.95,
    limits: Limits | None = None,
) -> Interval:
    """Return the interval of a mean: clustered if there are clusters, Wilson for scores of 0 and 1, else Student's t
    adjusted for skewness. `limits` is the range of possible scores (default: `guess_limits`).

    >>> mean_interval([1, 1, 1, 1, 1]).method
    'wilson'
    >>> found = mean_interval([0.5] * 10)  # equal scores are not certain
    >>> round(found.low, 3), round(found.high, 3)
    (0.361, 0.639)

    Raises:
        AssayError: There are fewer than two documents or clusters, or equal scores without a known range.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if clusters is not None:
        codes, count = encode_clusters(clusters)
        if count < len(numbers):
            return clustered_interval(numbers, codes, level=level, limits=limits)
    if is_binary(numbers):
        return wilson_interval(int(numbers.sum()), len(numbers), level=level)
    return t_interval(numbers, level=level, limits=limits)


def guess_limits(values: Floats) -> Limits:
    """Return the range of possible scores, as far as some scores show it.

    >>> guess_limits(np.array([0.2, 0.9])), guess_limits(np.array([0.2, 1.9]))
    ((0.0, 1.0), (0.0, inf))
    """
    low, high = float(values.min()), float(values.max())
    if low >= 0:
        return (0.0, 1.0) if high <= 1 else (0.0, math.inf)
    return (-math.inf, 0.0) if high <= 0 else (-math.inf, math.inf)


def is_binary(values: Floats) -> bool:
    """Whether all values are 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())


def wilson_interval(
    successes: float, total: float, *, level: float = 0.95, degrees: float = math.inf
) -> Interval:
    """Return the Wilson score interval of a proportion, which is accurate for few documents and near 0 and 1.

    `degrees` are the degrees of freedom if `total` is an effective number of documents, estimated from clusters.

    >>> interval = wilson_interval(10, 10)
    >>> round(interval.low, 3), interval.high
    (0.722, 1.0)
    """
    if total <= 0:
        raise AssayError("a proportion of no documents has no interval")
    z = t_quantile((1 + level) / 2, degrees)
    share, spread = successes / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Interval(
        low=0.0 if successes == 0 else low,
        high=1.0 if successes == total else high,
        method="wilson",
        level=level,
    )


def t_interval(values: ArrayLike, *, level: float = 0.95, limits: Limits | None = None) -> Interval:
    """Return the Student t interval of the mean of independent values, adjusted for skewness."""
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < 2:
        raise AssayError("an interval needs at least two documents")
    return ratio_interval(
        numbers,
        np.ones(len(numbers)),
        level=level,
        limits=limits or guess_limits(numbers),
        method="adjusted t",
    )


def clustered_interval(
    values: ArrayLike, clusters: Clusters, *, level: float = 0.95, limits: Limits | None = None
) -> Interval:
    """Return the interval of the mean of clustered documents.

    The mean is the ratio of the clusters' sums to their sizes. Scores of 0 and 1 have a Wilson interval with the effective
    number of documents; others Student's t adjusted for skewness. The degrees of freedom account for clusters of
    different sizes.
    """
    numbers = np.asarray(values, dtype=np.float64)
    codes, count = encode_clusters(clusters)
    if count < 2:
        raise AssayError("an interval needs at least two clusters")
    sums = sum_by_cluster(numbers, codes, count)
    sizes = sum_by_cluster(np.ones(len(numbers)), codes, count)
    if is_binary(numbers):
        return _clustered_share_interval(estimate_ratio(sums, sizes), len(numbers), level)
    return ratio_interval(
        sums, sizes, level=level, limits=limits or guess_limits(numbers), method="clustered"
    )


def _clustered_share_interval(found: RatioEstimate, documents: int, level: float) -> Interval:
    """Return the Wilson interval with the effective number of documents, extended to Student's t adjusted for skewness.

    Near 0 and 1, the clusters in a sample may not show how much clusters vary, and the second one can be wider. Its
    skewness is at most that of scores of 0 and 1 with this mean.
    """
    share, total = found.value, float(found.units)
    if found.error > 0:
        total = max(1.0, min(float(documents), share * (1 - share) / found.error**2))
    few = wilson_interval(share * total, total, level=level, degrees=found.degrees)
    low, high = few.low, few.high
    natural = (1 - 2 * share) / math.sqrt(share * (1 - share)) if found.error > 0 else 0.0
    if abs(natural) > _MIN_SKEWNESS_TO_EXTEND and found.skewness * natural > 0:
        skewness = math.copysign(min(abs(found.skewness), abs(natural)), natural)
        below, above = _compute_sides(replace(found, skewness=skewness), (0.0, 1.0), level)
        low, high = max(0.0, min(low, share - below)), min(1.0, max(high, share + above))
    lowest, highest = _bound_by_share(found, (0.0, 1.0), level)
    return Interval(low=max(low, lowest), high=min(high, highest), method="clustered", level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioEstimate:
    """The ratio of two sums over independent units (documents or clusters), with its standard error."""

    value: float
    error: float
    """Standard error without bias if some units are larger than others."""

    degrees: float
    """Degrees of freedom of `error`: fewer if some units are much larger than others."""

    plain_error: float
    """Standard error without this correction."""

    units: int
    skewness: float
    """Skewness of the units' contributions."""


def estimate_ratio(tops: Floats, bottoms: Floats) -> RatioEstimate:
    """Estimate the ratio of two sums by linearisation.

    The standard error has no bias, and its degrees of freedom are those of Bell and McCaffrey (2002), if all documents of a
    unit have the same score. With equal bottoms these are the usual standard error and n - 1.

    >>> found = estimate_ratio(np.array([1.0, 2.0, 3.0]), np.ones(3))
    >>> round(found.error, 4), round(found.degrees, 6)
    (0.5774, 2.0)
    """
    count, whole = len(tops), float(bottoms.sum())
    value = float(tops.sum()) / whole
    steps = tops - value * bottoms
    squares = float((steps * steps).sum())
    if not squares > 1e-24 * (float((tops * tops).sum()) or 1.0):  # rounding errors of equal scores
        return RatioEstimate(
            value=value, error=0.0, degrees=count - 1, plain_error=0.0, units=count, skewness=0.0
        )
    shares = bottoms / whole
    own = shares * shares  # the squares of the bottoms, in units of the whole
    total, cross, fourth = float(own.sum()), float((own * shares).sum()), float((own * own).sum())
    trace = total - 2 * cross + total * total
    fifth, sixth = float((own * own * shares).sum()), total * fourth
    second = fourth + 2 * (total * fourth - 2 * fifth) + 2 * (cross**2 + sixth)
    second += -4 * total * cross * total + total**4
    error = math.sqrt(squares * total / trace) / whole
    skewness = float((steps**3).mean()) / (squares / count) ** 1.5
    return RatioEstimate(
        value=value,
        error=error,
        degrees=min(count - 1.0, max(1.0, trace * trace / second)),
        plain_error=math.sqrt(squares * count / (count - 1)) / whole,
        units=count,
        skewness=skewness,
    )


def ratio_interval(
    tops: Floats, bottoms: Floats, *, level: float = 0.95, limits: Limits, method: str = "ratio, adjusted t"
) -> Interval:
    """Return the interval of the ratio of two sums over independent units: Student's t adjusted for skewness.

    Raises:
        AssayError: There are fewer than two units, or no variation and no known range.
    """
    if len(tops) < 2:
        raise AssayError("an interval needs at least two documents")
    found = estimate_ratio(tops, bottoms)
    low, high = limits
    if found.error == 0:
        if not math.isfinite(high - low):
            raise AssayError("equal scores without a known range have no interval")
        unseen = wilson_interval(0, found.units, level=level).high  # the share that other scores may have
        return Interval(
            low=found.value - unseen * (found.value - low),
            high=found.value + unseen * (high - found.value),
            method=method,
            level=level,
        )
    below, above = _compute_sides(found, limits, level)
    lowest, highest = _bound_by_share(found, limits, level)
    return Interval(
        low=max(lowest, found.value - below),
        high=min(highest, found.value + above),
        method=method,
        level=level,
    )


def _bound_by_share(found: RatioEstimate, limits: Limits, level: float) -> Limits:
    """Return the Wilson interval of scores that are all at one of two limits and have this mean; the limits if one is infinite.

    Of all scores between two limits, those at the limits vary most, so an interval never needs to be wider than theirs.
    """
    low, high = limits
    if not math.isfinite(high - low):
        return limits
    units = min(float(found.units), found.degrees + 1)
    widest = wilson_interval(units * (found.value - low) / (high - low), units, level=level)
    return low + (high - low) * widest.low, low + (high - low) * widest.high


def _compute_sides(found: RatioEstimate, limits: Limits, level: float) -> tuple[float, float]:
    """Return the lengths of both sides of the interval of a ratio.

    A small sample rarely contains values from the long tail of the scores. The side towards the tail is therefore longer, by the
    first term of the Cornish-Fisher expansion of the t statistic. The other side is shorter by at most half of it, and not at all
    in small samples, because their skewness is uncertain.
    A tail away from a limit is at most as skewed as scores at this distance from the limit can be. Units of different sizes
    also widen the interval, through fewer degrees of freedom; the larger of the two corrections applies, not both.
    """
    tail_limit, other_limit = limits if found.skewness > 0 else limits[::-1]
    skewness = abs(found.skewness)
    if math.isfinite(tail_limit):
        bounded = math.isfinite(other_limit)
        units = found.degrees + 1
        few = _SKEWNESS_CORRECTION if bounded else _ONE_SIDED_SKEWNESS_CORRECTION / units
        variation = found.plain_error * math.sqrt(found.units) / max(abs(found.value - tail_limit), 1e-300)
        skewness = min(skewness * (1 + few / units), 2 * variation + 8 * variation**3)
    elif not math.isfinite(other_limit):
        skewness *= 1 + _SKEWNESS_CORRECTION / found.units
    quantile = t_quantile((1 + level) / 2, found.units - 1)
    step = (1 + 2 * quantile * quantile) / math.sqrt(found.units) / 6
    plain = t_quantile((1 + level) / 2, found.degrees) * found.error
    longer = max(plain, min(quantile + skewness * step, _MAX_STRETCH * quantile) * found.plain_error)
    trust = max(0.0, 1 - _MIN_UNITS_TO_SHORTEN / found.units) / 2
    less = trust * min(skewness, abs(found.skewness)) * step
    short = max(plain / 2, plain - less * found.plain_error)
    return (short, longer) if found.skewness > 0 else (longer, short)


def encode_clusters(clusters: Clusters) -> tuple[Codes, int]:
    """Return integer codes and the number of clusters; None is a cluster of its own.

    >>> encode_clusters(["a", "b", "a", None])
    (array([0, 1, 0, 2]), 3)
    """
    if isinstance(clusters, np.ndarray) and clusters.dtype.kind in "iu":
        return clusters.astype(np.intp, copy=False), int(clusters.max(initial=-1)) + 1
    known: dict[Any, int] = {}
    codes = np.fromiter(
        (known.setdefault(object() if name is None else name, len(known)) for name in clusters),
        dtype=np.intp,
        count=len(clusters),
    )
    return codes, len(known)


def sum_by_cluster(values: Floats, codes: Codes, count: int) -> Floats:
    """Return the sum of each cluster's values."""
    return np.bincount(codes, weights=values, minlength=count).astype(np.float64)


def compute_corrected_cluster_error(values: Floats, codes: Codes, count: int) -> float:
    """Return the clustered standard error of a mean with the correction G / (G - 1).

    Equation 4 of Miller (`compute_lmms_eval_cluster_error`, as lmms-eval reports it) lacks the correction and is too small for
    few clusters. With one document per cluster this is the plain standard error.

    >>> round(compute_corrected_cluster_error(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0, 0, 1, 1]), 2), 4)
    0.5
    """
    steps = np.bincount(codes, weights=values - values.mean(), minlength=count)
    return math.sqrt(float((steps * steps).sum()) * count / (count - 1)) / len(values)


def compute_design_effect(values: ArrayLike, clusters: Clusters) -> float:
    """Return the design effect: the factor by which clusters increase the variance of the mean."""
    numbers = np.asarray(values, dtype=np.float64)
    codes, count = encode_clusters(clusters)
    plain = float(numbers.var(ddof=1)) / len(numbers)
    return (
        compute_corrected_cluster_error(numbers, codes, count) ** 2 / plain
        if plain > 0 and count > 1
        else 1.0
    )
