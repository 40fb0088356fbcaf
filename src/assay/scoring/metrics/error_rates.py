"""Corpus error rates of transcripts: wrong words or characters per expected word or character.

Each document returns the pair (errors, expected units), and the aggregation `ratio` divides the sums. This is the usual
definition, in which a long utterance counts more than a short one. The metrics `wer` and `cer` are those of Hugging
Face's `evaluate`: one rate per document, whose mean is a different number.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from assay.scoring.edit_distance import edit_distance
from assay.scoring.metrics import metric

__all__ = ["character_error_rate", "normalise_text", "word_error_rate"]


@metric("word_error_rate", aggregation="ratio", higher_is_better=False, output_types=("generate_until",))
def word_error_rate(
    *,
    references: Sequence[Any],
    predictions: Sequence[Any],
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
) -> tuple[int, int]:
    """Return (words to insert, delete or replace; expected words) for the closest reference.

    >>> word_error_rate(references=["the cat sat"], predictions=["The cat, sat down."], ignore_case=True,
    ...     ignore_punctuation=True)
    (1, 3)
    """
    pairs = []
    for reference in references:
        expected, given = (
            normalise_text(str(text), ignore_case=ignore_case, ignore_punctuation=ignore_punctuation).split()
            for text in (reference, predictions[0])
        )
        pairs.append((edit_distance(expected, given), len(expected)))
    return _pick_closest(pairs)


@metric("character_error_rate", aggregation="ratio", higher_is_better=False, output_types=("generate_until",))
def character_error_rate(
    *,
    references: Sequence[Any],
    predictions: Sequence[Any],
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
) -> tuple[int, int]:
    """Return (characters to insert, delete or replace; expected characters) for the closest reference.

    >>> character_error_rate(references=["cat"], predictions=["cot"])
    (1, 3)
    """
    pairs = []
    for reference in references:
        expected, given = (
            normalise_text(str(text), ignore_case=ignore_case, ignore_punctuation=ignore_punctuation)
            for text in (reference, predictions[0])
        )
        pairs.append((edit_distance(expected, given), len(expected)))
    return _pick_closest(pairs)


def normalise_text(text: str, *, ignore_case: bool, ignore_punctuation: bool) -> str:
    """Normalise white space and, if requested, case and punctuation.

    An apostrophe inside a word is part of it. Other punctuation separates words.

    >>> normalise_text("Don't  stop -- NOW!", ignore_case=True, ignore_punctuation=True)
    "don't stop now"
    """
    if ignore_case:
        text = text.casefold()
    if ignore_punctuation:
        text = text.replace("\u2019", "'")
        text = "".join(
            letter if letter == "'" or unicodedata.category(letter)[0] not in "PS" else " " for letter in text
        )
        return " ".join(stripped for word in text.split() if (stripped := word.strip("'")))
    return " ".join(text.split())


def _pick_closest(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return min(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] else float(pair[0]))
