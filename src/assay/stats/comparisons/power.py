"""Power analysis: documents needed to detect a difference, and the difference a number of documents can detect.

Section 5 of Miller (arXiv 2411.00640): the variance of a paired difference is the variance between documents plus the
variance between repeats divided by their number; clusters multiply it by the design effect. The power is that of the test
that `compare_pairs` runs: the exact McNemar test for scores of 0 and 1, else the sign-flip test. The power of the latter is
simulated for few documents, and that of Student's t for many. Neither test can be significant with five documents.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.stats.numerics.distributions import binomial_cdf, normal_cdf, normal_quantile, t_quantile

__all__ = [
    "DifferenceVariance",
    "compute_mcnemar_power",
    "compute_paired_variance",
    "compute_sign_flip_power",
    "count_documents_needed",
    "find_detectable_effect",
]

_MAX_EXACT_FLIPS = 300
"""Up to this number of expected flips, the power of McNemar's test is the sum over all outcomes; above, the normal approximation
with continuity correction is at most half a percent too low."""

_FLIP_STEP = 50
"""The largest number of flips is rounded up to a multiple of this, so that few tables of outcomes serve all effects."""

_MAX_SIMULATED_UNITS = 12
_MAX_SIMULATED_ASSIGNMENTS = 64
_SIMULATED_EFFECTS = tuple(np.arange(0, 12.5, 0.5).tolist())
"""True differences in standard errors. With more units and more significant sign assignments than these, the power of Student's t
is accurate to a percent."""

_MAX_DOCUMENTS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceVariance:
    """Variance components of the paired difference of two models, per document."""

    between: float
    """Variance of the true differences of documents."""

    within_first: float = 0.0
    within_second: float = 0.0
    """Mean variance between repeats of one document; 0 for deterministic answers."""

    repeats_first: int = 1
    repeats_second: int = 1
    design_effect: float = 1.0
    """Factor by which clusters increase the variance of the mean."""

    units_per_document: float = 1.0
    """Number of clusters divided by the number of documents."""

    binary: bool = False
    """Whether scores are 0 and 1, so that the test is McNemar's."""

    @property
    def variance(self) -> float:
        """Variance of the measured difference of one document."""
        noise = self.within_first / self.repeats_first + self.within_second / self.repeats_second
        return (self.between + noise) * self.design_effect

    def compute_power(self, effect: float, documents: int, alpha: float) -> float:
        """Return the probability that the test is significant at this true difference."""
        if self.binary:
            return compute_mcnemar_power(effect, documents, self.variance, alpha)
        units = max(1, round(documents * self.units_per_document))
        return compute_sign_flip_power(effect, math.sqrt(self.variance / documents), units, alpha)


def compute_paired_variance(first: float, second: float, correlation: float) -> float:
    """Return the variance of a difference from two variances and the correlation of the models.

    >>> round(compute_paired_variance(0.25, 0.25, 0.5), 4)
    0.25
    """
    if not -1 <= correlation <= 1:
        raise AssayError(f"a correlation must be between -1 and 1, got {correlation}")
    return first + second - 2 * correlation * math.sqrt(first * second)


def compute_mcnemar_power(effect: float, documents: int, variance: float, alpha: float = 0.05) -> float:
    """Return the power of the exact McNemar test for a difference of two shares.

    `variance` is that of a document's difference, which is 1, 0 or -1. The share of documents on which the models differ
    follows from it; it is at least the difference itself.

    >>> round(compute_mcnemar_power(0.5, 10, 0.25), 3), compute_mcnemar_power(0.9, 5, 0.09)
    (0.377, 0.0)
    """
    effect = min(abs(effect), 1.0)
    differing = min(1.0, max(effect, variance + effect**2))
    wins, losses = (differing + effect) / 2, (differing - effect) / 2
    if documents * differing > _MAX_EXACT_FLIPS:
        deviation = math.sqrt(documents * max(differing - effect**2, 1e-12))
        reach = 1 + normal_quantile(1 - alpha / 2) * math.sqrt(documents * differing)
        return normal_cdf((documents * effect - reach) / deviation) + normal_cdf(
            (-documents * effect - reach) / deviation
        )
    most = min(documents, _round_up_flips(documents * differing))
    up, down, weights = _list_significant_outcomes(most, alpha)
    if not len(up):
        return 0.0
    logs = [math.log(share) if share > 0 else -1e6 for share in (wins, losses, 1 - differing)]
    ties = np.array(
        [_log_ties(documents, flips) + (documents - flips) * logs[2] for flips in range(most + 1)]
    )
    return min(1.0, float(np.exp(weights + up * logs[0] + down * logs[1] + ties[up + down]).sum()))


def _round_up_flips(expected: float) -> int:
    """Return a number of flips that is practically never exceeded: eight standard deviations above the expected one."""
    most = expected + 8 * math.sqrt(expected) + 20
    return _FLIP_STEP * math.ceil(most / _FLIP_STEP)


def _log_ties(documents: int, flips: int) -> float:
    """Return the logarithm of documents! / (documents - flips)!."""
    return math.lgamma(documents + 1) - math.lgamma(documents - flips + 1)


@lru_cache(maxsize=64)
def _list_significant_outcomes(
    most: int, alpha: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Return the wins and losses of all significant outcomes with at most this many flips, and -log(wins! losses!) of each."""
    limits = [_count_losing_flips(flips, alpha) for flips in range(most + 1)]
    up, down = np.divmod(np.arange((most + 1) ** 2), most + 1)
    possible = up + down <= most
    up, down = up[possible], down[possible]
    significant = np.minimum(up, down) <= np.array(limits)[up + down]
    up, down = up[significant], down[significant]
    factorials = np.array([math.lgamma(number + 1) for number in range(most + 1)])
    return up, down, -factorials[up] - factorials[down]


@lru_cache(maxsize=4096)
def _count_losing_flips(flips: int, alpha: float) -> int:
    """Return how many of the flips may go the other way in a significant result; -1 if none may."""
    return bisect_left(range(flips // 2), alpha, key=lambda fewer: 2 * binomial_cdf(fewer, flips, 0.5)) - 1


def compute_sign_flip_power(effect: float, stderr: float, units: int, alpha: float = 0.05) -> float:
    """Return the power of the sign-flip test for normal differences of this many units.

    With few units, or few significant sign assignments, it is simulated; otherwise it is approximated by that of Student's t.

    >>> round(compute_sign_flip_power(0.028, 0.01, 10**6), 2)
    0.8
    """
    attainable = _round_to_attainable(units, alpha)
    if attainable == 0:
        return 0.0
    if stderr <= 0:
        return float(effect != 0)
    degrees = units - 1
    significant = attainable * 2.0 ** min(degrees, 60)
    if units <= _MAX_SIMULATED_UNITS or significant <= _MAX_SIMULATED_ASSIGNMENTS:
        quantiles = _simulate_sign_flips(units, round(significant))
        return normal_cdf(float(np.interp(abs(effect) / stderr, _SIMULATED_EFFECTS, quantiles)))
    quantile = t_quantile(1 - attainable / 2, degrees)
    # the normal approximation of the non-central t distribution (Johnson and Welch)
    scale = math.sqrt(1 + quantile * quantile / (2 * degrees))
    return normal_cdf((abs(effect) / stderr - quantile * (1 - 1 / (4 * degrees))) / scale)


@lru_cache(maxsize=256)
def _simulate_sign_flips(units: int, assignments: int) -> NDArray[np.float64]:
    """Return the normal quantile of the power at each simulated effect.

    A result is significant if at most this many subsets of the absolute differences have a sum as small as that of the
    differences with the rarer sign. Small sums contain small differences only, so those suffice for many units.
    """
    width = min(units, _MAX_SIMULATED_UNITS)
    noise = np.random.default_rng(units).normal(size=(1000 if units > 10 else 4000, units)).astype(np.float32)
    subsets = ((np.arange(1 << width)[None, :] >> np.arange(width)[:, None]) & 1).astype(np.float32)
    found: list[float] = []
    for effect in _SIMULATED_EFFECTS:
        if found and found[-1] > 3:
            found.append(6.0)  # larger effects are always found
            continue
        steps = noise + np.float32(effect / math.sqrt(units))
        other_side = np.minimum(np.maximum(steps, 0).sum(axis=1), np.maximum(-steps, 0).sum(axis=1))
        sums = np.sort(np.abs(steps), axis=1)[:, :width] @ subsets
        count = (sums <= other_side[:, None] * (1 + 1e-5) + 1e-5).sum(axis=1)
        share = float((count <= assignments).mean())
        found.append(normal_quantile(min(max(share, 1e-9), 1 - 1e-9)))
    return np.array(found)


def _round_to_attainable(units: int, alpha: float) -> float:
    """Return the largest significance level below `alpha` that sign flips of this many units attain; 0 if there is none."""
    ways = 2.0 ** min(units - 1, 60)
    return (math.ceil(alpha * ways) - 1) / ways


def count_documents_needed(
    effect: float, variance: DifferenceVariance, *, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Return the number of documents needed to detect a true difference with this power.

    Miller's example has a variance of 1/9 and a difference of 3 points; he gets 969 with normal instead of t quantiles.

    >>> count_documents_needed(0.03, DifferenceVariance(between=1 / 9))
    971
    """
    if effect == 0:
        raise AssayError("the effect must not be 0")
    found = bisect_left(
        range(2, _MAX_DOCUMENTS),
        power,
        key=lambda documents: variance.compute_power(effect, documents, alpha),
    )
    return found + 2


def find_detectable_effect(
    documents: int,
    variance: DifferenceVariance,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
) -> float | None:
    """Return the smallest true difference that this number of documents detects with this power; None if there is none.

    >>> round(find_detectable_effect(971, DifferenceVariance(between=1 / 9)), 4)
    0.03
    >>> find_detectable_effect(5, DifferenceVariance(between=0.25, binary=True)) is None
    True
    """
    if documents < 1:
        raise AssayError("an effect needs at least one document")
    most = 1.0 if variance.binary else 100 * math.sqrt(variance.variance or 1.0)
    return _find_smallest(lambda effect: variance.compute_power(effect, documents, alpha) >= power, most)


def _find_smallest(suffices: Callable[[float], bool], most: float) -> float | None:
    """Return the smallest value up to `most` for which an increasing condition holds; None if there is none."""
    if not suffices(most):
        return None
    low, high = 0.0, most
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
