"""Accuracy of multiple choice as generation. Not comparable with the accuracy of log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.scoring.metrics import metric

__all__ = ["acc_letter"]


@metric("acc_letter", output_types=("generate_until",))
def acc_letter(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """Return 1.0 if the letter is that of the correct choice, otherwise 0.0, also without a letter.

    >>> acc_letter(references=["B"], predictions=["B"]), acc_letter(references=["B"], predictions=["[invalid]"])
    (1.0, 0.0)
    """
    return float(predictions[0] == references[0])
