"""How a score changes with another number, such as the length of a response: means by bins, and the rank correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.numerics.distributions import t_quantile

__all__ = ["RankCorrelation", "TrendBin", "compute_rank_correlation", "compute_trend"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendBin:
    """The mean score of the documents whose number lies between two values."""

    low: float
    high: float
    middle: float
    """Median of the numbers."""

    documents: int
    mean: float
    mean_low: float | None
    mean_high: float | None
    """95 % interval of the mean; None for one document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCorrelation:
    """Spearman's rank correlation with its 95 % interval."""

    value: float
    low: float
    high: float
    documents: int


def compute_trend(numbers: ArrayLike, scores: ArrayLike, *, bins: int = 10) -> tuple[TrendBin, ...]:
    """Divide the documents into bins of about equal size by a number, and return the mean score of each.

    >>> [(one.low, one.high, one.mean) for one in compute_trend([1, 2, 3, 4], [0, 0, 1, 1], bins=2)]
    [(1.0, 2.0, 0.0), (3.0, 4.0, 1.0)]
    """
    across, values = np.asarray(numbers, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if not len(across):
        return ()
    order = np.argsort(across, kind="stable")
    across, values = across[order], values[order]
    starts = _divide(np.unique(across, return_counts=True)[1].tolist(), len(across) / bins)
    ends = [*starts[1:], len(across)]
    return tuple(
        _build_bin(across[start:end], values[start:end]) for start, end in zip(starts, ends, strict=True)
    )


def _divide(counts: list[int], size: float) -> list[int]:
    """Return the starts of bins of about equal size; equal numbers stay together, and a frequent one is a bin of its own.

    >>> _divide([1, 1, 1, 1], 2), _divide([4, 1], 1.25)
    ([0, 2], [0, 4])
    """
    starts, start, place, total = [0], 0, 0, sum(counts)
    for count in counts:
        if place > start and place + count - start > 1.5 * size:
            start = place
            starts.append(start)
        place += count
        if place - start >= size and place < total:
            start = place
            starts.append(start)
    return starts


def _build_bin(numbers: Floats, scores: Floats) -> TrendBin:
    count, mean = len(scores), float(scores.mean())
    low: float | None = None
    high: float | None = None
    if bool(((scores == 0) | (scores == 1)).all()):
        interval = wilson_interval(float(scores.sum()), count)
        low, high = interval.low, interval.high
    elif count > 1:
        half = t_quantile(0.975, count - 1) * float(scores.std(ddof=1)) / math.sqrt(count)
        low, high = mean - half, mean + half
    return TrendBin(
        low=float(numbers[0]),
        high=float(numbers[-1]),
        middle=float(np.median(numbers)),
        documents=count,
        mean=mean,
        mean_low=low,
        mean_high=high,
    )


def compute_rank_correlation(first: ArrayLike, second: ArrayLike) -> RankCorrelation | None:
    """Return the rank correlation; None for fewer than four documents or if all values of one side are equal.

    >>> compute_rank_correlation([1, 2, 3, 4], [10, 20, 30, 50]).value
    1.0
    """
    one, other = (_rank(np.asarray(values, dtype=np.float64)) for values in (first, second))
    if len(one) < 4 or one.std() == 0 or other.std() == 0:
        return None
    value = float(np.corrcoef(one, other)[0, 1])
    value = min(1.0, max(-1.0, round(value, 12)))
    if abs(value) == 1:
        return RankCorrelation(value=value, low=value, high=value, documents=len(one))
    half = 1.959964 * math.sqrt((1 + value * value / 2) / (len(one) - 3))  # Bonett and Wright (2000)
    middle = math.atanh(value)
    return RankCorrelation(
        value=value, low=math.tanh(middle - half), high=math.tanh(middle + half), documents=len(one)
    )


def _rank(values: Floats) -> Floats:
    """Return ranks; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[places]
    return ranks
