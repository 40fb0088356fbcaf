"""F1, Matthews correlation and Brier score over (gold, prediction) pairs.

Integer labels are counted here, for one corpus or a hundred thousand resamples at a time. Other labels (texts, several
labels per document) use scikit-learn, which gives the same numbers for integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingPackage
from assay.stats.aggregations import AGGREGATIONS

__all__ = [
    "brier_score",
    "build_f1_scorer",
    "build_mcc_scorer",
    "f1",
    "macro_f1",
    "matthews_corrcoef",
    "weighted_f1",
]

Rows = NDArray[np.intp]
Pairs = Sequence[tuple[Any, Any]]

_MAX_LABELS = 64
_INTEGER_TYPES = (int, np.integer, np.bool_)


@AGGREGATIONS.register("f1")
def f1(values: Pairs) -> float:
    """Return the F1 score of label 1.

    >>> f1([(1, 1), (0, 1), (1, 0), (1, 1)])
    0.6666666666666666
    """
    score = build_f1_scorer(values)
    if score is not None:
        return score(_select_all(values))[0]
    try:
        from sklearn.metrics import f1_score
    except ImportError:
        raise MissingPackage.of(
            "scikit-learn", "F1 of labels that are not integers", extra="metrics"
        ) from None
    golds, predictions = zip(*values, strict=True)
    return float(np.max(f1_score(golds, predictions)))


@AGGREGATIONS.register("macro_f1")
def macro_f1(values: Pairs) -> float:
    """Return the mean of the F1 scores of all labels, for more than two labels.

    >>> round(macro_f1([(0, 0), (1, 1), (2, 1), (2, 2)]), 4)
    0.7778
    """
    return _average_f1(values, [1.0] * len(_count_labels(values)))


@AGGREGATIONS.register("weighted_f1")
def weighted_f1(values: Pairs) -> float:
    """Return the mean of the F1 scores of all labels, weighted by how often each label is the target.

    >>> weighted_f1([(0, 0), (1, 1), (2, 1), (2, 2)])
    0.75
    """
    return _average_f1(values, [float(golds) for golds, _, _ in _count_labels(values).values()])


def _count_labels(values: Pairs) -> dict[Any, tuple[int, int, int]]:
    """Return for each label how often it is the target, how often it is predicted, and how often both."""
    golds = Counter(gold for gold, _ in values)
    predictions = Counter(prediction for _, prediction in values)
    hits = Counter(gold for gold, prediction in values if gold == prediction)
    labels = dict.fromkeys([*golds, *predictions])
    return {label: (golds[label], predictions[label], hits[label]) for label in labels}


def _average_f1(values: Pairs, weights: Sequence[float]) -> float:
    scores = [2 * hits / (golds + predictions) for golds, predictions, hits in _count_labels(values).values()]
    return float(np.average(scores, weights=weights))


@AGGREGATIONS.register("matthews_corrcoef")
def matthews_corrcoef(values: Pairs) -> float:
    """Return the Matthews correlation; 0.0 if one side is constant.

    >>> matthews_corrcoef([(1, 1), (0, 0)])
    1.0
    """
    score = build_mcc_scorer(values)
    if score is not None:
        return score(_select_all(values))[0]
    try:
        from sklearn.metrics import matthews_corrcoef as correlation
    except ImportError:
        raise MissingPackage.of(
            "scikit-learn", "Matthews correlation of labels that are not integers", extra="metrics"
        ) from None
    golds, predictions = zip(*values, strict=True)
    return float(correlation(golds, predictions))


@AGGREGATIONS.register("brier_score")
def brier_score(values: Pairs) -> float:
    """Return the mean squared error of the probabilities, over (gold, probabilities) pairs.

    >>> brier_score([(0, [1.0, 0.0]), (1, [1.0, 0.0])])
    1.0
    """
    golds, probabilities = zip(*values, strict=True)
    table = np.array(probabilities)
    truth = np.eye(table.shape[1])[list(golds)]
    return float(np.mean(np.sum((table - truth) ** 2, axis=1)))


def build_f1_scorer(values: Pairs) -> Callable[[Rows], list[float]] | None:
    """Return a function that computes F1 of many resamples at once; None if the labels need scikit-learn."""
    coded = _encode_labels(values)
    if coded is None:
        return None
    labels, codes = coded
    if len(labels) > 2 or (len(labels) == 2 and 1 not in labels):
        return None
    size = len(labels)
    positive = labels.index(1) if 1 in labels else None

    def score(rows: Rows) -> list[float]:
        table = _count_confusion_tables(codes, rows, size)
        if positive is None:
            return [0.0] * len(rows)
        hits = 2.0 * table[:, positive, positive]
        labelled = table[:, positive, :].sum(axis=1) + table[:, :, positive].sum(axis=1)
        return _divide_or_zero(hits, labelled)

    return score


def build_mcc_scorer(values: Pairs) -> Callable[[Rows], list[float]] | None:
    """Return a function that computes Matthews correlation of many resamples at once; None if the labels need scikit-learn."""
    coded = _encode_labels(values)
    if coded is None:
        return None
    labels, codes = coded
    size = len(labels)

    def score(rows: Rows) -> list[float]:
        table = _count_confusion_tables(codes, rows, size)
        golds, predictions = table.sum(axis=2), table.sum(axis=1)
        right = np.trace(table, axis1=1, axis2=2)
        total = golds.sum(axis=1)
        covariance = right * total - (golds * predictions).sum(axis=1)
        variances = (total**2 - (predictions**2).sum(axis=1)) * (total**2 - (golds**2).sum(axis=1))
        return _divide_or_zero(covariance, np.sqrt(variances))

    return score


def _encode_labels(values: Pairs) -> tuple[list[int], Rows] | None:
    """Return the sorted labels and each pair as one code (gold * size + prediction); None for unsupported labels."""
    flat: list[Any] = []
    for pair in values:
        gold, prediction = pair
        if not isinstance(gold, _INTEGER_TYPES) or not isinstance(prediction, _INTEGER_TYPES):
            return None
        flat += (gold, prediction)
    labels, codes = np.unique(np.array(flat, dtype=np.int64), return_inverse=True)
    if len(labels) > _MAX_LABELS:
        return None
    codes = codes.reshape(-1, 2)
    return labels.tolist(), codes[:, 0] * len(labels) + codes[:, 1]


def _count_confusion_tables(codes: Rows, rows: Rows, size: int) -> NDArray[np.float64]:
    """Return one confusion table per row of document indices: [row, gold, prediction]."""
    cells = size * size
    places = codes[rows]
    places += np.arange(len(rows), dtype=np.intp)[:, None] * cells
    counts = np.bincount(places.ravel(), minlength=len(rows) * cells)
    return counts.reshape(len(rows), size, size).astype(np.float64)


def _divide_or_zero(tops: NDArray[np.float64], bottoms: NDArray[np.float64]) -> list[float]:
    ratios = np.divide(tops, bottoms, out=np.zeros_like(tops), where=bottoms != 0)
    return [float(ratio) for ratio in ratios]


def _select_all(values: Pairs) -> Rows:
    return np.arange(len(values), dtype=np.intp)[None, :]
