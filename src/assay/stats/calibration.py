"""Calibration of judge scores with human labels of some documents.

Prediction-powered inference (PPI++, arXiv 2311.01453): the mean of the judge over all documents, corrected by its mean
error on the labelled documents. The interval is valid for any judge, and narrow for a good one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.confidence_intervals import Interval, is_binary, wilson_interval
from assay.stats.distributions import t_quantile

__all__ = ["CalibratedMean", "compute_cohen_kappa", "compute_flip_rate", "estimate_calibrated_mean"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedMean:
    """A mean estimated from human labels and judge scores."""

    value: float
    stderr: float
    interval: Interval
    weight: float
    """Weight of the judge: 0 uses the labels alone, 1 the judge corrected by its mean error."""

    labelled: int
    judged: int
    labels_alone: float
    labels_stderr: float
    """Mean and standard error of the labels alone."""

    worth: float
    """Number of labels that would give the same precision without the judge."""


def estimate_calibrated_mean(
    labels: ArrayLike, judged: ArrayLike, unlabelled: ArrayLike, *, level: float = 0.95
) -> CalibratedMean:
    """Estimate the mean human label from labels, judge scores of the same documents, and judge scores of unlabelled
    documents.

    >>> estimate_calibrated_mean([1, 0, 1, 0], [1, 0, 1, 0], [1, 0] * 50).value
    0.5
    """
    truth, same = np.asarray(labels, dtype=np.float64), np.asarray(judged, dtype=np.float64)
    others = np.asarray(unlabelled, dtype=np.float64)
    if truth.shape != same.shape:
        raise AssayError("every label needs a judge score of the same document")
    if len(truth) < 2:
        raise AssayError("calibration needs at least two labelled documents")
    if len(others) < 2:
        others = same  # all documents are labelled: the judge gets no weight
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
    half = t_quantile((1 + level) / 2, count - 1) * error  # the labels limit the degrees of freedom
    interval = Interval(low=value - half, high=value + half, method="PPI++", level=level)
    if error == 0 and is_binary(truth):  # equal labels are not certain
        interval = wilson_interval(float(truth.sum()), count, level=level)
    alone = float(truth.var(ddof=1)) / count
    return CalibratedMean(
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


def compute_cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Return Cohen's kappa of two judges: 1 is full agreement, 0 is chance level. None if both always give the same
    verdict.

    >>> compute_cohen_kappa([1, 1, 0, 0], [1, 0, 0, 1])
    0.0
    """
    if len(first) != len(second) or not first:
        raise AssayError("agreement needs verdicts of both on the same documents")
    size = len(first)
    seen = sum(bool(one == other) for one, other in zip(first, second, strict=True)) / size
    kinds = {*first, *second}
    chance = sum((first.count(kind) / size) * (second.count(kind) / size) for kind in kinds)
    return None if chance == 1 else (seen - chance) / (1 - chance)


def compute_flip_rate(forward: Sequence[Any], swapped: Sequence[Any]) -> float:
    """Return the fraction of documents whose verdict changes when the two answers are swapped.

    Both arguments name the winning answer, not its position.

    >>> compute_flip_rate(["A", "A", "tie", "B"], ["A", "B", "tie", "B"])
    0.25
    """
    if len(forward) != len(swapped) or not forward:
        raise AssayError("a flip rate needs each document judged in both orders")
    return sum(bool(one != other) for one, other in zip(forward, swapped, strict=True)) / len(forward)
