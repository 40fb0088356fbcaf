"""Accuracy of letters: multiple choice asked as a question, which is not the accuracy of log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.scoring.metrics import metric

__all__ = ["acc_letter"]


@metric("acc_letter", output_types=("generate_until",))
def acc_letter(*, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """1.0 when the letter is that of the right choice; else 0.0, also where there is no letter.

    >>> acc_letter(references=["B"], predictions=["B"]), acc_letter(references=["B"], predictions=["[invalid]"])
    (1.0, 0.0)
    """
    return float(predictions[0] == references[0])
