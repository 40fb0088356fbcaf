"""Standard errors by resampling, where no formula is known.

The resamples are those of lm-evaluation-harness, so the numbers are the same to the last bit: chunks of a
thousand, chunk *i* drawn by `random.Random(i).choices`. NumPy's Mersenne twister, given the same state, draws
the same documents thousands at a time; blocks of bounded size keep memory flat.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.stats.aggregations import AGGREGATIONS
from assay.stats.classification import f1_of_rows, mcc_of_rows
from assay.stats.sums import plain_floats, row_sums, sample_deviation
from assay.stats.translation import TRANSLATION, translation_of_rows

__all__ = ["RESAMPLED", "bootstrap_error", "replicates", "resampled_rows", "row_scorer"]

Rows = NDArray[np.intp]
Scorer = Callable[[Rows], list[float]]

RESAMPLED = frozenset({"median", "matthews_corrcoef", "f1", "perplexity", "nanmean", "ratio", *TRANSLATION})
"""The aggregations whose standard error is a bootstrap."""

_CHUNK = 1000
_BLOCK = 1 << 16
"""Draws held at a time by each thread: half a megabyte per array stays in the cache."""
_MOST_THREADS = 8


def bootstrap_error(name: str, values: Sequence[Any], iterations: int) -> float | None:
    """The spread of an aggregation over resamples of its documents; None for fewer than two resamples."""
    scores = replicates(name, values, iterations)
    return sample_deviation(scores) if len(scores) > 1 else None


def replicates(name: str, values: Sequence[Any], iterations: int) -> list[float]:
    """The aggregation of each resample, in order. Chunks run in threads: NumPy lets others work meanwhile."""
    score = row_scorer(name, values) or _one_by_one(name, values)
    height = min(_CHUNK, iterations)
    chunks = iterations // height if height > 0 else 0

    def scores_of(chunk: int) -> list[float]:
        return [one for rows in resampled_rows(len(values), height, seed=chunk) for one in score(rows)]

    if chunks <= 1:
        return scores_of(0) if chunks else []
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, chunks, _MOST_THREADS)) as pool:
        return [one for scores in pool.map(scores_of, range(chunks)) for one in scores]


def resampled_rows(size: int, count: int, *, seed: int) -> Iterator[Rows]:
    """`count` resamples in blocks; each row holds `size` document numbers.

    >>> next(resampled_rows(5, 2, seed=0)).ravel().tolist() == Random(0).choices(range(5), k=10)
    True
    """
    draw = _twister(seed)
    height = max(1, _BLOCK // size)
    for start in range(0, count, height):
        shares = draw.random_sample((min(height, count - start), size))
        shares *= size
        yield shares.astype(np.intp)


def _twister(seed: int) -> np.random.RandomState:
    """NumPy's generator in the state `random.Random(seed)` starts from."""
    state = Random(seed).getstate()[1]
    draw = np.random.RandomState()
    draw.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    return draw


def row_scorer(name: str, values: Sequence[Any]) -> Scorer | None:
    """What computes an aggregation of many selections of documents at once, each a row of numbers; None where there is
    no way to."""
    if name in TRANSLATION:
        return translation_of_rows(name, values)
    if name == "f1":
        return f1_of_rows(values)
    if name in ("ratio", "weighted_perplexity", "bits_per_byte"):
        return _ratios(name, values)
    if name == "matthews_corrcoef":
        return mcc_of_rows(values)
    numbers = plain_floats(values)
    if numbers is None:
        return None
    if name == "perplexity":
        return lambda rows: [math.exp(-(total / rows.shape[1])) for total in row_sums(numbers[rows]).tolist()]
    if name == "nanmean":
        return _nanmeans(numbers)
    if name == "median" and not np.isnan(numbers).any():
        return lambda rows: np.partition(numbers[rows], rows.shape[1] // 2, axis=1)[
            :, rows.shape[1] // 2
        ].tolist()
    return None


def _nanmeans(numbers: NDArray[np.float64]) -> Scorer:
    known = ~np.isnan(numbers)
    filled = np.where(known, numbers, 0.0)

    def score(rows: Rows) -> list[float]:
        with np.errstate(invalid="ignore"):  # a resample of nothing but NaN is NaN
            means = filled[rows].sum(axis=1) / known[rows].sum(axis=1)
        return [float(value) for value in means]

    return score


def _ratios(name: str, values: Sequence[Any]) -> Scorer:
    tops, bottoms = np.asarray(values, dtype=np.float64).T
    per_unit: dict[str, Callable[[Any], Any]] = {
        "weighted_perplexity": lambda share: np.exp(-share),
        "bits_per_byte": lambda share: -share / math.log(2),
    }
    scale = per_unit.get(name, lambda share: share)

    def score(rows: Rows) -> list[float]:
        with np.errstate(invalid="ignore", divide="ignore"):  # a resample of nothing but empty references
            return [float(value) for value in scale(tops[rows].sum(axis=1) / bottoms[rows].sum(axis=1))]

    return score


def _one_by_one(name: str, values: Sequence[Any]) -> Scorer:
    function = AGGREGATIONS.get(name)
    return lambda rows: [function([values[place] for place in row]) for row in rows.tolist()]
