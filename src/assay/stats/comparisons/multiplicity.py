"""Corrections of p-values for multiple tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["CORRECTIONS", "adjust_p_values"]

CORRECTIONS = ("holm", "bh", "none")
"""`holm` controls the family-wise error rate, `bh` (Benjamini-Hochberg) the false discovery rate."""


def adjust_p_values(p_values: Sequence[float], correction: str = "holm") -> list[float]:
    """Return adjusted p-values, in the given order.

    >>> [round(value, 6) for value in adjust_p_values([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    >>> [round(value, 6) for value in adjust_p_values([0.01, 0.04, 0.03], "bh")]
    [0.03, 0.04, 0.04]
    """
    if correction not in CORRECTIONS:
        raise ValueError(f"{correction!r} is not one of {CORRECTIONS}")
    values = np.asarray(p_values, dtype=np.float64)
    if correction == "none" or not len(values):
        return [float(value) for value in values]
    order, count = np.argsort(values, kind="stable"), len(values)
    ranked = values[order]
    if correction == "holm":
        raised = np.maximum.accumulate(ranked * np.arange(count, 0, -1))
    else:
        raised = np.minimum.accumulate((ranked * count / np.arange(1, count + 1))[::-1])[::-1]
    result = np.empty(count)
    result[order] = np.minimum(raised, 1.0)
    return [float(value) for value in result]
