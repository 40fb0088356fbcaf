"""Normal, Student's t, beta and binomial distributions for intervals and tests.

Implemented here so that the base install does not need SciPy; the tests compare them with SciPy over their whole range.
Scalars only: nothing here is called per document.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

__all__ = [
    "beta_cdf",
    "beta_quantile",
    "binomial_cdf",
    "normal_cdf",
    "normal_quantile",
    "t_cdf",
    "t_quantile",
]

_NORMAL = NormalDist()
_MAX_STEPS = 100_000
_TINY = 1e-300
_NORMAL_DEGREES = 1e7
"""Degrees of freedom above which the t distribution equals the normal one in all displayed digits."""


def normal_cdf(value: float) -> float:
    """Return the standard normal CDF, accurate in both tails.

    >>> normal_cdf(0.0)
    0.5
    """
    return math.erfc(-value / math.sqrt(2)) / 2


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution.

    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    return _NORMAL.inv_cdf(probability)


def beta_cdf(value: float, first: float, second: float) -> float:
    """Return the CDF of Beta(first, second): the regularised incomplete beta function.

    >>> round(beta_cdf(0.5, 2.0, 2.0), 12)
    0.5
    """
    if value <= 0:
        return 0.0
    if value >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(first + second)
        - math.lgamma(first)
        - math.lgamma(second)
        + first * math.log(value)
        + second * math.log1p(-value)
    )
    if value < (first + 1) / (first + second + 2):  # the continued fraction converges quickly here
        return front * _continued_fraction(value, first, second) / first
    return 1 - front * _continued_fraction(1 - value, second, first) / second


def _continued_fraction(value: float, first: float, second: float) -> float:
    """Return the continued fraction of the incomplete beta function (Lentz's method)."""
    upper, lower = 1.0, 1 - (first + second) * value / (first + 1)
    lower = 1 / (lower if abs(lower) > _TINY else _TINY)
    result = lower
    for step in range(1, _MAX_STEPS):
        twice = first + 2 * step
        for term in (
            step * (second - step) * value / ((twice - 1) * twice),
            -(first + step) * (first + second + step) * value / (twice * (twice + 1)),
        ):
            lower = 1 + term * lower
            lower = 1 / (lower if abs(lower) > _TINY else _TINY)
            upper = 1 + term / upper
            upper = upper if abs(upper) > _TINY else _TINY
            change = upper * lower
            result *= change
        if abs(change - 1) < 1e-15:
            break
    return result


def beta_quantile(probability: float, first: float, second: float) -> float:
    """Return the quantile of Beta(first, second).

    >>> round(beta_quantile(0.5, 3.0, 3.0), 12)
    0.5
    """
    return _bisect(lambda value: beta_cdf(value, first, second), probability, 0.0, 1.0)


def t_cdf(value: float, degrees: float) -> float:
    """Return the CDF of Student's t distribution."""
    if degrees > _NORMAL_DEGREES:
        return normal_cdf(value)
    tail = beta_cdf(degrees / (degrees + value * value), degrees / 2, 0.5) / 2
    return tail if value < 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution.

    >>> round(t_quantile(0.975, 4), 4)
    2.7764
    """
    if degrees > _NORMAL_DEGREES:
        return normal_quantile(probability)
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    share = beta_quantile(2 * (1 - probability), degrees / 2, 0.5)
    return math.sqrt(degrees * (1 - share) / share)


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """Return the probability of at most `successes` successes.

    >>> round(binomial_cdf(1, 4, 0.5), 12)
    0.3125
    """
    if successes < 0:
        return 0.0
    if successes >= trials:
        return 1.0
    return beta_cdf(1 - probability, trials - successes, successes + 1)


def _bisect(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Return where an increasing function reaches a value, to float precision."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if function(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2
