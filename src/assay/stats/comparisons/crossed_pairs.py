"""Paired comparison of two models over documents and prompt variants.

The documents' part is the paired comparison of the means of each document over the variants. The variants' part is Student's t of the
differences of the variants, without subtracting the part of the documents: of few variants the rest can be 0 by chance, which
would call equal models different too often. The distances of both parts from the difference are combined (MOVER), in the interval and
in the p-value. If all variants have the same difference, both are those of the documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import AssayError
from assay.stats.comparisons.comparison import compare_pairs
from assay.stats.intervals.confidence_intervals import Interval
from assay.stats.intervals.crossed import estimate_crossed
from assay.stats.numerics.distributions import t_quantile

__all__ = ["CrossedDifference", "compare_crossed_pairs"]

METHOD = "documents × variants"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedDifference:
    """The difference of two models over documents and variants: second minus first."""

    value: float
    stderr: float
    degrees: float
    interval: Interval
    p_value: float
    test: str


def compare_crossed_pairs(
    first: ArrayLike, second: ArrayLike, clusters: Sequence[Any] | None = None, *, level: float = 0.95
) -> CrossedDifference:
    """Compare two tables of scores with a row per document and a column per variant.

    >>> found = compare_crossed_pairs([[0, 0], [0, 0], [0, 0]], [[1, 1], [1, 1], [1, 1]])
    >>> found.value, found.p_value
    (1.0, 0.25)

    Raises:
        AssayError: The tables differ in shape, or there are fewer than two variants.
    """
    before, after = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if before.shape != after.shape or before.ndim != 2 or before.shape[1] < 2:
        raise AssayError("a comparison over variants needs the same two or more variants of both models")
    steps = after - before
    variants = steps.shape[1]
    inner = compare_pairs(before.mean(axis=1), after.mean(axis=1), clusters, level=level)
    error = math.sqrt(float(steps.mean(axis=0).var(ddof=1)) / variants)
    half = t_quantile((1 + level) / 2, variants - 1) * error
    value = float(steps.mean())
    low = value - math.hypot(max(0.0, value - inner.interval.low), half)
    high = value + math.hypot(max(0.0, inner.interval.high - value), half)
    if min(before.min(), after.min()) >= 0 and max(before.max(), after.max()) <= 1:
        low, high = max(low, -1.0), min(high, 1.0)
    spread = estimate_crossed(steps, clusters)
    return CrossedDifference(
        value=value,
        stderr=spread.stderr,
        degrees=float(variants - 1 if spread.variant_deviation else len(steps) - 1),
        interval=Interval(low=low, high=high, method=METHOD, level=level),
        p_value=_widen_p_value(inner.p_value, abs(value), error, variants - 1),
        test=f"{inner.test}, {METHOD}",
    )


def _widen_p_value(p_value: float, distance: float, error: float, degrees: int) -> float:
    """Return the p-value of the documents with the spread between variants added.

    The p-value of the documents is that of a normal distribution with some standard error; the result is the level at which this
    part and that of the variants together reach the distance from zero.
    """
    quantile = t_quantile(1 - p_value / 2, math.inf)
    if quantile <= 1e-9 or distance == 0:  # a p-value of 1, up to rounding
        return 1.0
    if error <= distance * 1e-12:  # all variants have the same difference, up to rounding
        return p_value
    inner_error = distance / quantile
    low, high = p_value, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        reach = math.hypot(
            t_quantile(1 - middle / 2, math.inf) * inner_error, t_quantile(1 - middle / 2, degrees) * error
        )
        low, high = (middle, high) if reach > distance else (low, middle)
    return high
