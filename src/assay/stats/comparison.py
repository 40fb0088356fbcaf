"""Two models on the same documents: how large the difference is, and whether chance alone would make one as large.

Paired by document: what both find easy cancels out, which is worth a third to two thirds of the documents (Miller 2024).
The interval is that of the mean difference, the p-value that of the test which fits: McNemar's exact one for scores of 0
and 1, sign flips (a permutation test) otherwise, with whole clusters flipped where documents belong together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.distributions import binomial_cdf, normal_quantile, t_quantile
from assay.stats.flips import flip_test
from assay.stats.intervals import Clusters, Interval, cluster_codes, cluster_error, is_binary

__all__ = ["Difference", "compare_pairs", "detectable_difference", "mcnemar"]

Floats = NDArray[np.float64]

_MOST_COUNTED = 1000
"""Flips up to which every way is counted; above, the sum is an incomplete beta function, exact to twelve digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a second model scores above a first one, on the same documents."""

    documents: int
    clusters: int | None
    """How many clusters they come in; None where each stands for itself."""

    degrees: float
    """Degrees of freedom of the standard error; infinite for a normal one."""

    first: float
    second: float
    value: float
    """The second mean minus the first."""

    stderr: float
    interval: Interval
    p_value: float
    test: str
    detectable: float | None
    """The smallest true difference this comparison would have found four times in five; None where nobody can tell."""

    wins: int
    ties: int
    losses: int
    """Documents on which the second one is higher, as high, lower."""


def compare_pairs(
    first: ArrayLike,
    second: ArrayLike,
    clusters: Clusters | None = None,
    *,
    level: float = 0.95,
    power: float = 0.8,
    seed: int = 0,
) -> Difference:
    """The difference between the scores of two models, document by document.

    >>> found = compare_pairs([1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0])
    >>> found.value, found.p_value, found.test
    (0.75, 0.03125, 'exact McNemar')
    """
    before, after = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if before.shape != after.shape or before.ndim != 1:
        raise AssayError("scores can be paired only if there are as many of one model as of the other")
    if not len(before):
        raise AssayError("the runs have no document in common, so there is nothing to compare")
    steps = after - before
    codes, count = cluster_codes(clusters) if clusters is not None else (None, len(steps))
    clustered = codes is not None and count < len(steps)
    wins, losses = int((steps > 0).sum()), int((steps < 0).sum())
    binary = is_binary(before) and is_binary(after)
    bounded = bool(min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1)
    middle, degrees = float(steps.mean()), math.inf
    if clustered and codes is not None:
        units: Floats = np.bincount(codes, weights=steps, minlength=count).astype(np.float64)
        error, degrees, method = (
            cluster_error(steps, codes, count) if count > 1 else 0.0,
            count - 1,
            "clustered",
        )
        p_value, test = flip_test(units, seed=seed)
        test = f"{test}, whole clusters"
    elif binary:
        middle, error = _adjusted_wald(wins, losses, len(steps))
        method = "adjusted Wald"
        p_value, test = mcnemar(wins, losses), "exact McNemar"
    else:
        error, degrees, method = _plain_error(steps), len(steps) - 1, "t"
        p_value, test = flip_test(steps, seed=seed)
    if error == 0 and bounded:
        error = _least_error(count)  # nothing that varies is no proof that nothing could
    known = degrees > 0
    half = t_quantile((1 + level) / 2, degrees) * error if known else math.inf
    low, high = middle - half, middle + half
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
        detectable=detectable_difference(error, degrees, level=level, power=power),
        wins=wins,
        ties=len(steps) - wins - losses,
        losses=losses,
    )


def detectable_difference(
    stderr: float, degrees: float, *, level: float = 0.95, power: float = 0.8, tests: int = 1
) -> float | None:
    """The smallest true difference that a comparison with this standard error finds with this probability. Of several
    tests each has to pass a stricter level, as the first one has to under Holm and under Benjamini and Hochberg.

    >>> round(detectable_difference(0.01, 1e9), 4), round(detectable_difference(0.01, 1e9, tests=10), 4)
    (0.028, 0.0365)
    """
    if stderr <= 0 or degrees <= 0:
        return None
    return (t_quantile(1 - (1 - level) / 2 / tests, degrees) + normal_quantile(power)) * stderr


def mcnemar(wins: int, losses: int) -> float:
    """The exact p-value of McNemar's test: were flips in both directions equally likely?

    >>> mcnemar(6, 0)
    0.03125
    """
    flips, fewer = wins + losses, min(wins, losses)
    if flips > _MOST_COUNTED:
        return min(1.0, 2 * binomial_cdf(fewer, flips, 0.5))
    ways, whole = 1, 0
    for count in range(fewer + 1):
        whole += ways
        ways = ways * (flips - count) // (count + 1)
    return min(1.0, float(2 * whole / 2**flips))


def _adjusted_wald(wins: int, losses: int, total: int) -> tuple[float, float]:
    """Middle and standard error of Bonett and Price's interval for paired proportions (2012): one flip added on each
    side, so that few documents, or none that flipped, do not look certain."""
    size = total + 2
    up, down = (wins + 1) / size, (losses + 1) / size
    return up - down, math.sqrt((up + down - (up - down) ** 2) / size)


def _least_error(units: int) -> float:
    """The standard error of Bonett and Price where nothing flipped: what so many documents or clusters leave open."""
    return _adjusted_wald(0, 0, units)[1]


def _plain_error(steps: Floats) -> float:
    return float(steps.std(ddof=1)) / math.sqrt(len(steps)) if len(steps) > 1 else 0.0
