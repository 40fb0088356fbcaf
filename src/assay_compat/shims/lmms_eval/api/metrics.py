"""Shim for `lmms_eval.api.metrics`: functions that task helpers use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.scoring.edit_distance import edit_distance
from assay.scoring.metrics.anls import anls as _anls
from assay.stats.numerics.exact_summation import mean

__all__ = ["anls", "levenshtein_distance", "mean"]


def levenshtein_distance(s1: Sequence[str], s2: Sequence[str]) -> int:
    """Return the edit distance of two sequences."""
    return edit_distance(s1, s2)


def anls(references: Sequence[str], predictions: Sequence[Any], thresh_hold: float = 0.5) -> dict[str, float]:
    """Return the similarity to the best reference as `{"anls": value}`."""
    return {"anls": _anls(references=references, predictions=predictions, thresh_hold=thresh_hold)}
