"""Exact match of a text with its reference, after the normalisation that the task requests.

The published scores use NumPy's fixed-width strings, which matters in rare cases: NUL characters at the end are
dropped, and a lower-cased text never grows (`İ` has two lower-case characters). The common case, one text and one
reference, runs without NumPy and gives the same results.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from assay.scoring.metrics import metric

__all__ = ["exact_match"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DIGITS = str.maketrans("", "", string.digits)
_NO_NORMALISATION = (None, False, False, False)


@metric("exact_match", output_types=("generate_until",))
def exact_match(
    *,
    references: Sequence[Any],
    predictions: Sequence[Any],
    regexes_to_ignore: Sequence[str] | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    ignore_numbers: bool = False,
) -> float:
    """Return the share of predictions that equal their reference.

    >>> exact_match(references=["Paris"], predictions=["paris."], ignore_case=True, ignore_punctuation=True)
    1.0
    >>> exact_match(references=["$5", "5"], predictions=["5", "5"])
    0.5
    """
    settings = (regexes_to_ignore, ignore_case, ignore_punctuation, ignore_numbers)
    if len(references) == 1 == len(predictions) and (regexes_to_ignore is None or regexes_to_ignore):
        reference, prediction = references[0], predictions[0]
        if type(reference) is str and type(prediction) is str:
            if settings == _NO_NORMALISATION:
                return 1.0 if prediction.rstrip("\0") == reference.rstrip("\0") else 0.0
            return 1.0 if _normalise(prediction, *settings) == _normalise(reference, *settings) else 0.0
    return _exact_match_numpy(predictions, references, *settings)


def _normalise(text: str, regexes: Sequence[str] | None, case: bool, punctuation: bool, numbers: bool) -> str:
    width = len(text)
    if regexes:
        for pattern in _compile_patterns(tuple(regexes)):
            text = pattern.sub("", text)
            width = len(text)
            text = text.rstrip("\0")
    if case:
        text = text.rstrip("\0").lower()[: width or 1]
    if punctuation:
        text = text.translate(_PUNCTUATION)
    if numbers:
        text = text.translate(_DIGITS)
    return text.rstrip("\0")


@lru_cache(maxsize=256)
def _compile_patterns(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


def _exact_match_numpy(
    predictions: Any,
    references: Any,
    regexes: Sequence[str] | None,
    case: bool,
    punctuation: bool,
    numbers: bool,
) -> float:
    import numpy as np

    translate: Any = np.char.translate  # the annotation does not allow translation tables

    def normalise(texts: Any) -> Any:
        if regexes is None:
            texts = np.asarray(texts)
        for pattern in () if regexes is None else regexes:
            texts = np.array([re.sub(pattern, "", text) for text in texts])
        if case:
            texts = np.char.lower(texts)
        if punctuation:
            texts = translate(texts, _PUNCTUATION)
        if numbers:
            texts = translate(texts, _DIGITS)
        return texts

    return float(np.mean(normalise(predictions) == normalise(references)))
