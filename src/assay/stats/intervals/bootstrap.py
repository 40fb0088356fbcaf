"""Bootstrap standard errors for aggregations without a closed form, identical to those of lm-eval.

lm-eval draws chunks of a thousand resamples, chunk *i* with `random.Random(i).choices`. NumPy's Mersenne Twister with
the same state draws the same documents in bulk; blocks of bounded size limit memory.
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
from assay.stats.classification import build_f1_scorer, build_mcc_scorer
from assay.stats.numerics.exact_summation import compute_sample_deviation, sum_rows, to_float_array
from assay.stats.translation import TRANSLATION_AGGREGATIONS, build_translation_scorer

__all__ = [
    "BOOTSTRAP_AGGREGATIONS",
    "build_row_scorer",
    "compute_bootstrap_error",
    "compute_replicates",
    "draw_resamples",
]

Rows = NDArray[np.intp]
Scorer = Callable[[Rows], list[float]]

BOOTSTRAP_AGGREGATIONS = frozenset(
    {
        "median",
        "middle",
        "matthews_corrcoef",
        "f1",
        "perplexity",
        "nanmean",
        "ratio",
        *TRANSLATION_AGGREGATIONS,
    }
)
"""Aggregations with a bootstrap standard error."""

_CHUNK_RESAMPLES = 1000
BLOCK_DRAWS = 1 << 16
"""Draws per block and thread: half a megabyte per array fits in the CPU cache."""
_MAX_THREADS = 8


def compute_bootstrap_error(name: str, values: Sequence[Any], iterations: int) -> float | None:
    """Return the standard deviation of an aggregation over resamples; None for fewer than two resamples."""
    scores = compute_replicates(name, values, iterations)
    return compute_sample_deviation(scores) if len(scores) > 1 else None


def compute_replicates(name: str, values: Sequence[Any], iterations: int) -> list[float]:
    """Return the aggregation of each resample, in order. Chunks run in threads, because NumPy releases the GIL."""
    score = build_row_scorer(name, values) or _build_generic_scorer(name, values)
    height = min(_CHUNK_RESAMPLES, iterations)
    chunks = iterations // height if height > 0 else 0

    def score_chunk(chunk: int) -> list[float]:
        return [one for rows in draw_resamples(len(values), height, seed=chunk) for one in score(rows)]

    if chunks <= 1:
        return score_chunk(0) if chunks else []
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, chunks, _MAX_THREADS)) as pool:
        return [one for scores in pool.map(score_chunk, range(chunks)) for one in scores]


def draw_resamples(size: int, count: int, *, seed: int) -> Iterator[Rows]:
    """Yield `count` resamples in blocks; each row has `size` document indices.

    >>> next(draw_resamples(5, 2, seed=0)).ravel().tolist() == Random(0).choices(range(5), k=10)
    True
    """
    draw = _create_generator(seed)
    height = max(1, BLOCK_DRAWS // size)
    for start in range(0, count, height):
        shares = draw.random_sample((min(height, count - start), size))
        shares *= size
        yield shares.astype(np.intp)


def _create_generator(seed: int) -> np.random.RandomState:
    """Return NumPy's generator in the initial state of `random.Random(seed)`."""
    state = Random(seed).getstate()[1]
    draw = np.random.RandomState()
    draw.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    return draw


def build_row_scorer(name: str, values: Sequence[Any]) -> Scorer | None:
    """Return a function that computes an aggregation of many resamples at once, each a row of document indices; None if
    there is none for this aggregation."""
    if name in TRANSLATION_AGGREGATIONS:
        return build_translation_scorer(name, values)
    if name == "f1":
        return build_f1_scorer(values)
    if name in ("ratio", "weighted_perplexity", "bits_per_byte"):
        return _build_ratio_scorer(name, values)
    if name == "matthews_corrcoef":
        return build_mcc_scorer(values)
    numbers = to_float_array(values)
    if numbers is None:
        return None
    if name == "perplexity":
        return lambda rows: [math.exp(-(total / rows.shape[1])) for total in sum_rows(numbers[rows]).tolist()]
    if name == "nanmean":
        return _build_nanmean_scorer(numbers)
    if name == "middle":
        return lambda rows: numbers[rows[:, rows.shape[1] // 2]].tolist()
    if name == "median" and not np.isnan(numbers).any():
        return lambda rows: np.partition(numbers[rows], rows.shape[1] // 2, axis=1)[
            :, rows.shape[1] // 2
        ].tolist()
    return None


def _build_nanmean_scorer(numbers: NDArray[np.float64]) -> Scorer:
    known = ~np.isnan(numbers)
    filled = np.where(known, numbers, 0.0)

    def score(rows: Rows) -> list[float]:
        with np.errstate(invalid="ignore"):  # a resample of NaN only is NaN
            means = filled[rows].sum(axis=1) / known[rows].sum(axis=1)
        return [float(value) for value in means]

    return score


def _build_ratio_scorer(name: str, values: Sequence[Any]) -> Scorer:
    tops, bottoms = np.asarray(values, dtype=np.float64).T
    per_unit: dict[str, Callable[[Any], Any]] = {
        "weighted_perplexity": lambda share: np.exp(-share),
        "bits_per_byte": lambda share: -share / math.log(2),
    }
    scale = per_unit.get(name, lambda share: share)

    def score(rows: Rows) -> list[float]:
        with np.errstate(invalid="ignore", divide="ignore"):  # a resample of empty references only
            return [float(value) for value in scale(tops[rows].sum(axis=1) / bottoms[rows].sum(axis=1))]

    return score


def _build_generic_scorer(name: str, values: Sequence[Any]) -> Scorer:
    function = AGGREGATIONS.get(name)
    return lambda rows: [function([values[index] for index in row]) for row in rows.tolist()]
