"""ANLS: the edit similarity of a short answer to its best reference, for document and infographic questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.scoring.edit_distance import edit_distance
from assay.scoring.metrics import metric

__all__ = ["anls"]


@metric("anls", output_types=("generate_until",))
def anls(*, references: Sequence[str], predictions: Sequence[Any], thresh_hold: float = 0.5) -> float:
    """Average normalised Levenshtein similarity to the best reference; 0.0 below the threshold.

    >>> anls(references=["Bern", "Berne"], predictions=["berne"])
    1.0
    >>> anls(references=["Bern"], predictions=["Basel"])
    0.0
    """
    prediction = predictions[0] if isinstance(predictions[0], str) else predictions[0][0]
    answer = " ".join(prediction.lower().split())
    distances = []
    for reference in references:
        longest = max(len(reference.upper()), len(prediction.upper()))
        edits = edit_distance(" ".join(reference.lower().split()), answer)
        distances.append(edits / longest if longest else 0.0)
    similarity = 1 - min(distances)
    return similarity if similarity >= thresh_hold else 0.0
