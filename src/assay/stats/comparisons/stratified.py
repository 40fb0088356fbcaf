"""The mean difference over several tasks: a t-test with Satterthwaite's degrees of freedom.

A normal distribution would treat the standard errors of the tasks as known. With few documents per task they are estimates, so
that a test at 5 % rejects a true null hypothesis up to twice as often (10 % for two tasks of four documents).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.stats.numerics.distributions import t_cdf, t_quantile

__all__ = ["Stratum", "StratifiedDifference", "combine_strata", "compute_flip_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """The difference in one task."""

    value: float
    stderr: float
    degrees: float
    """Degrees of freedom of the standard error: documents or clusters minus one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratifiedDifference:
    """The mean of the differences."""

    value: float
    stderr: float
    degrees: float
    low: float
    high: float
    p_value: float


def combine_strata(
    strata: Sequence[Stratum],
    *,
    weights: Sequence[float] | None = None,
    level: float = 0.95,
    limit: float = 1.0,
) -> StratifiedDifference:
    """Return the mean difference over tasks, its interval within ±`limit`, and its two-sided p-value.

    `weights` has a sum of 1; None: all tasks have the same weight.

    >>> one = Stratum(value=0.1, stderr=0.04, degrees=9)
    >>> found = combine_strata([one, one])
    >>> round(found.degrees, 1), round(found.p_value, 4)
    (18.0, 0.0024)
    """
    shares = [1 / len(strata)] * len(strata) if weights is None else list(weights)
    value = sum(share * one.value for share, one in zip(shares, strata, strict=True))
    errors = [share * one.stderr for share, one in zip(shares, strata, strict=True)]
    total = sum(error**2 for error in errors)
    if total == 0:
        return StratifiedDifference(
            value=value, stderr=0.0, degrees=math.inf, low=value, high=value, p_value=float(value == 0)
        )
    pairs = zip(errors, strata, strict=True)
    degrees = total**2 / sum(error**4 / max(one.degrees, 1.0) for error, one in pairs)
    error = math.sqrt(total)
    half = t_quantile((1 + level) / 2, degrees) * error
    return StratifiedDifference(
        value=value,
        stderr=error,
        degrees=degrees,
        low=max(value - half, -limit),
        high=min(value + half, limit),
        p_value=min(1.0, 2 * t_cdf(-abs(value) / error, degrees)),
    )


def compute_flip_error(wins: int, losses: int, total: int) -> float:
    """Return the standard error of a mean of differences of -1, 0 and 1; 0 if all are equal.

    >>> round(compute_flip_error(3, 1, 10), 4)
    0.2
    """
    if total < 2:
        return 0.0
    mean = (wins - losses) / total
    return math.sqrt(max((wins + losses) / total - mean * mean, 0.0) / (total - 1))
