"""Find documents that may be in the training data of a model, by shared word n-grams.

A document counts as contaminated if the corpus contains any 13 consecutive words of its query, ignoring case and
punctuation (Brown et al. 2020, appendix C). Queries are held in memory. The corpus is streamed and may have any size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["OVERLAP_WORDS", "find_overlaps", "iterate_ngrams", "split_words"]

OVERLAP_WORDS = 13
_WORD = re.compile(r"\w+(?:['’]\w+)*", re.UNICODE)


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation.

    >>> split_words("The cat, it's SAID, sat.")
    ['the', 'cat', "it's", 'said', 'sat']
    """
    return _WORD.findall(text.lower())


def iterate_ngrams(text: str, size: int = OVERLAP_WORDS) -> Iterator[tuple[str, ...]]:
    """Iterate over all n-grams of `size` words. A shorter text is one n-gram."""
    found = split_words(text)
    if 0 < len(found) < size:
        yield tuple(found)
    for start in range(len(found) - size + 1):
        yield tuple(found[start : start + size])


def find_overlaps(
    queries: Mapping[int, str], corpus: Iterable[str], *, size: int = OVERLAP_WORDS
) -> dict[int, str]:
    """Return the queries that share an n-gram with the corpus, with the first shared n-gram.

    A query with fewer words than an n-gram is searched as a whole.

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
        text_words = split_words(text)
        for length in lengths:
            for start in range(len(text_words) - length + 1):
                run = tuple(text_words[start : start + length])
                for document in wanted.get(run, ()):
                    found.setdefault(document, " ".join(run))
    return dict(sorted(found.items()))
