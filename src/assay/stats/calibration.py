"""What a judge's scores are worth, given people's labels for some of the documents.

Prediction-powered inference (PPI++, arXiv 2311.01453): the judge's mean over all documents, put right by how far the judge
is off where people looked too. It covers the truth however bad the judge is; a good one makes it narrow.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.distributions import t_quantile
from assay.stats.intervals import Interval, is_binary, wilson

__all__ = ["Calibrated", "cohen_kappa", "flip_rate", "prediction_powered"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A mean that people's labels and a judge's scores give together."""

    value: float
    stderr: float
    interval: Interval
    weight: float
    """How much the judge is trusted: 0 takes the labels alone, 1 the judge with its error taken off."""

    labelled: int
    judged: int
    labels_alone: float
    labels_stderr: float
    """What the labels would have said without the judge."""

    worth: float
    """How many labels it would have taken to know as much without the judge."""


def prediction_powered(
    labels: ArrayLike, judged: ArrayLike, unlabelled: ArrayLike, *, level: float = 0.95
) -> Calibrated:
    """The mean of what people would say, from their labels, the judge's scores of the same documents, and the judge's
    scores of documents that nobody labelled.

    >>> prediction_powered([1, 0, 1, 0], [1, 0, 1, 0], [1, 0] * 50).value
    0.5
    """
    truth, same = np.asarray(labels, dtype=np.float64), np.asarray(judged, dtype=np.float64)
    others = np.asarray(unlabelled, dtype=np.float64)
    if truth.shape != same.shape:
        raise AssayError("every label needs the judge's score of the same document")
    if len(truth) < 2:
        raise AssayError("calibration needs at least two labelled documents")
    if len(others) < 2:
        others = same  # everything is labelled: the judge has nothing to add, and gets no weight
    count, more = len(truth), len(others)
    variance = float(np.concatenate([same, others]).var(ddof=1))
    weight = 0.0
    if variance > 0 and others is not same:
        weight = float(np.cov(truth, same, ddof=1)[0, 1]) / ((1 + count / more) * variance)
        weight = min(1.0, max(0.0, weight))
    value = weight * float(others.mean()) + float((truth - weight * same).mean())
    error = math.sqrt(
        weight**2 * float(others.var(ddof=1)) / more + float((truth - weight * same).var(ddof=1)) / count
    )
    half = t_quantile((1 + level) / 2, count - 1) * error  # the labels are what there is little of
    interval = Interval(low=value - half, high=value + half, method="PPI++", level=level)
    if error == 0 and is_binary(truth):  # all labels are the same: that does not make them certain
        interval = wilson(float(truth.sum()), count, level=level)
    alone = float(truth.var(ddof=1)) / count
    return Calibrated(
        value=value,
        stderr=error,
        interval=interval,
        weight=weight,
        labelled=count,
        judged=count if others is same else count + more,
        labels_alone=float(truth.mean()),
        labels_stderr=math.sqrt(alone),
        worth=count * alone / error**2 if error > 0 else float(count),
    )


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """How far two judges agree beyond what chance would make them: 1 always, 0 as by chance. None where both always say
    the same one thing, which tells nothing.

    >>> cohen_kappa([1, 1, 0, 0], [1, 0, 0, 1])
    0.0
    """
    if len(first) != len(second) or not first:
        raise AssayError("agreement needs the same documents from both")
    size = len(first)
    seen = sum(bool(one == other) for one, other in zip(first, second, strict=True)) / size
    kinds = {*first, *second}
    chance = sum((first.count(kind) / size) * (second.count(kind) / size) for kind in kinds)
    return None if chance == 1 else (seen - chance) / (1 - chance)


def flip_rate(forward: Sequence[Any], swapped: Sequence[Any]) -> float:
    """The share of documents on which a judge changes its mind when two answers change places.

    `swapped` is in the same terms as `forward`: which answer won, not which place.

    >>> flip_rate(["A", "A", "tie", "B"], ["A", "B", "tie", "B"])
    0.25
    """
    if len(forward) != len(swapped) or not forward:
        raise AssayError("a flip rate needs each document judged both ways")
    return sum(bool(one != other) for one, other in zip(forward, swapped, strict=True)) / len(forward)
