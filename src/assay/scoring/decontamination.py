"""Which documents the model may have read before: word n-grams shared with texts it was trained on.

A document counts as contaminated when any run of 13 words of its query stands in the corpus too, letter case and
punctuation aside (Brown et al. 2020, appendix C). Queries are held, the corpus is streamed: it may be of any size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["OVERLAP_WORDS", "find_overlaps", "iterate_ngrams", "split_words"]

OVERLAP_WORDS = 13
_WORD = re.compile(r"\w+(?:['’]\w+)*", re.UNICODE)


def split_words(text: str) -> list[str]:
    """The words of a text in lower case, punctuation left out.

    >>> words("The cat, it's SAID, sat.")
    ['the', 'cat', "it's", 'said', 'sat']
    """
    return _WORD.findall(text.lower())


def iterate_ngrams(text: str, size: int = OVERLAP_WORDS) -> Iterator[tuple[str, ...]]:
    """Every run of `size` words; a shorter text is one run of all it has."""
    found = split_words(text)
    if 0 < len(found) < size:
        yield tuple(found)
    for start in range(len(found) - size + 1):
        yield tuple(found[start : start + size])


def find_overlaps(
    queries: Mapping[int, str], corpus: Iterable[str], *, size: int = OVERLAP_WORDS
) -> dict[int, str]:
    """Which queries share a run of words with the corpus, and the first run they share.

    A query shorter than the run is looked for as a whole.

    >>> find_overlaps({0: "one two three", 1: "four five six"}, ["so: One, two, three!"], size=3)
    {0: 'one two three'}
    """
    wanted: dict[tuple[str, ...], list[int]] = {}
    for document, query in queries.items():
        for run in iterate_ngrams(query, size):
            wanted.setdefault(run, []).append(document)
    lengths = sorted({len(run) for run in wanted})
    found: dict[int, str] = {}
    for text in corpus:
        spoken = split_words(text)
        for length in lengths:
            for start in range(len(spoken) - length + 1):
                run = tuple(spoken[start : start + length])
                for document in wanted.get(run, ()):
                    found.setdefault(document, " ".join(run))
    return dict(sorted(found.items()))
