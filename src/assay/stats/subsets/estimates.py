"""Weighted means of stratified samples, with intervals for the mean over all documents.

The interval is about the documents of the task, not about documents like them: with all documents asked it would have no width.
Its variance is that of sampling without replacement within strata. A sample that shows no variation does not prove that there is
none, so the variance of a few more documents that differ from their stratum is added, and the interval is Wilson's, with the
number of documents that a simple random sample would need for this variance. For scores of 0 and 1, the mean over all documents is a whole
number of documents, so the interval ends at whole numbers; that of a simple random sample is exact. `benchmarks/subsets.py` measures how
often the interval contains the mean of all documents for models that the history does not contain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.comparisons.sign_flip_test import run_sign_flip_test
from assay.stats.intervals.confidence_intervals import (
    Interval,
    Limits,
    guess_limits,
    hypergeometric_interval,
    wilson_interval,
)
from assay.stats.numerics.distributions import t_cdf, t_quantile

__all__ = [
    "WeightedDifference",
    "WeightedMean",
    "compare_weighted_pairs",
    "estimate_weighted_mean",
]

Floats = NDArray[np.float64]

_MIN_UNSEEN = 2.0
_UNSEEN_PER_STRATUM = 1 / 6
"""Documents that differ from their stratum and are assumed in addition to those in the sample: one in every sixth stratum, and at
least two."""

METHOD = "weighted"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedMean:
    """The estimated mean over all documents of a task."""

    value: float
    stderr: float
    """Standard error of the estimate, with the sampling fraction taken into account."""

    degrees: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedDifference:
    """The estimated difference of two models over all documents: second minus first."""

    first: float
    second: float
    value: float
    stderr: float
    degrees: float
    interval: Interval
    p_value: float
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _StratumSums:
    """The strata with their scores. Strata with fewer than two scores are merged with their neighbour."""

    sizes: Floats
    counts: Floats
    means: Floats
    variances: Floats

    @property
    def shares(self) -> Floats:
        return self.sizes / float(self.sizes.sum())

    @property
    def value(self) -> float:
        return float((self.shares * self.means).sum())

    @property
    def degrees(self) -> float:
        return max(1.0, float(self.counts.sum()) - len(self.counts))

    def compute_variance(self, unit: float) -> float:
        """Return the variance of the weighted mean; `unit` is the variance of a document that differs from its stratum."""
        factors = self.shares**2 * np.maximum(0.0, 1 - self.counts / self.sizes) / self.counts
        count = max(_MIN_UNSEEN, _UNSEEN_PER_STRATUM * len(self.counts))
        unseen = count * unit * float((factors / self.counts).mean())
        return float((factors * self.variances).sum()) + unseen


def estimate_weighted_mean(
    values: ArrayLike,
    strata: Sequence[int],
    sizes: Sequence[int],
    *,
    level: float = 0.95,
    limits: Limits | None = None,
) -> WeightedMean:
    """Estimate the mean over all documents from a stratified sample.

    Args:
        values: The scores of the sampled documents.
        strata: The stratum of each of them.
        sizes: The number of documents in each stratum.
        level: The confidence level.
        limits: The range of possible scores (default: `guess_limits`).

    >>> found = estimate_weighted_mean([1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [300, 100])
    >>> round(found.value, 3), found.interval.low < 0.6 < 0.9 < found.interval.high
    (0.75, True)

    Raises:
        AssayError: There are fewer than two scores.
    """
    scores = np.asarray(values, dtype=np.float64)
    sums = _sum_strata(scores, strata, sizes)
    low, high = limits or guess_limits(scores)
    span = high - low
    bounded = math.isfinite(span) and span > 0
    unit = span**2 if bounded else float(scores.var(ddof=1))
    variance = sums.compute_variance(unit)
    value = sums.value
    quantile = t_quantile((1 + level) / 2, sums.degrees)
    if bounded:
        shares = (scores - low) / span
        if bool(np.isin(shares, (0.0, 1.0)).all()):
            interval = _count_interval((value - low) / span, shares, sums, variance / span**2, level)
        else:
            interval = _share_interval(
                (value - low) / span, variance / span**2, len(scores), sums.degrees, level
            )
        interval = replace(interval, low=low + span * interval.low, high=low + span * interval.high)
    else:
        half = quantile * math.sqrt(variance)
        interval = Interval(
            low=max(low, value - half), high=min(high, value + half), method=METHOD, level=level
        )
    return WeightedMean(value=value, stderr=math.sqrt(variance), degrees=sums.degrees, interval=interval)


def compare_weighted_pairs(
    first: ArrayLike,
    second: ArrayLike,
    strata: Sequence[int],
    sizes: Sequence[int],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> WeightedDifference:
    """Compare two models on the same stratified sample of documents.

    The p-value is the inverse of the interval: it takes the strata and the sampling fraction into account. If all documents were asked, it
    is that of a sign-flip test, as for full runs.

    >>> found = compare_weighted_pairs([1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 1], [30, 10])
    >>> round(found.value, 3)
    0.5
    """
    before, after = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    steps = after - before
    sums = _sum_strata(steps, strata, sizes)
    bounded = bool(min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1)
    unit = 1.0 if bounded else float(steps.var(ddof=1))
    error = math.sqrt(sums.compute_variance(unit))
    half = t_quantile((1 + level) / 2, sums.degrees) * error
    low, high = sums.value - half, sums.value + half
    if error > 0:
        p_value = 1.0 if sums.value == 0 else 2 * t_cdf(-abs(sums.value) / error, sums.degrees)
        test = "t test, weighted"
    else:
        p_value, test = run_sign_flip_test(steps, seed=seed)
    return WeightedDifference(
        first=_sum_strata(before, strata, sizes).value,
        second=_sum_strata(after, strata, sizes).value,
        value=sums.value,
        stderr=error,
        degrees=sums.degrees,
        interval=Interval(
            low=max(low, -1.0) if bounded else low,
            high=min(high, 1.0) if bounded else high,
            method=METHOD,
            level=level,
        ),
        p_value=p_value,
        test=test,
    )


def _sum_strata(scores: Floats, strata: Sequence[int], sizes: Sequence[int]) -> _StratumSums:
    codes = np.asarray(strata, dtype=np.intp)
    if len(scores) < 2:
        raise AssayError("an interval needs at least two documents")
    if codes.shape != scores.shape:
        raise AssayError("every score needs a stratum")
    sampled = np.bincount(codes, minlength=len(sizes)).tolist()
    groups: list[int] = []  # of each stratum
    group = waiting = 0  # scores of strata that have too few of their own
    for count in sampled:
        groups.append(group)
        waiting += count
        if waiting >= 2:
            group, waiting = group + 1, 0
    joined = np.minimum(groups, group - 1)  # what is left at the end belongs to the group before
    member = joined[codes]
    counts = np.bincount(member).astype(np.float64)
    means = np.bincount(member, weights=scores) / counts
    return _StratumSums(
        sizes=np.bincount(joined, weights=np.asarray(sizes, dtype=np.float64)).astype(np.float64),
        counts=counts,
        means=means,
        variances=np.bincount(member, weights=(scores - means[member]) ** 2) / (counts - 1),
    )


def _share_interval(share: float, variance: float, sampled: int, degrees: float, level: float) -> Interval:
    """Return Wilson's interval with the number of documents that would give this variance in a simple random sample."""
    share = min(max(share, 0.0), 1.0)
    if variance <= 0:  # all documents were asked
        return Interval(low=share, high=share, method=METHOD, level=level)
    middle = (sampled * share + 2) / (sampled + 4)
    effective = middle * (1 - middle) / variance
    found = wilson_interval(share * effective, effective, level=level, degrees=degrees)
    return replace(found, method=METHOD)


def _count_interval(
    share: float, shares: Floats, sums: _StratumSums, variance: float, level: float
) -> Interval:
    """Return the interval of the share of documents with the score 1, for scores of 0 and 1: it ends at whole numbers of documents."""
    total = round(float(sums.sizes.sum()))
    if len(sums.counts) == 1:
        found = hypergeometric_interval(round(float(shares.sum())), len(shares), total, level=level)
        return replace(found, method=METHOD)
    found = _share_interval(share, variance, len(shares), sums.degrees, level)
    low = math.floor(found.low * total + 1e-9) / total
    return replace(found, low=low, high=math.ceil(found.high * total - 1e-9) / total)
