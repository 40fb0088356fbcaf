"""How many documents it takes to see a difference, and how small a difference so many documents can show.

Miller's formulas (arXiv 2411.00640, section 5): the variance of a paired difference is that between documents plus that
between repeats of one document, over the number of repeats; clusters multiply it by the design effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.stats.distributions import normal_cdf, normal_quantile

__all__ = ["Spread", "detectable_effect", "documents_needed", "paired_spread", "power_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much differences between two models vary, per document."""

    between: float
    """Variance of the documents' true differences."""

    within_first: float = 0.0
    within_second: float = 0.0
    """Variance between repeats of one document, on average; 0 where answers are always the same."""

    repeats_first: int = 1
    repeats_second: int = 1
    design_effect: float = 1.0
    """How many times clusters enlarge the variance of the mean."""

    @property
    def variance(self) -> float:
        """Of one document's measured difference."""
        noise = self.within_first / self.repeats_first + self.within_second / self.repeats_second
        return (self.between + noise) * self.design_effect


def paired_spread(first: float, second: float, correlation: float) -> float:
    """The variance of a difference from two variances and how strongly the models agree on what is hard.

    >>> round(paired_spread(0.25, 0.25, 0.5), 4)
    0.25
    """
    if not -1 <= correlation <= 1:
        raise AssayError(f"a correlation lies between -1 and 1, not at {correlation}")
    return first + second - 2 * correlation * math.sqrt(first * second)


def documents_needed(effect: float, spread: Spread, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """How many documents show a true difference of this size with this probability.

    Miller's example: a spread of 1/9 and a difference of 3 points take 969.

    >>> documents_needed(0.03, Spread(between=1 / 9))
    969
    """
    if effect == 0:
        raise AssayError("no number of documents shows a difference of nothing")
    return math.ceil(_reach(power, alpha) ** 2 * spread.variance / effect**2)


def detectable_effect(documents: int, spread: Spread, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true difference so many documents show with this probability.

    >>> round(detectable_effect(969, Spread(between=1 / 9)), 4)
    0.03
    """
    if documents < 1:
        raise AssayError("an effect needs at least one document")
    return _reach(power, alpha) * math.sqrt(spread.variance / documents)


def power_of(effect: float, documents: int, spread: Spread, *, alpha: float = 0.05) -> float:
    """The probability that so many documents show a true difference of this size."""
    error = math.sqrt(spread.variance / documents)
    if error == 0:
        return 1.0 if effect else alpha
    border, shift = normal_quantile(1 - alpha / 2), abs(effect) / error
    return normal_cdf(shift - border) + normal_cdf(-shift - border)


def _reach(power: float, alpha: float) -> float:
    return normal_quantile(1 - alpha / 2) + normal_quantile(power)
