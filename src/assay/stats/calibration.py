"""Calibration of judge scores with human labels of some documents.

Prediction-powered inference (PPI++, arXiv 2311.01453): the mean of the judge over all documents, corrected by its mean
error on the labelled documents. The interval is valid for any judge, and narrow for a good one.

A few labels that all agree with the judge do not show that the judge never errs. The variance of its errors therefore
includes two disagreements that were not observed, one in each direction (as in the interval of Bonett and Price for paired
proportions). If the labels alone give a narrower interval, the judge gets no weight.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import Interval, Limits, is_binary, mean_interval
from assay.stats.numerics.distributions import normal_quantile, t_quantile

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
    limits = _find_range(np.concatenate([truth, same, others]))
    alone = _estimate_from_labels(truth, len(truth) + (0 if others is same else len(others)), limits, level)
    if others is same:
        return alone
    joint = _estimate_with_judge((truth, same, others), alone, limits, level)
    return joint if joint.interval.half_width < alone.interval.half_width else alone


def _estimate_from_labels(truth: Floats, judged: int, limits: Limits, level: float) -> CalibratedMean:
    interval = mean_interval(truth, level=level, limits=limits)
    value, error = float(truth.mean()), float(truth.std(ddof=1)) / math.sqrt(len(truth))
    return CalibratedMean(
        value=value,
        stderr=error,
        interval=replace(interval, method=f"labels alone, {interval.method}"),
        weight=0.0,
        labelled=len(truth),
        judged=judged,
        labels_alone=value,
        labels_stderr=error,
        worth=float(len(truth)),
    )


def _estimate_with_judge(
    scored: tuple[Floats, Floats, Floats], alone: CalibratedMean, limits: Limits, level: float
) -> CalibratedMean:
    truth, same, others = scored
    count, more, (low, high) = len(truth), len(others), limits
    binary = is_binary(truth) and is_binary(same)
    gap = min(
        high - low, math.sqrt(2) * float(truth.std(ddof=1)) or math.inf
    )  # two labels differ by this much
    centre = float(truth.mean())
    pseudo_labels = [high, low] if binary else [centre + gap / 2, centre - gap / 2]
    labels = np.concatenate([truth, pseudo_labels])
    scores = np.concatenate([same, pseudo_labels[::-1]])
    variance = float(np.concatenate([scores, others]).var(ddof=1))
    weight = (
        float(np.cov(labels, scores, ddof=1)[0, 1]) / ((1 + count / more) * variance) if variance > 0 else 0.0
    )
    weight = min(1.0, max(0.0, weight))
    residuals = labels - weight * scores
    value = weight * float(others.mean()) + float((truth - weight * same).mean())
    of_labels, of_judge = (
        float(residuals.var()) / len(residuals),
        weight**2 * float(others.var(ddof=1)) / more,
    )
    quantile = normal_quantile((1 + level) / 2) if binary else t_quantile((1 + level) / 2, count - 1)
    below, above = _compute_residual_sides(truth - weight * same, residuals, quantile, level, binary=binary)
    of_mean = normal_quantile((1 + level) / 2) ** 2 * of_judge
    interval = Interval(
        low=max(low, value - math.sqrt(below**2 + of_mean)),
        high=min(high, value + math.sqrt(above**2 + of_mean)),
        method="PPI++",
        level=level,
    )
    return replace(
        alone,
        value=min(high, max(low, value)),
        stderr=math.sqrt(of_labels + of_judge),
        interval=interval,
        weight=weight,
        worth=count * max(1.0, float(labels.var()) / len(labels) / (of_labels + of_judge)),
    )


def _compute_residual_sides(
    observed: Floats, residuals: Floats, quantile: float, level: float, *, binary: bool
) -> tuple[float, float]:
    """Return how far the mean residual may be below and above the observed one, with the pseudo-disagreements included and,
    for scores other than 0 and 1, at least as far as the skewness of the residuals requires."""
    middle, half = float(residuals.mean()), quantile * math.sqrt(float(residuals.var()) / len(residuals))
    centre = float(observed.mean())
    below, above = centre - middle + half, middle + half - centre
    if not binary and observed.std() > 0:
        found = mean_interval(observed, level=level, limits=(-math.inf, math.inf))
        below, above = max(below, centre - found.low), max(above, found.high - centre)
    return max(0.0, below), max(0.0, above)


def _find_range(scores: Floats) -> Limits:
    """Return 0 and 1 for scores between them, else the extreme scores."""
    low, high = float(scores.min()), float(scores.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


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
