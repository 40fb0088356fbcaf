"""The best of several models or checkpoints on the same documents, with the confidence that it is the best.

Multiple comparisons with the best (Hsu 1996): a checkpoint is ruled out if another one is significantly better. The checkpoints
that are not ruled out contain the truly best one with the given probability, because the best one is ruled out only if one of its
comparisons is a false positive, and the critical value bounds the largest of them. That value comes from joint random sign flips of
documents, or of whole clusters, so that it accounts for the correlation of the comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.stats.intervals.confidence_intervals import Clusters, encode_clusters

__all__ = ["MAX_MISSING", "BestOfMany", "find_best"]

Floats = NDArray[np.float64]

_DRAWS = 4000
_MAX_SIGNS = 1 << 22
_ROUNDING = 1e-9

MAX_MISSING = 0.05
"""The largest share of documents that a row may lack, beyond the most complete row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfMany:
    """The best row of a table of scores."""

    index: int
    confidence: float
    """How sure it is that no other row is better: 1 minus the largest p-value of the others."""

    candidates: tuple[int, ...]
    """The rows that may be the best; they contain it with the probability `level`."""

    p_values: tuple[float, ...]
    """For each row, the p-value that it is the best; NaN for rows that are left out."""

    level: float
    documents: int
    """Documents that have a score in every row that is compared."""

    left_out: tuple[int, ...] = ()
    """Rows that lack too many documents to be compared: the others would lose these documents, too."""


def find_best(
    scores: ArrayLike,
    clusters: Clusters | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    draws: int = _DRAWS,
) -> BestOfMany | None:
    """Return the row with the highest mean; None if no document has a score in every row that is compared.

    `scores`: a row for each checkpoint, a column for each document, higher is better, NaN for a missing score. Rows that lack many more
    documents than the most complete one are left out, so that one incomplete row does not decide for all.

    >>> found = find_best([[0.0] * 40, [1.0] * 40])
    >>> found.index, found.candidates, found.confidence > 0.99
    (1, (1,), True)
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2:
        raise AssayError("scores need a row for each checkpoint")
    missing = np.isnan(table).mean(axis=1)
    rows = np.flatnonzero(missing <= missing.min() + MAX_MISSING)
    left_out = tuple(np.setdiff1d(np.arange(len(table)), rows).tolist())
    table = table[rows]
    kept = np.asarray(~np.isnan(table).any(axis=0))
    if not kept.any():
        return None
    table = table[:, kept]
    units = table
    if clusters is not None:
        codes, _ = encode_clusters([name for name, keep in zip(clusters, kept.tolist(), strict=True) if keep])
        order = np.argsort(codes, kind="stable")
        units = np.add.reduceat(table[:, order], np.flatnonzero(np.diff(codes[order], prepend=-1)), axis=1)
    means = table.mean(axis=1)
    best = int(means.argmax())
    found = _compute_p_values(units, np.random.default_rng(seed), draws)
    others = [value for row, value in enumerate(found) if row != best]
    p_values = np.full(len(missing), np.nan)
    p_values[rows] = found
    return BestOfMany(
        index=int(rows[best]),
        confidence=1 - max(others, default=0.0),
        candidates=tuple(row for row, value in enumerate(p_values.tolist()) if value > 1 - level),
        p_values=tuple(p_values.tolist()),
        level=level,
        documents=int(kept.sum()),
        left_out=left_out,
    )


def _draw_signs(draw: np.random.Generator, draws: int, units: int) -> Iterator[Floats]:
    """Yield rows of random signs in parts of limited size."""
    height = max(1, _MAX_SIGNS // units)
    for start in range(0, draws, height):
        size = (min(height, draws - start), units)
        yield np.asarray(2.0 * draw.integers(0, 2, size=size, dtype=np.int8) - 1.0, dtype=np.float64)


def _compute_p_values(units: Floats, draw: np.random.Generator, draws: int) -> list[float]:
    """Return for each row the share of sign flips in which another row leads it by as much as the observed one."""
    flipped = np.concatenate([part @ units.T for part in _draw_signs(draw, draws, units.shape[1])])
    totals = units.sum(axis=1)
    squares = units @ units.T
    own = np.diag(squares)
    spreads = np.sqrt(np.maximum(own[:, None] + own[None, :] - 2 * squares, 0.0))
    p_values = []
    for row in range(len(units)):
        differ = spreads[row] > _ROUNDING * (1 + np.sqrt(own[row]))
        if not differ.any():
            p_values.append(1.0)
            continue
        leads = (totals[differ] - totals[row]) / spreads[row][differ]
        drawn = ((flipped[:, differ] - flipped[:, [row]]) / spreads[row][differ]).max(axis=1)
        extreme = int((drawn >= leads.max() - _ROUNDING).sum())
        p_values.append((1 + extreme) / (1 + draws))
    return p_values
