"""Item analysis: finds documents that are too easy, too hard or possibly mislabelled, from scores of several models.

Scores are a table with a row per model and a column per document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.comparisons.comparison import compute_mcnemar_p_value

__all__ = ["ItemAnalysis", "analyse_items", "measure_position_bias"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAnalysis:
    """Discrimination of each document, and the documents that stand out."""

    discrimination: Floats
    """Correlation of the score with the mean over all other documents; NaN for constant scores."""

    never: NDArray[np.intp]
    """Documents with score 0 for all models."""

    always: NDArray[np.intp]
    """Documents with the highest score for all models."""

    negative: NDArray[np.intp]
    """Documents with a significantly negative discrimination, the worst first: the label may be wrong."""


def analyse_items(scores: ArrayLike, *, threshold: float = -0.2, alpha: float = 0.05) -> ItemAnalysis:
    """Analyse all documents from the scores of several models.

    >>> table = [[0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 0]]
    >>> found = analyse_items(table)
    >>> found.always.tolist(), found.never.tolist()
    ([2], [])
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2:
        raise AssayError("item analysis needs the scores of at least two models")
    discrimination = _compute_discrimination(table)
    models = table.shape[0]
    border = min(threshold, -_critical_correlation(models, alpha)) if models > 3 else -2.0
    found = np.flatnonzero(np.nan_to_num(discrimination, nan=0.0) <= border)
    highest = float(table.max())
    return ItemAnalysis(
        discrimination=discrimination,
        never=np.flatnonzero((table == 0).all(axis=0)),
        always=np.flatnonzero((table == highest).all(axis=0) & (highest > 0)),
        negative=found[np.argsort(discrimination[found], kind="stable")],
    )


def _compute_discrimination(table: Floats) -> Floats:
    """Return the correlation of each column with the row means of all other columns."""
    documents = table.shape[1]
    if documents < 2:
        return np.full(documents, np.nan)
    rest = (table.sum(axis=1, keepdims=True) - table) / (documents - 1)
    steps, others = table - table.mean(axis=0), rest - rest.mean(axis=0)
    below = np.sqrt((steps**2).sum(axis=0) * (others**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where(below > 1e-12, (steps * others).sum(axis=0) / below, np.nan)
    return found


def _critical_correlation(models: int, alpha: float) -> float:
    """Return the critical value of a correlation over this number of models (one-sided)."""
    from assay.stats.numerics.distributions import t_quantile

    reach = t_quantile(1 - alpha, models - 2)
    return float(reach / np.sqrt(models - 2 + reach**2))


def measure_position_bias(chosen: ArrayLike, correct: ArrayLike, places: int) -> tuple[Floats, Floats, float]:
    """Return how often each position is chosen, how often it is correct, and the p-value of both being equal.

    Chosen and correct positions of the same documents are compared (exact McNemar test, the smallest p-value over all
    positions with Bonferroni correction): a model that follows an uneven key is not biased.

    >>> chosen, correct, p_value = measure_position_bias([0] * 90 + [1] * 10, [0, 1] * 50, 2)
    >>> chosen.tolist(), p_value < 0.001
    ([0.9, 0.1], True)
    """
    picks, keys = np.asarray(chosen, dtype=np.intp), np.asarray(correct, dtype=np.intp)
    shares = np.bincount(picks, minlength=places) / len(picks)
    wanted = np.bincount(keys, minlength=places) / len(keys)
    chances = [
        compute_mcnemar_p_value(
            int(((picks == place) & (keys != place)).sum()), int(((picks != place) & (keys == place)).sum())
        )
        for place in range(places)
    ]
    return shares, wanted, min(1.0, places * min(chances))
