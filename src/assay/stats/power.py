"""Power analysis: documents needed to detect a difference, and the difference a number of documents can detect.

Section 5 of Miller (arXiv 2411.00640): the variance of a paired difference is the variance between documents plus the
variance between repeats divided by their number; clusters multiply it by the design effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.stats.distributions import normal_quantile

__all__ = [
    "DifferenceVariance",
    "compute_paired_variance",
    "count_documents_needed",
    "find_detectable_effect",
]


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

    @property
    def variance(self) -> float:
        """Variance of the measured difference of one document."""
        noise = self.within_first / self.repeats_first + self.within_second / self.repeats_second
        return (self.between + noise) * self.design_effect


def compute_paired_variance(first: float, second: float, correlation: float) -> float:
    """Return the variance of a difference from two variances and the correlation of the models.

    >>> round(compute_paired_variance(0.25, 0.25, 0.5), 4)
    0.25
    """
    if not -1 <= correlation <= 1:
        raise AssayError(f"a correlation must be between -1 and 1, got {correlation}")
    return first + second - 2 * correlation * math.sqrt(first * second)


def count_documents_needed(
    effect: float, variance: DifferenceVariance, *, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Return the number of documents needed to detect a true difference with this power.

    Miller's example: a variance of 1/9 and a difference of 3 points need 969.

    >>> count_documents_needed(0.03, DifferenceVariance(between=1 / 9))
    969
    """
    if effect == 0:
        raise AssayError("the effect must not be 0")
    return math.ceil(_compute_z_sum(power, alpha) ** 2 * variance.variance / effect**2)


def find_detectable_effect(
    documents: int, variance: DifferenceVariance, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the smallest true difference that this number of documents detects with this power.

    >>> round(find_detectable_effect(969, DifferenceVariance(between=1 / 9)), 4)
    0.03
    """
    if documents < 1:
        raise AssayError("an effect needs at least one document")
    return _compute_z_sum(power, alpha) * math.sqrt(variance.variance / documents)


def _compute_z_sum(power: float, alpha: float) -> float:
    return normal_quantile(1 - alpha / 2) + normal_quantile(power)
