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
    "hypergeometric_interval",
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

_SKEWNESS_CORRECTION = 13.0
"""A sample of n underestimates the skewness of scores between two limits; it is multiplied by 1 + correction / n."""

_ONE_SIDED_SKEWNESS_CORRECTION = 400.0
_UNSEEN_SKEWNESS = 20.0
"""Few scores with a limit on one side only (losses, lengths, durations) can be far more skewed than they show. Their skewness is
multiplied by 1 + correction / n² and increased by 20 / n times their coefficient of variation."""

_MODERATE_VARIATION = 0.51
"""Scores whose coefficient of variation c (from the limit behind them) is much smaller than this are hardly skewed, however few they
are: their skewness is at most (c / 0.51)⁶."""

_MODERATE_VARIATION_OF_LOG_PROBABILITIES = 0.65
"""The same for log probabilities (scores with an upper limit only), whose tails are at most exponential."""

_MAX_STRETCH = 2.5
"""The long side of a skewness-adjusted interval is at most this many times that of Student's t."""

_MAX_STRETCH_OF_LOG_PROBABILITIES = 1.4
_MAX_STRETCH_OF_FEW_UNLIMITED = 1.05
"""An outlier among fewer than ten scores without limits does not show whether they are skewed or have long tails on both sides."""

_MIN_SHORT_SIDE = 0.92
"""The side towards a limit is at least this part of the side of a normal interval."""

_FEW_UNLIMITED = 10
_MIN_UNITS_TO_TRUST = 5
"""Without limits, the side away from the tail is shorter than that of Student's t, by at most half as much as the sample's skewness
suggests: by half for fewer than ten units, which are not much longer on the other side, and by (1 - 5 / n) / 2 from ten units on."""

_UNSEEN_LEVELS = 2.0
"""Scores at two levels only can have others: their range is this part / n of the way from their levels to the limits."""

_MIN_SHARE_DEGREES = 8
_MIN_CLUSTERS_TO_EXTEND = 10
_MIN_SKEWNESS_TO_EXTEND = 1.5
"""The skewness of scores of 0 and 1 with a mean of 0.2 or 0.8."""

_FEW_UNITS = 20
"""Up to this effective number of units, units of all sizes are assumed to vary alike; above, less and less."""


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


def hypergeometric_interval(successes: int, sampled: int, total: int, *, level: float = 0.95) -> Interval:
    """Return the exact interval of the share of successes among `total` documents, from a simple random sample of them.

    The interval contains the share of all documents in at least `level` of the samples, for every size of task and sample. Both ends are
    whole numbers of documents.

    >>> interval = hypergeometric_interval(10, 10, 12)
    >>> round(interval.low, 3), interval.high
    (0.917, 1.0)
    >>> hypergeometric_interval(3, 4, 4).low
    0.75
    """
    if not 0 <= successes <= sampled <= total or not sampled:
        raise AssayError("an interval needs a sample of the documents")
    tail = (1 - level) / 2
    low = _find_fewest_successes(successes, sampled, total, tail)
    high = total - _find_fewest_successes(sampled - successes, sampled, total, tail)
    return Interval(low=low / total, high=high / total, method="hypergeometric", level=level)


def _find_fewest_successes(successes: int, sampled: int, total: int, tail: float) -> int:
    """Return the smallest number of successes among all documents with which the sample has as many with probability above `tail`."""
    impossible, possible = successes - 1, total - sampled + successes
    while possible - impossible > 1:
        middle = (impossible + possible) // 2
        if _compute_upper_tail(successes, sampled, middle, total) > tail:
            possible = middle
        else:
            impossible = middle
    return possible


def _compute_upper_tail(successes: int, sampled: int, right: int, total: int) -> float:
    """Return the probability of at least this number of successes in a sample, if `right` of all documents are successes."""
    fewest, most = max(0, sampled + right - total), min(sampled, right)
    if successes <= fewest:
        return 1.0
    counts = np.arange(fewest, most, dtype=np.float64)
    ratios = (right - counts) * (sampled - counts) / ((counts + 1) * (total - right - sampled + counts + 1))
    logs = np.concatenate(([0.0], np.cumsum(np.log(ratios))))
    weights = np.exp(logs - logs.max())
    return float(weights[successes - fewest :].sum() / weights.sum())


def t_interval(values: ArrayLike, *, level: float = 0.95, limits: Limits | None = None) -> Interval:
    """Return the Student t interval of the mean of independent values, adjusted for skewness."""
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < 2:
        raise AssayError("an interval needs at least two documents")
    known = limits or guess_limits(numbers)
    found = ratio_interval(numbers, np.ones(len(numbers)), level=level, limits=known, method="adjusted t")
    likely = _find_likely_range(numbers, known)
    lowest, highest = _bound_by_share(float(numbers.mean()), len(numbers), likely, level)
    return replace(found, low=max(found.low, lowest), high=min(found.high, highest))


def _find_likely_range(values: Floats, limits: Limits) -> Limits:
    """Return the range of scores at two levels, one of which is repeated and no limit; other scores have the given limits.

    Scores that can have any value between two limits are equal only at the limits: all right, all wrong. Equal scores inside
    them show that there are levels, and the more scores are at two levels only, the less likely are others.
    """
    levels, counts = np.unique(values, return_counts=True)
    low, high = limits
    inside = (levels > low) & (levels < high)
    if not math.isfinite(high - low) or len(levels) != 2 or not (counts[inside] > 1).any():
        return limits
    part = min(1.0, _UNSEEN_LEVELS / len(values))
    first, second = levels.tolist()
    return first - part * (first - low), second + part * (high - second)


def clustered_interval(
    values: ArrayLike, clusters: Clusters, *, level: float = 0.95, limits: Limits | None = None
) -> Interval:
    """Return the interval of the mean of clustered documents.

    The mean is the ratio of the clusters' sums to their sizes. Scores of 0 and 1 have a Wilson interval with the effective
    number of documents; others Student's t adjusted for skewness. The standard error accounts for clusters of different
    sizes.
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

    Near 0 and 1, ten or more clusters may not show how much clusters vary, and the second one can be wider. Its skewness is at
    most that of scores of 0 and 1 with this mean. The Wilson interval of fewer clusters is wide enough, and the shares of
    clusters vary less than normal values, so a few more degrees of freedom are enough, too.
    """
    share, total = found.value, float(found.units)
    if found.error > 0:
        total = max(1.0, min(float(documents), share * (1 - share) / found.error**2))
    degrees = max(found.units - 1, min(2 * found.units - 3, _MIN_SHARE_DEGREES))
    few = wilson_interval(share * total, total, level=level, degrees=degrees)
    low, high = few.low, few.high
    natural = (1 - 2 * share) / math.sqrt(share * (1 - share)) if found.error > 0 else 0.0
    extend = found.units >= _MIN_CLUSTERS_TO_EXTEND and abs(natural) > _MIN_SKEWNESS_TO_EXTEND
    if extend and found.skewness * natural > 0:
        skewness = math.copysign(min(abs(found.skewness), abs(natural)), natural)
        below, above = _compute_sides(replace(found, skewness=skewness), (0.0, 1.0), level)
        low, high = max(0.0, min(low, share - below)), min(1.0, max(high, share + above))
    lowest, highest = _bound_by_share(share, found.effective_units, (0.0, 1.0), level)
    return Interval(low=max(low, lowest), high=min(high, highest), method="clustered", level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioEstimate:
    """The ratio of two sums over independent units (documents or clusters), with its standard error."""

    value: float
    error: float
    units: int
    effective_units: float
    """Number of units of equal size that would give the same variance: fewer if some are much larger than others."""

    skewness: float
    """Skewness of the units' contributions."""


def estimate_ratio(tops: Floats, bottoms: Floats, *, are_texts: bool = False) -> RatioEstimate:
    """Estimate the ratio of two sums by linearisation.

    If sizes (bottoms) differ, the linearised variance of few units depends on the largest ones alone, and is too small. It is at
    least the variance of units whose own ratios vary alike, whatever their size; with many units this counts less and less.
    With equal sizes, both are the usual standard error. The ratios of long natural texts (`are_texts`: log probabilities and bytes) vary
    less than those of short ones, so half of Bessel's correction is enough for their floor.

    >>> found = estimate_ratio(np.array([1.0, 2.0, 3.0]), np.ones(3))
    >>> round(found.error, 4), round(found.effective_units, 6)
    (0.5774, 3.0)
    """
    count, whole = len(tops), float(bottoms.sum())
    value = float(tops.sum()) / whole
    steps = tops - value * bottoms
    squared = steps * steps
    squares, share = float(squared.sum()), float((bottoms * bottoms).sum()) / whole**2
    if not squares > 1e-24 * (float((tops * tops).sum()) or 1.0):  # rounding errors of equal scores
        return RatioEstimate(value=value, error=0.0, units=count, effective_units=1 / share, skewness=0.0)
    variance = squares / whole**2 * count / (count - 1)
    sizes = np.maximum(bottoms, 0.1 * whole / count)
    correction = max(1 - share, 1 / count)
    alike = (
        float((squared / sizes).sum()) / whole * share / (math.sqrt(correction) if are_texts else correction)
    )
    return RatioEstimate(
        value=value,
        error=math.sqrt(variance + max(0.0, alike - variance) * min(1.0, _FEW_UNITS * share)),
        units=count,
        effective_units=1 / share,
        skewness=float((squared * steps).mean()) / (squares / count) ** 1.5,
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
    found = estimate_ratio(tops, bottoms, are_texts=_are_log_probabilities(limits))
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
    lowest, highest = _bound_by_share(found.value, found.effective_units, limits, level)
    return Interval(
        low=max(lowest, found.value - below),
        high=min(highest, found.value + above),
        method=method,
        level=level,
    )


def _bound_by_share(value: float, units: float, limits: Limits, level: float) -> Limits:
    """Return the Wilson interval of scores that are all at one of two limits and have this mean; the limits if one is infinite.

    Of all scores between two limits, those at the limits vary most, so an interval never needs to be wider than theirs.
    """
    low, high = limits
    if not math.isfinite(high - low):
        return limits
    widest = wilson_interval(units * (value - low) / (high - low), units, level=level)
    return low + (high - low) * widest.low, low + (high - low) * widest.high


def _compute_sides(found: RatioEstimate, limits: Limits, level: float) -> tuple[float, float]:
    """Return the lengths of both sides of the interval of a ratio.

    A small sample rarely contains values from the long tail of the scores. The side towards the tail is therefore longer than
    that of Student's t, by the first term of the Cornish-Fisher expansion of the t statistic. Scores with one limit have their
    tail away from it, others where the sample is skewed. A side towards a limit is shorter (`_shorten_side`); without
    limits, the side away from the tail is shorter by at most half of the expansion's term.
    """
    below, above = found.value - limits[0], limits[1] - found.value
    upwards = found.skewness > 0 if math.isinf(below) == math.isinf(above) else math.isinf(above)
    before, behind = (
        (above, below) if upwards else (below, above)
    )  # the distances to the limits from the value
    quantile, normal = (t_quantile((1 + level) / 2, degrees) for degrees in (found.units - 1, math.inf))
    step = (1 + 2 * quantile * quantile) / math.sqrt(found.units) / 6
    seen = found.skewness * found.effective_units / found.units
    seen = max(0.0, seen if upwards else -seen)
    plain, least = quantile * found.error, _MIN_SHORT_SIDE * normal * found.error
    few = math.isinf(behind) and found.units < _FEW_UNLIMITED
    stretch = _MAX_STRETCH_OF_LOG_PROBABILITIES if _are_log_probabilities(limits) else _MAX_STRETCH
    stretch = _MAX_STRETCH_OF_FEW_UNLIMITED if few else stretch
    extra = min(_estimate_skewness(found, seen, limits, behind) * step, (stretch - 1) * quantile)
    longer = max(least, _shorten_side(plain, before, behind)) + extra * found.error
    if math.isinf(behind):
        trust = (1.0 if few else 1 - _MIN_UNITS_TO_TRUST / found.units) / 2
        shorter = max(plain / 2, plain - trust * seen * step * found.error)
    else:
        shorter = max(least, _shorten_side(plain, behind, before))
    return (shorter, longer) if upwards else (longer, shorter)


def _are_log_probabilities(limits: Limits) -> bool:
    """Whether scores with these limits are log probabilities, of texts or answers: they are never positive."""
    return math.isinf(limits[0]) and math.isfinite(limits[1])


def _shorten_side(plain: float, towards: float, other: float) -> float:
    """Return the length of a side on a logarithmic scale of the distance to its limit (with two limits: a logit scale).

    `towards` and `other` are the distances to the limit of this side and to the other one, infinite without a limit.
    """
    if math.isinf(towards):
        return plain
    if towards <= 0 or other <= 0:
        return 0.0
    shrunk = math.exp(-plain * (1 / towards + 1 / other))
    return min(plain, towards * (1 - shrunk) / (1 + towards / other * shrunk))


def _estimate_skewness(found: RatioEstimate, seen: float, limits: Limits, behind: float) -> float:
    """Return how skewed the scores can be, from the skewness `seen` in the sample and the distance to the limit behind them.

    The more the scores vary, relative to this distance, the longer their tail can be. The tails of log probabilities are at
    most exponential: tokens to which a calibrated model gives a probability below p occur with at most p times the size of
    its vocabulary.
    """
    if math.isinf(behind):
        return seen
    units = found.effective_units
    variation = min(100.0, found.error * math.sqrt(units) / max(behind, 1e-300))
    most = (variation / _MODERATE_VARIATION) ** 6
    if math.isfinite(limits[1] - limits[0]):
        return min(seen * (1 + _SKEWNESS_CORRECTION / units), most)
    likely = seen * (1 + _ONE_SIDED_SKEWNESS_CORRECTION / units**2)
    if _are_log_probabilities(limits):
        likely, most = seen, (variation / _MODERATE_VARIATION_OF_LOG_PROBABILITIES) ** 6
    likely += _UNSEEN_SKEWNESS / units * variation
    return max(min(likely, most), seen - 2 * variation)  # more skewed than a gamma distribution


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
