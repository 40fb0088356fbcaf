"""The distributions that intervals and tests need: normal, Student's t, beta, binomial.

Written out so that the base install stays small; the tests hold each against SciPy over its whole range. Scalars only:
one interval takes microseconds, and nothing here is called per document.
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
_MOST_STEPS = 100_000
_TINY = 1e-300
_ALMOST_NORMAL = 1e7
"""Degrees of freedom from which Student's t is the normal distribution in every digit that is shown."""


def normal_cdf(value: float) -> float:
    """The probability of a standard normal number up to `value`, exact in both tails.

    >>> normal_cdf(0.0)
    0.5
    """
    return math.erfc(-value / math.sqrt(2)) / 2


def normal_quantile(probability: float) -> float:
    """Where the standard normal distribution has this probability below.

    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    return _NORMAL.inv_cdf(probability)


def beta_cdf(value: float, first: float, second: float) -> float:
    """The regularised incomplete beta function: the probability of a Beta(first, second) number up to `value`.

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
    if value < (first + 1) / (first + second + 2):  # where the fraction converges quickly
        return front * _fraction(value, first, second) / first
    return 1 - front * _fraction(1 - value, second, first) / second


def _fraction(value: float, first: float, second: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    upper, lower = 1.0, 1 - (first + second) * value / (first + 1)
    lower = 1 / (lower if abs(lower) > _TINY else _TINY)
    result = lower
    for step in range(1, _MOST_STEPS):
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
    """Where Beta(first, second) has this probability below.

    >>> round(beta_quantile(0.5, 3.0, 3.0), 12)
    0.5
    """
    return _bisect(lambda value: beta_cdf(value, first, second), probability, 0.0, 1.0)


def t_cdf(value: float, degrees: float) -> float:
    """The probability of a number of Student's t distribution up to `value`."""
    if degrees > _ALMOST_NORMAL:
        return normal_cdf(value)
    tail = beta_cdf(degrees / (degrees + value * value), degrees / 2, 0.5) / 2
    return tail if value < 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Where Student's t distribution has this probability below.

    >>> round(t_quantile(0.975, 4), 4)
    2.7764
    """
    if degrees > _ALMOST_NORMAL:
        return normal_quantile(probability)
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    share = beta_quantile(2 * (1 - probability), degrees / 2, 0.5)
    return math.sqrt(degrees * (1 - share) / share)


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """The probability of at most so many successes.

    >>> round(binomial_cdf(1, 4, 0.5), 12)
    0.3125
    """
    if successes < 0:
        return 0.0
    if successes >= trials:
        return 1.0
    return beta_cdf(1 - probability, trials - successes, successes + 1)


def _bisect(function: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a rising function reaches a value, as exactly as floats can say."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if function(middle) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2
