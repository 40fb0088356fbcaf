"""What several models' scores say about the documents themselves: too easy, too hard, or perhaps wrong.

Scores are a table, a row for each model and a column for each document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError

__all__ = ["ItemAnalysis", "analyse_items", "position_bias"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAnalysis:
    """How hard each document is, and whether better models do better on it."""

    easiness: Floats
    """The mean score of each document over all models."""

    discrimination: Floats
    """The correlation of each document's score with the models' means over all others; NaN where it never varies."""

    never: NDArray[np.intp]
    """Documents nobody gets right at all."""

    always: NDArray[np.intp]
    """Documents everybody gets entirely right."""

    negative: NDArray[np.intp]
    """Documents on which worse models do better, by more than chance: the key may be wrong. The worst first."""


def analyse_items(scores: ArrayLike, *, threshold: float = -0.2, alpha: float = 0.05) -> ItemAnalysis:
    """Look at every document from what several models made of it.

    >>> table = [[0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 0]]
    >>> found = analyse_items(table)
    >>> found.always.tolist(), found.never.tolist()
    ([2], [])
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2:
        raise AssayError("documents can be judged from at least two models' scores")
    discrimination = _discrimination(table)
    models = table.shape[0]
    border = min(threshold, -_correlation_border(models, alpha)) if models > 3 else -2.0
    found = np.flatnonzero(np.nan_to_num(discrimination, nan=0.0) <= border)
    highest = float(table.max())
    return ItemAnalysis(
        easiness=table.mean(axis=0),
        discrimination=discrimination,
        never=np.flatnonzero((table == 0).all(axis=0)),
        always=np.flatnonzero((table == highest).all(axis=0) & (highest > 0)),
        negative=found[np.argsort(discrimination[found], kind="stable")],
    )


def _discrimination(table: Floats) -> Floats:
    """Each column's correlation with the row means of all other columns."""
    documents = table.shape[1]
    if documents < 2:
        return np.full(documents, np.nan)
    rest = (table.sum(axis=1, keepdims=True) - table) / (documents - 1)
    steps, others = table - table.mean(axis=0), rest - rest.mean(axis=0)
    below = np.sqrt((steps**2).sum(axis=0) * (others**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where(below > 1e-12, (steps * others).sum(axis=0) / below, np.nan)
    return found


def _correlation_border(models: int, alpha: float) -> float:
    """How far from 0 a correlation of so many models must be to be more than chance (one-sided)."""
    from assay.stats.distributions import t_quantile

    reach = t_quantile(1 - alpha, models - 2)
    return float(reach / np.sqrt(models - 2 + reach**2))


def position_bias(chosen: ArrayLike, correct: ArrayLike, places: int) -> tuple[Floats, Floats, float]:
    """How often a model chooses each place, how often that place is right, and the p-value of the two being the same: that
    of the place which is furthest off, times the number of places.

    >>> chosen, correct, p_value = position_bias([0] * 90 + [1] * 10, [0, 1] * 50, 2)
    >>> chosen.tolist(), p_value < 0.001
    ([0.9, 0.1], True)
    """
    from assay.stats.distributions import normal_cdf

    picks = np.bincount(np.asarray(chosen, dtype=np.intp), minlength=places).astype(np.float64)
    keys = np.bincount(np.asarray(correct, dtype=np.intp), minlength=places).astype(np.float64)
    total = picks.sum()
    shares, wanted = picks / total, keys / keys.sum()
    spread = np.sqrt(np.maximum(wanted * (1 - wanted) / total, 1e-12))
    worst = float(np.abs((shares - wanted) / spread).max())
    return shares, wanted, min(1.0, places * 2 * normal_cdf(-worst))
