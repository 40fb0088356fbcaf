"""Confidence intervals of a mean.

The normal approximation (1.96 standard errors) needs many independent documents. These intervals also fit few documents
(Wilson), clustered documents, and scores other than 0 and 1 (Student's t). See Miller, "Adding Error Bars to Evals"
(arXiv 2411.00640) and Bowyer et al., "Position: Don't Use the CLT in LLM Evals With Fewer Than a Few Hundred Datapoints"
(arXiv 2503.01747).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.distributions import normal_quantile, t_quantile

__all__ = [
    "Clusters",
    "Interval",
    "clustered_interval",
    "compute_cluster_error",
    "compute_design_effect",
    "encode_clusters",
    "is_binary",
    "mean_interval",
    "t_interval",
    "wilson_interval",
]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Clusters = Sequence[Any] | NDArray[Any]
"""The cluster of each document: names or integer codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval and its method."""

    low: float
    high: float
    method: str
    level: float = 0.95

    @property
    def half_width(self) -> float:
        """Half the width: the number after ±."""
        return (self.high - self.low) / 2


def mean_interval(
    values: ArrayLike,
    clusters: Clusters | None = None,
    *,
    level: float = 0.95,
    limits: tuple[float, float] | None = None,
) -> Interval:
    """Return the interval of a mean: clustered if there are clusters, Wilson for scores of 0 and 1, else Student's t.
    `limits` is the range of possible scores, if known.

    >>> mean_interval([1, 1, 1, 1, 1]).method
    'wilson'

    Raises:
        AssayError: There are fewer than two documents or clusters.
    """
    numbers = np.asarray(values, dtype=np.float64)
    binary = is_binary(numbers)
    if clusters is not None:
        codes, count = encode_clusters(clusters)
        if count < len(numbers):
            return _clip_interval(
                clustered_interval(numbers, codes, level=level), (0.0, 1.0) if binary else limits
            )
    if binary:
        return wilson_interval(int(numbers.sum()), len(numbers), level=level)
    return _clip_interval(t_interval(numbers, level=level), limits)


def _clip_interval(interval: Interval, limits: tuple[float, float] | None) -> Interval:
    if limits is None:
        return interval
    return replace(interval, low=max(interval.low, limits[0]), high=min(interval.high, limits[1]))


def is_binary(values: Floats) -> bool:
    """Whether all values are 0 or 1."""
    return bool(((values == 0) | (values == 1)).all())


def wilson_interval(successes: float, total: float, *, level: float = 0.95) -> Interval:
    """Return the Wilson score interval of a proportion, which is accurate for few documents and near 0 and 1.

    >>> interval = wilson_interval(10, 10)
    >>> round(interval.low, 3), interval.high
    (0.722, 1.0)
    """
    _check_total(total)
    z = normal_quantile((1 + level) / 2)
    share, spread = successes / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Interval(
        low=0.0 if successes == 0 else low,
        high=1.0 if successes == total else high,
        method="wilson",
        level=level,
    )


def t_interval(values: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the Student t interval of the mean of independent values."""
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < 2:
        raise AssayError("an interval needs at least two documents")
    error = float(numbers.std(ddof=1)) / math.sqrt(len(numbers))
    return _build_t_interval(float(numbers.mean()), error, len(numbers) - 1, "t", level)


def clustered_interval(values: ArrayLike, clusters: Clusters, *, level: float = 0.95) -> Interval:
    """Return the t interval of the mean of clustered documents, with (clusters - 1) degrees of freedom.

    If all documents have the same score of 0 or 1, each cluster counts as one document of a Wilson interval.
    """
    numbers = np.asarray(values, dtype=np.float64)
    codes, count = encode_clusters(clusters)
    if count < 2:
        raise AssayError("an interval needs at least two clusters")
    error = compute_cluster_error(numbers, codes, count)
    if error == 0 and is_binary(numbers):
        few = wilson_interval(count * float(numbers.mean()), count, level=level)
        return Interval(low=few.low, high=few.high, method="clustered", level=level)
    return _build_t_interval(float(numbers.mean()), error, count - 1, "clustered", level)


def encode_clusters(clusters: Clusters) -> tuple[Codes, int]:
    """Return integer codes and the number of clusters; None is a cluster of its own.

    >>> encode_clusters(["a", "b", "a", None])
    (array([0, 1, 0, 2]), 3)
    """
    if isinstance(clusters, np.ndarray) and clusters.dtype.kind in "iu":
        return clusters.astype(np.intp, copy=False), int(clusters.max(initial=-1)) + 1
    known: dict[Any, int] = {}
    codes = np.fromiter(
        (known.setdefault(object() if name is None else name, len(known)) for name in clusters),
        dtype=np.intp,
        count=len(clusters),
    )
    return codes, len(known)


def compute_cluster_error(values: Floats, codes: Codes, count: int) -> float:
    """Return the clustered standard error of a mean with the correction G / (G - 1).

    Equation 4 of Miller (`compute_clustered_error`, as lmms-eval reports it) lacks the correction and is too small for
    few clusters. With one document per cluster this is the plain standard error.

    >>> round(compute_cluster_error(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0, 0, 1, 1]), 2), 4)
    0.5
    """
    steps = np.bincount(codes, weights=values - values.mean(), minlength=count)
    return math.sqrt(float((steps * steps).sum()) * count / (count - 1)) / len(values)


def compute_design_effect(values: ArrayLike, clusters: Clusters) -> float:
    """Return the design effect: the factor by which clusters increase the variance of the mean."""
    numbers = np.asarray(values, dtype=np.float64)
    codes, count = encode_clusters(clusters)
    plain = float(numbers.var(ddof=1)) / len(numbers)
    return compute_cluster_error(numbers, codes, count) ** 2 / plain if plain > 0 and count > 1 else 1.0


def _build_t_interval(middle: float, error: float, degrees: float, method: str, level: float) -> Interval:
    half = t_quantile((1 + level) / 2, degrees) * error
    return Interval(low=middle - half, high=middle + half, method=method, level=level)


def _check_total(total: float) -> None:
    if total <= 0:
        raise AssayError("a proportion of no documents has no interval")
