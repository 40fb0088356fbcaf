"""Paired comparison of two models on the same documents: difference, confidence interval and p-value.

Pairing removes the variance both models share, which saves a third to two thirds of the documents (Miller 2024). The
p-value is that of the exact McNemar test for scores of 0 and 1, else of a sign-flip (permutation) test, which flips
whole clusters if there are any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.comparisons.power import DifferenceVariance, find_detectable_effect
from assay.stats.comparisons.sign_flip_test import run_sign_flip_test
from assay.stats.intervals.confidence_intervals import (
    Clusters,
    Interval,
    encode_clusters,
    estimate_ratio,
    is_binary,
    ratio_interval,
    sum_by_cluster,
)
from assay.stats.numerics.distributions import binomial_cdf, t_quantile

__all__ = ["Difference", "compare_pairs", "compute_mcnemar_p_value", "find_detectable_difference"]

Floats = NDArray[np.float64]

_MAX_EXACT_FLIPS = 1000
"""Up to this number of flips the p-value is counted exactly; above, the incomplete beta function is used (12 digits)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The paired difference of two models: second minus first."""

    documents: int
    clusters: int | None
    """Number of clusters; None if documents are independent."""

    degrees: float
    """Degrees of freedom of the standard error; infinite for a normal distribution."""

    first: float
    second: float
    value: float
    """The second mean minus the first."""

    stderr: float
    interval: Interval
    p_value: float
    test: str
    detectable: float | None
    """The smallest true difference detected with 80 % power; None if unknown."""

    wins: int
    ties: int
    losses: int
    """Documents on which the second score is higher, equal, lower."""


def compare_pairs(
    first: ArrayLike,
    second: ArrayLike,
    clusters: Clusters | None = None,
    *,
    level: float = 0.95,
    power: float = 0.8,
    seed: int = 0,
) -> Difference:
    """Compare the scores of two models on the same documents.

    >>> found = compare_pairs([1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0])
    >>> found.value, found.p_value, found.test
    (0.75, 0.03125, 'exact McNemar')
    """
    before, after = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if before.shape != after.shape or before.ndim != 1:
        raise AssayError("paired scores need the same number of documents of both models")
    if not len(before):
        raise AssayError("the runs have no document in common, so there is nothing to compare")
    steps = after - before
    codes, count = encode_clusters(clusters) if clusters is not None else (None, len(steps))
    clustered = codes is not None and count < len(steps)
    wins, losses = int((steps > 0).sum()), int((steps < 0).sum())
    binary = is_binary(before) and is_binary(after)
    bounded = bool(min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1)
    middle, degrees = float(steps.mean()), math.inf
    adjusted: Interval | None = None
    if clustered and codes is not None:
        units = sum_by_cluster(steps, codes, count)
        sizes = sum_by_cluster(np.ones(len(steps)), codes, count)
        error, degrees, method = 0.0, count - 1, "clustered"
        if count > 1:
            error = estimate_ratio(units, sizes).error
            adjusted = _adjust_for_skewness(units, sizes, error, level, method)
            if adjusted is not None and bounded:
                adjusted = _allow_for_unseen_cluster(adjusted, steps, count, error)
        p_value, test = run_sign_flip_test(units, seed=seed)
        test = f"{test}, whole clusters"
    elif binary:
        middle, error = _adjusted_wald(wins, losses, len(steps))
        method = "adjusted Wald"
        p_value, test = compute_mcnemar_p_value(wins, losses), "exact McNemar"
    else:
        error, degrees, method = _compute_plain_error(steps), len(steps) - 1, "adjusted t"
        adjusted = _adjust_for_skewness(steps, np.ones(len(steps)), error, level, method)
        p_value, test = run_sign_flip_test(steps, seed=seed)
    if error == 0 and bounded:
        error = _min_error(count)  # no observed variation does not mean no uncertainty
    known = degrees > 0
    half = t_quantile((1 + level) / 2, degrees) * error if known else math.inf
    low, high = (middle - half, middle + half) if adjusted is None else (adjusted.low, adjusted.high)
    return Difference(
        documents=len(steps),
        clusters=count if clustered else None,
        degrees=degrees,
        first=float(before.mean()),
        second=float(after.mean()),
        value=float(steps.mean()),
        stderr=error,
        interval=Interval(
            low=max(low, -1.0) if bounded else low,
            high=min(high, 1.0) if bounded else high,
            method=method,
            level=level,
        ),
        p_value=p_value,
        test=test,
        detectable=find_detectable_difference(
            error,
            degrees,
            documents=len(steps),
            binary=test == "exact McNemar",
            level=level,
            power=power,
        ),
        wins=wins,
        ties=len(steps) - wins - losses,
        losses=losses,
    )


def _adjust_for_skewness(
    tops: Floats, bottoms: Floats, error: float, level: float, method: str
) -> Interval | None:
    """Return the interval of the mean of skewed differences; None without variation.

    Two models differ much on few documents or clusters, and clusters have different sizes. Student's t ignores both.
    """
    if error == 0:
        return None
    return ratio_interval(tops, bottoms, level=level, limits=(-math.inf, math.inf), method=method)


def _allow_for_unseen_cluster(found: Interval, steps: Floats, count: int, error: float) -> Interval:
    """Extend an interval of few clusters, none of which may show that a model can fail in a whole cluster.

    The standard error is at least the one with an additional cluster whose documents all differ in the same direction. A share of
    documents as large as the mean absolute difference can be in such clusters.
    """
    squares = error**2 * count * (count - 1) + float(np.abs(steps).mean())
    half = t_quantile((1 + found.level) / 2, count) * math.sqrt(squares / (count * (count + 1)))
    middle = float(steps.mean())
    return replace(found, low=min(found.low, middle - half), high=max(found.high, middle + half))


def find_detectable_difference(
    stderr: float,
    degrees: float,
    *,
    documents: int | None = None,
    binary: bool = False,
    level: float = 0.95,
    power: float = 0.8,
    tests: int = 1,
) -> float | None:
    """Return the smallest true difference that a comparison with this standard error detects with this power; None if none.

    `binary` is McNemar's exact test with this number of documents. Otherwise it is a sign-flip test of `degrees` + 1 documents
    or clusters, or a normal test if `degrees` are infinite. For several tests, the level is that of the first step of Holm
    and of Benjamini-Hochberg.

    >>> round(find_detectable_difference(0.01, 1e9), 4), round(find_detectable_difference(0.01, 1e9, tests=10), 4)
    (0.028, 0.0365)
    """
    if stderr <= 0 or degrees <= 0:
        return None
    alpha = (1 - level) / tests
    if binary and documents is not None:
        variance = DifferenceVariance(between=stderr**2 * (documents + 2), binary=True)
        return find_detectable_effect(documents, variance, power=power, alpha=alpha)
    units = round(min(degrees, 1e9)) + 1
    variance = DifferenceVariance(between=stderr**2 * units)
    return find_detectable_effect(units, variance, power=power, alpha=alpha)


def compute_mcnemar_p_value(wins: int, losses: int) -> float:
    """Return the exact p-value of McNemar's test.

    >>> compute_mcnemar_p_value(6, 0)
    0.03125
    """
    flips, fewer = wins + losses, min(wins, losses)
    if flips > _MAX_EXACT_FLIPS:
        return min(1.0, 2 * binomial_cdf(fewer, flips, 0.5))
    ways, whole = 1, 0
    for count in range(fewer + 1):
        whole += ways
        ways = ways * (flips - count) // (count + 1)
    return min(1.0, float(2 * whole / 2**flips))


def _adjusted_wald(wins: int, losses: int, total: int) -> tuple[float, float]:
    """Return center and standard error of the interval of Bonett and Price (2012) for paired proportions, which adds one
    flip in each direction."""
    size = total + 2
    up, down = (wins + 1) / size, (losses + 1) / size
    return up - down, math.sqrt((up + down - (up - down) ** 2) / size)


def _min_error(units: int) -> float:
    """Return the standard error of Bonett and Price without any flips."""
    return _adjusted_wald(0, 0, units)[1]


def _compute_plain_error(steps: Floats) -> float:
    return float(steps.std(ddof=1)) / math.sqrt(len(steps)) if len(steps) > 1 else 0.0
