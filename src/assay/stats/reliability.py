"""Calibration of a model's confidence: the reliability diagram and the expected calibration error.

A model is calibrated if, among the documents that it answers with a confidence of 80 %, 80 % are right. The expected
calibration error (ECE) is the mean distance between confidence and accuracy over equally wide bins of confidence.

The ECE of a finite number of documents is above 0 even for a calibrated model. `chance_ece` is what such a model would have
on average with the same confidences, so that the two can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import wilson_interval

__all__ = ["Reliability", "ReliabilityBin", "compute_choice_confidence", "compute_reliability"]

Floats = NDArray[np.float64]

_RESAMPLES = 1000
_BISECTIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """The documents whose confidence lies between two values."""

    low: float
    high: float
    documents: int
    confidence: float
    """Mean confidence."""

    accuracy: float
    """Share of right answers."""

    accuracy_low: float
    accuracy_high: float
    """95 % Wilson interval of the accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How well confidence agrees with accuracy."""

    documents: int
    confidence: float
    accuracy: float
    ece: float
    ece_low: float
    ece_high: float
    """95 % interval of the true ECE, without the bias of finite samples; it starts at 0 unless the model is miscalibrated."""

    chance_ece: float
    """Mean ECE of a calibrated model with the same confidences and number of documents."""

    brier: float
    """Mean squared distance between confidence and result (1 for right, 0 for wrong)."""

    bins: tuple[ReliabilityBin, ...]
    """Bins with documents, in the order of confidence."""


def compute_choice_confidence(log_probabilities: Sequence[float]) -> float:
    """Return the share of the most likely choice in the total probability of all choices; NaN if none is finite.

    >>> round(compute_choice_confidence([-1.0, -1.0, -1.0, -1.0]), 6)
    0.25
    """
    known = [value for value in log_probabilities if not math.isnan(value)]
    top = max(known, default=-math.inf)
    if not math.isfinite(top):
        return math.nan
    return 1.0 / sum(math.exp(value - top) for value in known)


def compute_reliability(
    confidences: ArrayLike, right: ArrayLike, *, bins: int = 10, seed: int = 0
) -> Reliability:
    """Compute the reliability diagram of confidences between 0 and 1 and results (1 for right, 0 for wrong).

    >>> found = compute_reliability([0.8] * 10, [1] * 6 + [0] * 4)
    >>> round(found.ece, 6), found.bins[0].documents
    (0.2, 10)

    Raises:
        AssayError: There are no documents.
    """
    stated, results = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not len(stated):
        raise AssayError("no documents have a confidence")
    edges = np.linspace(0.0, 1.0, bins + 1)
    places = np.searchsorted(edges[1:-1], stated)
    counts = np.bincount(places, minlength=bins)
    kept = np.flatnonzero(counts)
    sizes = counts[kept].astype(np.float64)
    confidence = np.bincount(places, weights=stated, minlength=bins)[kept] / sizes
    accuracy = np.bincount(places, weights=results, minlength=bins)[kept] / sizes
    ece = float((sizes * np.abs(accuracy - confidence)).sum() / len(stated))
    low, high, chance = _find_interval(tuple(sizes), tuple(confidence), tuple(accuracy), ece, seed)
    listed = []
    for at, place in enumerate(kept.tolist()):
        interval = wilson_interval(round(float(accuracy[at] * sizes[at])), float(sizes[at]))
        listed.append(
            ReliabilityBin(
                low=float(edges[place]),
                high=float(edges[place + 1]),
                documents=int(sizes[at]),
                confidence=float(confidence[at]),
                accuracy=float(accuracy[at]),
                accuracy_low=interval.low,
                accuracy_high=interval.high,
            )
        )
    return Reliability(
        documents=len(stated),
        confidence=float(stated.mean()),
        accuracy=float(results.mean()),
        ece=ece,
        ece_low=low,
        ece_high=high,
        chance_ece=chance,
        brier=float(((stated - results) ** 2).mean()),
        bins=tuple(listed),
    )


@lru_cache(maxsize=1024)  # a task has a page for each metric, and the diagram is the same on each
def _find_interval(
    bin_sizes: tuple[float, ...],
    confidences: tuple[float, ...],
    accuracies: tuple[float, ...],
    ece: float,
    seed: int,
) -> tuple[float, float, float]:
    """Return the 95 % interval of the true ECE, and the mean ECE of a calibrated model.

    The observed ECE is too large by a bias that depends on the true one, so a bootstrap interval misses small errors. This
    interval contains the true errors for which the observed ECE is not unusual. The bias is large if few bins are
    miscalibrated: the lower end assumes only the distances that exceed their standard errors. It is small if all are: the
    upper end assumes the same distance in each bin. Sums per bin suffice, so that the time does not depend on the number of
    documents.
    """
    sizes, confidence, accuracy = np.array(bin_sizes), np.array(confidences), np.array(accuracies)
    total = int(sizes.sum())
    drawn = np.random.default_rng(seed).multinomial(total, sizes / total, size=_RESAMPLES)
    distance = accuracy - confidence
    noise = np.sqrt(confidence * (1.0 - confidence) / sizes)
    few = np.sign(distance) * np.maximum(np.abs(distance) - noise, 0.0)
    every = np.where(distance < 0, -1.0, 1.0)

    def simulate(true: Floats) -> Floats:
        random = np.random.default_rng(seed + 1)  # the same each time, so that results change smoothly
        errors: Floats = np.abs(random.binomial(drawn, true) - drawn * confidence).sum(axis=-1) / total
        return errors

    def find_error(direction: Floats, largest: float, quantile: float) -> float:
        """Return the smallest true error in a direction at which the quantile of observed errors reaches the ECE."""
        low, high = 0.0, largest
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            reached = np.quantile(simulate(np.clip(confidence + middle * direction, 0.0, 1.0)), quantile)
            low, high = (low, middle) if reached >= ece else (middle, high)
        true = np.clip(confidence + high * direction, 0.0, 1.0)
        return float((sizes * np.abs(true - confidence)).sum() / total)

    calibrated = simulate(np.clip(confidence, 0.0, 1.0))
    low = high = ece
    scale = float((sizes * np.abs(few)).sum() / total)
    if scale == 0.0 or ece <= np.quantile(calibrated, 0.975):
        low = 0.0
    else:
        low = min(ece, find_error(few / scale, ece, 0.975))
    if ece >= np.quantile(calibrated, 0.025):
        high = max(ece, find_error(every, 1.0, 0.025))
    return low, high, float(calibrated.mean())
