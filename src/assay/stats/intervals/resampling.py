"""Fast bootstrap intervals for metrics without a closed form, and for differences between two models.

`bootstrap.py` reproduces the resamples of lm-eval exactly. The functions here use other resamples, so they need not draw
every document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.intervals.bootstrap import build_row_scorer
from assay.stats.intervals.confidence_intervals import Clusters, Interval, encode_clusters
from assay.stats.numerics.distributions import normal_cdf, t_quantile
from assay.stats.numerics.exact_summation import to_float_array

__all__ = [
    "CorpusDifference",
    "bootstrap_interval",
    "bootstrap_means",
    "compare_corpora",
    "compute_fast_replicates",
    "expanded_percentile_interval",
    "percentile_interval",
]

Floats = NDArray[np.float64]

_MAX_DISTINCT_VALUES = 8
_GRID_POINTS = 1 << 17
_GRID_REACH_DEVIATIONS = 10
_BLOCK_DRAWS = 1 << 18


def bootstrap_means(values: ArrayLike, resamples: int = 100_000, *, seed: int = 0) -> Floats:
    """Return the means of bootstrap resamples without drawing the resamples.

    For few distinct values (such as 0 and 1), the counts of each value are drawn from a multinomial distribution. For
    others, the distribution of the sum of n draws is the n-fold convolution of the values, computed by FFT; means are drawn
    from it. The values are placed on a grid, each split between the two nearest points so that the mean is exact; the
    relative error of the variance is about a millionth.
    """
    numbers = np.asarray(values, dtype=np.float64)
    size, draw = len(numbers), np.random.default_rng(seed)
    if not size:
        raise AssayError("there are no values to resample")
    if not np.isfinite(numbers).all():
        raise AssayError("values must be finite")
    kinds, codes = np.unique(numbers, return_inverse=True)
    if len(kinds) <= _MAX_DISTINCT_VALUES:
        counts = np.bincount(codes.ravel())
        return draw.multinomial(size, counts / size, size=resamples) @ kinds / size
    centre = float(numbers.mean())
    # no value is farther from the mean than sqrt(n) deviations; sums beyond ten times that are negligible
    step = 2 * _GRID_REACH_DEVIATIONS * math.sqrt(size) * float(numbers.std()) / _GRID_POINTS
    if step == 0.0:  # the differences underflow when squared
        return np.full(resamples, centre)
    below, share = np.divmod((numbers - centre) / step, 1.0)
    at = below.astype(np.int64) % _GRID_POINTS
    chances = np.bincount(at, 1.0 - share, _GRID_POINTS) + np.bincount(
        (at + 1) % _GRID_POINTS, share, _GRID_POINTS
    )
    sums = np.fft.irfft(np.fft.rfft(chances / size) ** size, _GRID_POINTS)
    up_to = np.cumsum(np.maximum(np.fft.fftshift(sums), 0.0))
    places = np.searchsorted(up_to, draw.random(resamples) * up_to[-1], side="right")
    means: Floats = centre + (places - _GRID_POINTS // 2) * step / size
    return means


def compute_fast_replicates(
    name: str, values: Sequence[Any], resamples: int = 100_000, *, seed: int = 0
) -> Floats | None:
    """Return an aggregation of resamples without drawing every document; None if that is not possible.

    Perplexity needs only the mean of a resample. The (upper) median of a resample is an order statistic, whose rank has a
    known beta distribution, so drawing the rank is exact.

    >>> compute_fast_replicates("median", [3.0, 1.0, 2.0], 5).shape
    (5,)
    """
    numbers = to_float_array(values) if name in ("perplexity", "median", "nanmean") else None
    if numbers is None or not len(numbers) or not np.isfinite(numbers).all():
        return None
    if name == "median":
        size, middle = len(numbers), len(numbers) // 2
        places = np.random.default_rng(seed).beta(middle + 1, size - middle, size=resamples)
        return np.asarray(
            np.sort(numbers)[np.minimum((places * size).astype(np.intp), size - 1)], dtype=np.float64
        )
    means = bootstrap_means(numbers, resamples, seed=seed)
    return np.exp(-means) if name == "perplexity" else means


def percentile_interval(replicates: ArrayLike, *, level: float = 0.95, method: str = "bootstrap") -> Interval:
    """Return the percentile interval of replicates, ignoring NaN."""
    tail = 50 * (1 - level)
    low, high = np.nanpercentile(np.asarray(replicates, dtype=np.float64), [tail, 100 - tail])
    return Interval(low=float(low), high=float(high), method=method, level=level)


def bootstrap_interval(
    name: str,
    values: Sequence[Any],
    clusters: Clusters | None = None,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Return the bootstrap interval of a named aggregation (BLEU, Matthews correlation); None if it has no row scorer.

    Whole clusters are resampled if there are any.

    >>> bootstrap_interval("matthews_corrcoef", [(1, 1), (0, 1), (1, 0), (1, 1)] * 20).method
    'bootstrap'
    """
    score = build_row_scorer(name, values)
    codes, count = encode_clusters(clusters) if clusters is not None else (None, len(values))
    if score is None or count < 2:
        return None
    (value,) = score(np.arange(len(values), dtype=np.intp)[None, :])
    if codes is None or count == len(values):
        (scores,) = _score_resamples([score], len(values), resamples, seed)
        return expanded_percentile_interval(scores, count, value=value, level=level)
    (scores,) = _score_cluster_resamples([score], codes, count, resamples, seed)
    return expanded_percentile_interval(
        scores, count, value=value, level=level, method="bootstrap, clustered"
    )


def expanded_percentile_interval(
    replicates: ArrayLike,
    units: int,
    *,
    value: float | None = None,
    level: float = 0.95,
    method: str = "bootstrap",
) -> Interval:
    """Return a percentile interval that is wide enough for few units.

    A resample of n units has a variance too small by (n - 1) / n, and its percentiles are those of a normal distribution
    instead of Student's t. Wider percentiles make up for both (Hesterberg, arXiv 1411.5279). Few units have few different
    resamples, which end before these percentiles. With the `value` of the sample, the interval is at least Student's t with the
    deviation of the resamples; the caller limits it to the range of the metric.
    """
    reach = math.sqrt(units / (units - 1)) * t_quantile((1 + level) / 2, units - 1)
    wider = 1 - 2 * normal_cdf(-reach)
    found = replace(percentile_interval(replicates, level=wider, method=method), level=level)
    if value is None:
        return found
    half = reach * float(np.nanstd(np.asarray(replicates, dtype=np.float64), ddof=1))
    return replace(found, low=min(found.low, value - half), high=max(found.high, value + half))


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusDifference:
    """The difference of two models in a corpus metric: second minus first."""

    first: float
    second: float
    stderr: float
    interval: Interval
    p_value: float
    clusters: int | None = None

    @property
    def value(self) -> float:
        """Second minus first."""
        return self.second - self.first


def compare_corpora(
    name: str,
    first: Sequence[Any],
    second: Sequence[Any],
    clusters: Clusters | None = None,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> CorpusDifference | None:
    """Compare two models in a corpus metric (F1, BLEU, perplexity), paired by document; None if it has no row scorer.

    The interval is a paired bootstrap. The p-value is from approximate randomisation: the answers of the models are
    swapped at random, in whole clusters if there are any.
    """
    both, size = [*first, *second], len(first)
    score = build_row_scorer(name, both)
    if score is None or size < 2 or len(second) != size:
        return None
    codes, count = (
        encode_clusters(clusters) if clusters is not None else (np.arange(size, dtype=np.intp), size)
    )
    if count < 2:
        return None
    places = np.arange(size, dtype=np.intp)
    as_first, as_second = (score(rows[None, :])[0] for rows in (places, places + size))
    pair_scorers = [score, lambda rows: score(rows + size)]
    if count < size:
        lower, upper = _score_cluster_resamples(pair_scorers, codes, count, resamples, seed)
    else:
        lower, upper = _score_resamples(pair_scorers, size, resamples, seed)
    steps = np.asarray(upper) - np.asarray(lower)
    steps = steps[np.isfinite(steps)]
    if len(steps) < 2:
        return None
    draw, extreme, done = np.random.default_rng(seed + 1), 1, 0
    height = max(1, _BLOCK_DRAWS // size)
    seen = abs(as_second - as_first) * (1 - 1e-9)
    while done < resamples:
        rows = min(height, resamples - done)
        swapped = draw.integers(0, 2, size=(rows, count), dtype=np.intp)[:, codes] * size
        swapped_first = np.asarray(score(places + swapped))
        swapped_second = np.asarray(score(places + size - swapped))
        extreme += int((np.abs(swapped_second - swapped_first) >= seen).sum())
        done += rows
    return CorpusDifference(
        first=as_first,
        second=as_second,
        stderr=float(steps.std(ddof=1)),
        interval=expanded_percentile_interval(steps, count, level=level, method="paired bootstrap"),
        p_value=extreme / (1 + resamples),
        clusters=count if count < size else None,
    )


def _score_cluster_resamples(
    scorers: Sequence[Callable[[NDArray[np.intp]], list[float]]],
    codes: NDArray[np.intp],
    count: int,
    resamples: int,
    seed: int,
) -> list[list[float]]:
    """Score resamples of whole clusters, so that the number of documents varies."""
    draw = np.random.default_rng(seed)
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes, minlength=count))[:-1])
    found: list[list[float]] = [[] for _ in scorers]
    for _ in range(resamples):
        rows = np.concatenate([members[one] for one in draw.integers(0, count, size=count)])[None, :]
        for scores, score in zip(found, scorers, strict=True):
            scores += score(rows)
    return found


def _score_resamples(
    scorers: Sequence[Callable[[NDArray[np.intp]], list[float]]], size: int, resamples: int, seed: int
) -> list[list[float]]:
    """Apply each scorer to the same resamples, in blocks of bounded size."""
    draw = np.random.default_rng(seed)
    found: list[list[float]] = [[] for _ in scorers]
    height = max(1, _BLOCK_DRAWS // size)
    for start in range(0, resamples, height):
        rows = draw.integers(0, size, size=(min(height, resamples - start), size), dtype=np.intp)
        for scores, score in zip(found, scorers, strict=True):
            scores += score(rows)
    return found
