"""Sampling designs: which documents to ask so that few of them estimate the score over all.

Documents that other models answered alike form a stratum, and a random sample is drawn from each stratum. Every document has a
known, positive probability to be drawn, so that the weighted mean has no bias, whatever the new model does. The history only
decides how much variance the strata remove. Strata whose scores vary more get more documents (Neyman allocation), but no
document is drawn less than half as often as another one because of it: a new model may fail where all others succeed.

`forecast_gain` holds out each model of the history in turn and computes the exact variance of the design for it. If the design
saves too little, `choose_design` returns simple random sampling.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError

__all__ = [
    "MIN_GAIN",
    "MIN_HISTORY",
    "GainForecast",
    "SamplingDesign",
    "build_design",
    "choose_design",
    "draw_documents",
    "forecast_gain",
    "simple_design",
]

Floats = NDArray[np.float64]
Indexes = NDArray[np.intp]

MIN_HISTORY = 3
"""Models that the history needs: with fewer, holding one out leaves too little to learn from."""

MIN_GAIN = 1.1
"""Stratify if the typical held-out model needs at least this many times the documents with simple random sampling."""

_MIN_WORST_GAIN = 0.9
"""… and no held-out model loses more than this."""

_SAMPLED_PER_STRATUM = 8
"""Sampled documents per stratum, on average: fewer would leave the variance within strata unknown."""

_MIN_SAMPLED = 2
_MIN_EXPECTED_SAMPLE = 4
"""Sampled documents that the smallest stratum would get with equal sampling rates."""

_MIN_DEVIATION_SHARE = 0.5
"""The assumed standard deviation of a stratum is at least this share of the largest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDesign:
    """A stratified sample without replacement: the documents of each stratum and how many of them are drawn."""

    strata: tuple[Indexes, ...]
    """The documents of each stratum, from those with the lowest mean score in the history to those with the highest."""

    counts: tuple[int, ...]
    """The number of documents drawn from each stratum."""

    @property
    def documents(self) -> int:
        """Number of documents of the task."""
        return sum(len(stratum) for stratum in self.strata)

    @property
    def sampled(self) -> int:
        """Number of documents drawn."""
        return sum(self.counts)

    @property
    def is_stratified(self) -> bool:
        return len(self.strata) > 1

    def compute_variance(self, scores: Floats) -> float:
        """Return the exact variance of the weighted mean over all samples, if the documents have these scores."""
        total = self.documents
        return math.fsum(
            (len(stratum) / total) ** 2
            * (1 - count / len(stratum))
            * float(scores[stratum].var(ddof=1))
            / count
            for stratum, count in zip(self.strata, self.counts, strict=True)
            if len(stratum) > 1
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GainForecast:
    """How much a stratified sample saves, from models of the history that were held out in turn.

    A gain of 1.5 means that simple random sampling needs 1.5 times the documents for the same variance.
    """

    gains: tuple[float, ...]
    """The gain for each held-out model."""

    @property
    def median(self) -> float:
        return float(np.median(self.gains))

    @property
    def worst(self) -> float:
        return min(self.gains)

    @property
    def pays(self) -> bool:
        """Whether the saving justifies unequal weights."""
        return self.median >= MIN_GAIN and self.worst >= _MIN_WORST_GAIN


def simple_design(documents: int, budget: int) -> SamplingDesign:
    """Return simple random sampling: one stratum.

    >>> simple_design(1000, 50).sampled
    50
    """
    return SamplingDesign(strata=(np.arange(documents, dtype=np.intp),), counts=(min(budget, documents),))


def build_design(history: ArrayLike, budget: int) -> SamplingDesign:
    """Return the stratified design for a table of scores with a row per model and a column per document; NaN: no score."""
    table = _fill_missing(history)
    documents = table.shape[1]
    if budget >= documents:
        return simple_design(documents, budget)
    strata = _split_documents(
        table,
        count=max(1, budget // _SAMPLED_PER_STRATUM),
        min_size=max(_SAMPLED_PER_STRATUM, math.ceil(_MIN_EXPECTED_SAMPLE * documents / budget)),
    )
    strata.sort(key=lambda stratum: (float(table[:, stratum].mean()), int(stratum[0])))
    sizes = np.array([len(stratum) for stratum in strata], dtype=np.float64)
    deviations = np.sqrt([float(table[:, stratum].var(axis=1).mean()) for stratum in strata])
    highest = float(deviations.max())
    assumed = np.maximum(deviations, _MIN_DEVIATION_SHARE * highest) if highest > 0 else np.ones(len(strata))
    counts = _allocate(sizes, assumed, budget)
    return SamplingDesign(strata=tuple(strata), counts=tuple(counts))


def forecast_gain(history: ArrayLike, budget: int, models: Sequence[str] | None = None) -> GainForecast:
    """Hold out each model in turn, build the design from the others, and compute its exact gain for the held-out model.

    `models` names the model of each row: rows of the same model are held out together, so that a model is not predicted from
    itself.

    Raises:
        AssayError: The history has fewer than two models.
    """
    table = np.asarray(history, dtype=np.float64)
    names = list(models) if models is not None else [str(row) for row in range(len(table))]
    if len(set(names)) < 2:
        raise AssayError("a forecast needs the scores of at least two models")
    filled = _fill_missing(table)
    plain = simple_design(table.shape[1], budget)
    gains = []
    for name in dict.fromkeys(names):
        own = np.array([one == name for one in names])
        design = build_design(table[~own], budget)
        for scores in filled[own][:1]:
            before, after = plain.compute_variance(scores), design.compute_variance(scores)
            if before > 0:  # a model with equal scores everywhere is exact with any sample
                gains.append(before / max(after, before * 1e-3))
    return GainForecast(gains=tuple(gains) or (1.0,))


def choose_design(
    history: ArrayLike, budget: int, models: Sequence[str] | None = None
) -> tuple[SamplingDesign, GainForecast | None]:
    """Return the stratified design if it pays, else simple random sampling; and the forecast (None: too little history)."""
    table = np.asarray(history, dtype=np.float64)
    count = len(set(models)) if models is not None else len(table)
    plain = simple_design(table.shape[1], budget)
    if budget >= table.shape[1] or count < MIN_HISTORY:
        return plain, None
    forecast = forecast_gain(table, budget, models)
    return (build_design(table, budget) if forecast.pays else plain), forecast


def draw_documents(design: SamplingDesign, seed: str) -> list[list[int]]:
    """Draw the documents of each stratum at random, ascending; the same for the same seed.

    >>> draw_documents(simple_design(10, 3), "0 task") == draw_documents(simple_design(10, 3), "0 task")
    True
    """
    random = Random(seed)
    return [
        sorted(random.sample(stratum.tolist(), count))
        for stratum, count in zip(design.strata, design.counts, strict=True)
    ]


def _fill_missing(history: ArrayLike) -> Floats:
    """Replace missing scores with the mean of the document, or of everything if no model has one."""
    table = np.array(history, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise AssayError("the history has no scores")
    missing = np.isnan(table)
    if missing.any():
        known = ~missing
        whole = float(table[known].mean()) if known.any() else 0.0
        counts = known.sum(axis=0)
        sums = np.where(missing, 0.0, table).sum(axis=0)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), whole)
        table = np.where(missing, means, table)
    return table


def _split_documents(table: Floats, *, count: int, min_size: int) -> list[Indexes]:
    """Split the documents into groups that the models answer alike.

    The group with the largest sum of squares is split in two, at the best place along the direction in which its documents
    differ most, until there are enough groups.
    """
    points = table.T
    whole: Indexes = np.arange(len(points), dtype=np.intp)
    number = 0
    heap: list[tuple[float, int, Indexes]] = [(-_sum_squares(points), 0, whole)]
    finished: list[Indexes] = []
    while heap and len(heap) + len(finished) < count:
        squares, _, group = heapq.heappop(heap)
        if len(group) < 2 * min_size or -squares <= 1e-9:
            finished.append(group)
            continue
        for part in _bisect(points[group], min_size):
            number += 1
            chosen = group[part]
            heapq.heappush(heap, (-_sum_squares(points[chosen]), number, chosen))
    return [*finished, *(group for *_, group in heap)]


def _sum_squares(points: Floats) -> float:
    centred = points - points.mean(axis=0)
    return float((centred * centred).sum())


def _bisect(points: Floats, min_size: int) -> tuple[Indexes, Indexes]:
    """Split points along their first principal direction so that the sum of squares of both parts is smallest."""
    centred = points - points.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    along = centred @ directions[:, -1]
    order = np.argsort(along, kind="stable").astype(np.intp)
    sums = np.cumsum(along[order])
    left = np.arange(1, len(points))
    explained = sums[:-1] ** 2 / left + (sums[-1] - sums[:-1]) ** 2 / (len(points) - left)
    allowed = explained[min_size - 1 : len(points) - min_size]
    cut = min_size + int(np.argmax(allowed))
    return np.sort(order[:cut]), np.sort(order[cut:])


def _allocate(sizes: Floats, deviations: Floats, budget: int) -> list[int]:
    """Return the number of documents to draw from each stratum: those that minimise the variance, at least two each."""
    weights = sizes * deviations
    counts = np.minimum(_MIN_SAMPLED, sizes).astype(np.intp)
    while counts.sum() < budget:
        gains = np.where(counts < sizes, weights**2 / (counts * (counts + 1.0)), -1.0)
        counts[int(np.argmax(gains))] += 1
    return [int(one) for one in counts]
