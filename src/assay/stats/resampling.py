"""Bootstrap intervals, quickly: for numbers that have no formula, and for the difference of two of them.

`bootstrap.py` repeats lm-evaluation-harness's resamples to the last bit, because its standard errors are published. These
here are free of that: they need not draw every document to know what a resample's mean is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.bootstrap import row_scorer
from assay.stats.intervals import Clusters, Interval, cluster_codes
from assay.stats.sums import plain_floats

__all__ = [
    "CorpusDifference",
    "bootstrap_interval",
    "bootstrap_means",
    "compare_corpora",
    "own_replicates",
    "percentiles",
]

Floats = NDArray[np.float64]

_KINDS = 8
_GRID = 1 << 17
_REACH = 10
_BLOCK = 1 << 18


def bootstrap_means(values: ArrayLike, resamples: int = 100_000, *, seed: int = 0) -> Floats:
    """The means of resamples of some values, drawn without drawing the resamples.

    Values of few kinds (0 and 1) are drawn by kind: how often each was hit is all there is to know. Of others, the sum of n
    draws has a distribution that needs no luck: the n-fold convolution of the values' own, one Fourier transform there and
    one back. Means are then drawn from that. The values lie on a grid for it, each shared between the two nearest points so
    that the mean stays what it is; it is so fine that the variance is right to some millionths.
    """
    numbers = np.asarray(values, dtype=np.float64)
    size, draw = len(numbers), np.random.default_rng(seed)
    if not size:
        raise AssayError("there is nothing to resample")
    if not np.isfinite(numbers).all():
        raise AssayError("only finite numbers have a mean to resample")
    kinds, codes = np.unique(numbers, return_inverse=True)
    if len(kinds) <= _KINDS:
        counts = np.bincount(codes.ravel())
        return draw.multinomial(size, counts / size, size=resamples) @ kinds / size
    centre = float(numbers.mean())
    # no value is further out than this, and no sum ten times as far: that would be ten draws of one document
    step = 2 * _REACH * math.sqrt(size) * float(numbers.std()) / _GRID
    if step == 0.0:  # they differ by less than can be squared
        return np.full(resamples, centre)
    below, share = np.divmod((numbers - centre) / step, 1.0)
    at = below.astype(np.int64) % _GRID
    chances = np.bincount(at, 1.0 - share, _GRID) + np.bincount((at + 1) % _GRID, share, _GRID)
    sums = np.fft.irfft(np.fft.rfft(chances / size) ** size, _GRID)
    up_to = np.cumsum(np.maximum(np.fft.fftshift(sums), 0.0))
    places = np.searchsorted(up_to, draw.random(resamples) * up_to[-1], side="right")
    means: Floats = centre + (places - _GRID // 2) * step / size
    return means


def own_replicates(
    name: str, values: Sequence[Any], resamples: int = 100_000, *, seed: int = 0
) -> Floats | None:
    """An aggregation of resamples, where not every document has to be drawn for it; None where there is no such way.

    A perplexity needs a resample's mean. Its median (the upper of two) is the document at one of its places in order, and
    where the n-th of many draws falls is known: drawing that one is enough, and exact.

    >>> own_replicates("median", [3.0, 1.0, 2.0], 5).shape
    (5,)
    """
    numbers = plain_floats(values) if name in ("perplexity", "median", "nanmean") else None
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


def percentiles(replicates: ArrayLike, *, level: float = 0.95, method: str = "bootstrap") -> Interval:
    """The middle part of some replicates; of those that are numbers, where some resamples have none."""
    tail = 50 * (1 - level)
    low, high = np.nanpercentile(np.asarray(replicates, dtype=np.float64), [tail, 100 - tail])
    return Interval(low=float(low), high=float(high), method=method, level=level)


def bootstrap_interval(
    name: str, values: Sequence[Any], *, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval | None:
    """The interval of a named aggregation (F1, BLEU, a rate); None for one that cannot be resampled as a table.

    >>> bootstrap_interval("f1", [(1, 1), (0, 1), (1, 0), (1, 1)] * 20).method
    'bootstrap'
    """
    score = row_scorer(name, values)
    if score is None or len(values) < 2:
        return None
    return percentiles(_resampled([score], len(values), resamples, seed)[0], level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusDifference:
    """What a second model scores above a first one in a number that only a whole set of documents has."""

    first: float
    second: float
    stderr: float
    interval: Interval
    p_value: float
    clusters: int | None = None

    @property
    def value(self) -> float:
        """The second number minus the first."""
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
    """Two models in a corpus metric (F1, BLEU, perplexity), paired by document; None where it cannot be resampled.

    The interval comes from resamples of the documents, the p-value from swapping the models' answers at random
    (approximate randomisation): whole clusters where documents belong together.
    """
    both, size = [*first, *second], len(first)
    score = row_scorer(name, both)
    if score is None or size < 2 or len(second) != size:
        return None
    codes, count = cluster_codes(clusters) if clusters is not None else (np.arange(size, dtype=np.intp), size)
    if count < 2:
        return None
    places = np.arange(size, dtype=np.intp)
    as_first, as_second = (score(rows[None, :])[0] for rows in (places, places + size))
    pair_scorers = [score, lambda rows: score(rows + size)]
    if count < size:
        lower, upper = _resampled_clusters(pair_scorers, codes, count, resamples, seed)
    else:
        lower, upper = _resampled(pair_scorers, size, resamples, seed)
    steps = np.asarray(upper) - np.asarray(lower)
    steps = steps[np.isfinite(steps)]
    if len(steps) < 2:
        return None
    draw, extreme, done = np.random.default_rng(seed + 1), 1, 0
    height = max(1, _BLOCK // size)
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
        interval=percentiles(steps, level=level, method="paired bootstrap"),
        p_value=extreme / (1 + resamples),
        clusters=count if count < size else None,
    )


def _resampled_clusters(
    scorers: Sequence[Callable[[NDArray[np.intp]], list[float]]],
    codes: NDArray[np.intp],
    count: int,
    resamples: int,
    seed: int,
) -> list[list[float]]:
    """As `_resampled`, with whole clusters drawn: each resample has as many documents as its clusters have."""
    draw = np.random.default_rng(seed)
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes, minlength=count))[:-1])
    found: list[list[float]] = [[] for _ in scorers]
    for _ in range(resamples):
        rows = np.concatenate([members[one] for one in draw.integers(0, count, size=count)])[None, :]
        for scores, score in zip(found, scorers, strict=True):
            scores += score(rows)
    return found


def _resampled(
    scorers: Sequence[Callable[[NDArray[np.intp]], list[float]]], size: int, resamples: int, seed: int
) -> list[list[float]]:
    """What each scorer says of the same resamples, in blocks of bounded size."""
    draw = np.random.default_rng(seed)
    found: list[list[float]] = [[] for _ in scorers]
    height = max(1, _BLOCK // size)
    for start in range(0, resamples, height):
        rows = draw.integers(0, size, size=(min(height, resamples - start), size), dtype=np.intp)
        for scores, score in zip(found, scorers, strict=True):
            scores += score(rows)
    return found
