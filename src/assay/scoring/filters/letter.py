"""The filter that extracts the letter of a choice from generated text. Strict: an ambiguous text is no answer."""

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
_REASONING_TAGS = (("<think>", "</think>"),)


@FILTERS.register("letter")
class Letter(Regex):
    """Keep the letter that stands alone, at the start, or after `answer is`. Otherwise the answer is `[invalid]`.

    `count` is the number of choices, or a function of the document that returns it. Letters beyond it do not count.

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
            found.append([_extract_letter(value, letters) or self.fallback for value in values])
        return found


def _extract_letter(value: Any, letters: str) -> str:
    if not isinstance(value, str):
        return ""
    text = strip_reasoning(value, _REASONING_TAGS).strip()
    if alone := _ALONE.fullmatch(text):
        named = {alone[1].upper()}
    elif first := _FIRST.match(text):
        named = {first[1]}
    else:
        named = {(one[1] or one[2]).upper() for one in _STATED.finditer(text) if (one[1] or one[2]).isupper()}
    letter = named.pop() if len(named) == 1 else ""
    return letter if letter in letters else ""
