"""Word and character error rates of transcripts, as `evaluate` computes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

from assay.scoring.edit_distance import edit_distance

__all__ = ["cer", "wer"]


def wer(*, predictions: Sequence[str], references: Sequence[str], concatenate_texts: bool = False) -> float:
    """Return the word error rate over all pairs. It can exceed 1.

    >>> wer(predictions=["the cat sat"], references=["the cat sat down"])
    0.25
    """
    return _error_rate(predictions, references, _split_words, concatenate=concatenate_texts)


def cer(*, predictions: Sequence[str], references: Sequence[str], concatenate_texts: bool = False) -> float:
    """Return the character error rate over all pairs.

    >>> cer(predictions=["cot"], references=["cat"])
    0.3333333333333333
    """
    return _error_rate(
        predictions, references, lambda text: list(text.strip()), concatenate=concatenate_texts
    )


def _error_rate(
    predictions: Sequence[str],
    references: Sequence[str],
    units: Callable[[str], list[str]],
    *,
    concatenate: bool,
) -> float:
    given, expected = [units(text) for text in predictions], [units(text) for text in references]
    if concatenate:
        given, expected = [list(chain(*given))], [list(chain(*expected))]
    wrong = sum(edit_distance(one, other) for one, other in zip(expected, given, strict=True))
    total = sum(len(one) for one in expected)
    if total == 0:
        raise ValueError("cannot compute an error rate: the references are empty")
    return wrong / total


def _split_words(text: str) -> list[str]:
    return [word for word in re.sub(r"\s\s+", " ", text).strip().split(" ") if word]
