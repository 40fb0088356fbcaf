"""The letter of a choice, found in what a model wrote when it was asked for one. Strict: what is not clear is not an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, ClassVar

from assay.scoring.filters import FILTERS
from assay.scoring.filters.extraction import Regex
from assay.scoring.filters.transformation import strip_reasoning

__all__ = ["Letter"]

_ALONE = re.compile(r"\W*([A-Za-z])\W*")
_FIRST = re.compile(r"[\s*_#(\[{\"'`]*([A-Z])[*_)\]}\"'`]*\s*(?:[.):,\-–]|\n|$)")
_STATED = re.compile(
    r"(?:\banswer(?:\s+is)?|\bchoice\s+is|\boption\s+is|\bcorrect\s+is)\s*:?\s*[\s*_(\[{\"'`]*([A-Z])\b"
    r"|\\boxed\{\s*(?:\\text\{)?\(?([A-Z])\b",
    re.IGNORECASE,
)
_THOUGHTS = (("<think>", "</think>"),)


@FILTERS.register("letter")
class Letter(Regex):
    """Keep the letter an answer names: alone, at its beginning, or after `answer is`; `[invalid]` where none is clear.

    `count` says how many choices a document has, as a number or a function of it; a letter beyond them is none.

    >>> Letter(count=4).apply([["(B)", "B. Paris", "The answer is **C**.", "A or B", "E", "I think so"]], [{}])
    [['B', 'B', 'C', '[invalid]', '[invalid]', '[invalid]']]
    """

    per_document: ClassVar[bool] = True

    def __init__(self, count: int | Callable[[Mapping[str, Any]], int] = 26) -> None:
        super().__init__(_STATED.pattern)
        self._count = count

    def apply(self, responses: Sequence[Any], documents: Sequence[Any]) -> list[Any]:
        found = []
        for values, fields in zip(responses, documents, strict=True):
            count = self._count(fields) if callable(self._count) else self._count
            letters = ascii_uppercase[:count]
            found.append([_letter(value, letters) or self.fallback for value in values])
        return found


def _letter(value: Any, letters: str) -> str:
    if not isinstance(value, str):
        return ""
    text = strip_reasoning(value, _THOUGHTS).strip()
    if alone := _ALONE.fullmatch(text):
        named = {alone[1].upper()}
    elif first := _FIRST.match(text):
        named = {first[1]}
    else:
        named = {(one[1] or one[2]).upper() for one in _STATED.finditer(text) if (one[1] or one[2]).isupper()}
    letter = named.pop() if len(named) == 1 else ""
    return letter if letter in letters else ""
