"""Error rates of transcripts: how many words or characters must change, per word or character expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

from assay.scoring.edit_distance import edit_distance

__all__ = ["cer", "wer"]


def wer(*, predictions: Sequence[str], references: Sequence[str], concatenate_texts: bool = False) -> float:
    """Word error rate over all pairs; can pass 1 when too much was said.

    >>> wer(predictions=["the cat sat"], references=["the cat sat down"])
    0.25
    """
    return _rate(predictions, references, _words, concatenate=concatenate_texts)


def cer(*, predictions: Sequence[str], references: Sequence[str], concatenate_texts: bool = False) -> float:
    """Character error rate over all pairs.

    >>> cer(predictions=["cot"], references=["cat"])
    0.3333333333333333
    """
    return _rate(predictions, references, lambda text: list(text.strip()), concatenate=concatenate_texts)


def _rate(
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
        raise ValueError("the references are empty, so there is no error rate")
    return wrong / total


def _words(text: str) -> list[str]:
    return [word for word in re.sub(r"\s\s+", " ", text).strip().split(" ") if word]
