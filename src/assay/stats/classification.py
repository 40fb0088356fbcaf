"""Agreement of labels: F1, Matthews' correlation and the Brier score over (gold, prediction) pairs.

Whole-number labels are counted here, one document or a hundred thousand resamples at a time; anything else
(texts, several labels per document) goes to scikit-learn, which gives the same numbers where both apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingPackage
from assay.stats.aggregations import AGGREGATIONS

__all__ = ["brier_score", "f1", "f1_of_rows", "matthews_corrcoef", "mcc_of_rows"]

Rows = NDArray[np.intp]
Pairs = Sequence[tuple[Any, Any]]

_MOST_LABELS = 64
_WHOLE = (int, np.integer, np.bool_)


@AGGREGATIONS.register("f1")
def f1(values: Pairs) -> float:
    """F1 of label 1 against the other label.

    >>> f1([(1, 1), (0, 1), (1, 0), (1, 1)])
    0.6666666666666666
    """
    score = f1_of_rows(values)
    if score is not None:
        return score(_all_of(values))[0]
    try:
        from sklearn.metrics import f1_score
    except ImportError:
        raise MissingPackage.of(
            "scikit-learn", "F1 over labels that are not whole numbers", extra="metrics"
        ) from None
    golds, predictions = zip(*values, strict=True)
    return float(np.max(f1_score(golds, predictions)))


@AGGREGATIONS.register("matthews_corrcoef")
def matthews_corrcoef(values: Pairs) -> float:
    """Matthews' correlation between two labellings; 0.0 when one of them never varies.

    >>> matthews_corrcoef([(1, 1), (0, 0)])
    1.0
    """
    score = mcc_of_rows(values)
    if score is not None:
        return score(_all_of(values))[0]
    try:
        from sklearn.metrics import matthews_corrcoef as correlation
    except ImportError:
        raise MissingPackage.of(
            "scikit-learn", "Matthews' correlation over labels that are not whole numbers", extra="metrics"
        ) from None
    golds, predictions = zip(*values, strict=True)
    return float(correlation(golds, predictions))


@AGGREGATIONS.register("brier_score")
def brier_score(values: Pairs) -> float:
    """Mean squared distance of the probabilities from the truth, over (gold, probabilities) pairs.

    >>> brier_score([(0, [1.0, 0.0]), (1, [1.0, 0.0])])
    1.0
    """
    golds, probabilities = zip(*values, strict=True)
    table = np.array(probabilities)
    truth = np.eye(table.shape[1])[list(golds)]
    return float(np.mean(np.sum((table - truth) ** 2, axis=1)))


def f1_of_rows(values: Pairs) -> Callable[[Rows], list[float]] | None:
    """F1 of many resamples at once; None when these labels need scikit-learn."""
    coded = _coded(values)
    if coded is None:
        return None
    labels, codes = coded
    if len(labels) > 2 or (len(labels) == 2 and 1 not in labels):
        return None
    size = len(labels)
    positive = labels.index(1) if 1 in labels else None

    def score(rows: Rows) -> list[float]:
        table = _confusion(codes, rows, size)
        if positive is None:
            return [0.0] * len(rows)
        hits = 2.0 * table[:, positive, positive]
        marked = table[:, positive, :].sum(axis=1) + table[:, :, positive].sum(axis=1)
        return _ratios(hits, marked)

    return score


def mcc_of_rows(values: Pairs) -> Callable[[Rows], list[float]] | None:
    """Matthews' correlation of many resamples at once; None when these labels need scikit-learn."""
    coded = _coded(values)
    if coded is None:
        return None
    labels, codes = coded
    size = len(labels)

    def score(rows: Rows) -> list[float]:
        table = _confusion(codes, rows, size)
        golds, predictions = table.sum(axis=2), table.sum(axis=1)
        right = np.trace(table, axis1=1, axis2=2)
        total = golds.sum(axis=1)
        together = right * total - (golds * predictions).sum(axis=1)
        apart = (total**2 - (predictions**2).sum(axis=1)) * (total**2 - (golds**2).sum(axis=1))
        return _ratios(together, np.sqrt(apart))

    return score


def _coded(values: Pairs) -> tuple[list[int], Rows] | None:
    """The labels in order and each pair as one number (gold * size + prediction), or None for odd labels."""
    flat: list[Any] = []
    for pair in values:
        gold, prediction = pair
        if not isinstance(gold, _WHOLE) or not isinstance(prediction, _WHOLE):
            return None
        flat += (gold, prediction)
    labels, codes = np.unique(np.array(flat, dtype=np.int64), return_inverse=True)
    if len(labels) > _MOST_LABELS:
        return None
    codes = codes.reshape(-1, 2)
    return labels.tolist(), codes[:, 0] * len(labels) + codes[:, 1]


def _confusion(codes: Rows, rows: Rows, size: int) -> NDArray[np.float64]:
    """One confusion table per row of document numbers: [row, gold, prediction]."""
    cells = size * size
    places = codes[rows]
    places += np.arange(len(rows), dtype=np.intp)[:, None] * cells
    counts = np.bincount(places.ravel(), minlength=len(rows) * cells)
    return counts.reshape(len(rows), size, size).astype(np.float64)


def _ratios(tops: NDArray[np.float64], bottoms: NDArray[np.float64]) -> list[float]:
    ratios = np.divide(tops, bottoms, out=np.zeros_like(tops), where=bottoms != 0)
    return [float(ratio) for ratio in ratios]


def _all_of(values: Pairs) -> Rows:
    return np.arange(len(values), dtype=np.intp)[None, :]
