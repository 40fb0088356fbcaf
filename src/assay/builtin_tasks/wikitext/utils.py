"""WikiText: articles as people write them, and how long they were as they are published.

The dataset has its words and marks set apart by blanks. A model is asked about the text without these blanks, but the
perplexity is counted per word and byte of the text with them, so that it can be compared with that of models which
work on words.
"""

from __future__ import annotations

import re
from typing import Any

_JOINED = (("s '", "s'"), (" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."))
_MARKS = tuple((f" {mark} ", f"{mark} ") for mark in ":;.!?,")
_ENCLOSING = tuple(
    (re.compile(rf"{opening}\s*([^{closing}]*?)\s*{closing}"), rf"{shown[0]}\1{shown[1]}")
    for opening, closing, shown in (
        (r"\(", r"\)", "()"),
        (r"\[", r"\]", "[]"),
        ("{", "}", "{}"),
        ('"', '"', '""'),
        ("'", "'", "''"),
    )
)
_LAST = (
    ("= = = =", "===="),
    ("= = =", "==="),
    ("= =", "=="),
    (" ° ", "°"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
)
_SLASHED = re.compile("/' [0-9]/")
"""Meant for digits behind an apostrophe, it replaces a digit by the letters `[0-9]`. The published numbers have it."""


def as_people_write(document: dict[str, Any]) -> str:
    r"""The article without the blanks that set words and marks apart. The order of the steps matters.

    >>> as_people_write({"page": " = A ( small ) town = \n It 's well @-@ known , with 1 @,@ 000 people . \n"})
    " = A (small) town =\nIt's well-known, with 1,000 people.\n"
    """
    text = _replaced(document["page"], _JOINED[:1])
    text = _SLASHED.sub("/'[0-9]/", text)
    text = _replaced(text, _JOINED[1:] + _MARKS)
    for pattern, tight in _ENCLOSING:
        text = pattern.sub(tight, text)
    return _replaced(text, _LAST)


def _replaced(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for written, meant in pairs:
        text = text.replace(written, meant)
    return text


def process_results(document: dict[str, Any], results: list[float]) -> dict[str, tuple[float, int]]:
    """The log-likelihood of the article with the number of words and of bytes it counts for."""
    (loglikelihood,) = results
    page = document["page"]
    words, size = len(re.split(r"\s+", page)), len(page.encode("utf-8"))
    return {
        "word_perplexity": (loglikelihood, words),
        "byte_perplexity": (loglikelihood, size),
        "bits_per_byte": (loglikelihood, size),
    }
