"""Near-duplicates: texts that differ only in case, spaces, punctuation or a few characters.

Texts with the same letters and digits are found with a dictionary, the others with MinHash: texts that share most of their
character n-grams get equal signatures in some band and are then compared exactly. A hundred thousand texts take seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_near_duplicates", "is_similar", "normalise_text"]

MIN_SIMILARITY = 0.8
"""Smallest share of common n-grams (Jaccard) of two near-duplicates."""

_GRAM_LENGTH = 4
_BANDS, _ROWS_PER_BAND = 10, 4
_CHUNK_SIZE = 4000
"""Texts whose n-grams are hashed together, to bound the memory."""

_MAX_TEXT_LENGTH = 2000
"""Characters of a text that are compared."""

_MAX_COMPARISONS = 30
"""Texts of one bucket that a text is compared with: texts of one template share their bucket."""

_WORDS = re.compile(r"[^\W_]+")
_NUMBERS = re.compile(r"\d+")


def normalise_text(text: str) -> str:
    """Return the words of a text in lower case, separated by single spaces.

    >>> normalise_text("  What is\\n2 + 2?")
    'what is 2 2'
    """
    return " ".join(_WORDS.findall(text.casefold()))


def is_similar(first: str, second: str, similarity: float = MIN_SIMILARITY) -> bool:
    """Return whether two texts share this fraction of their n-grams.

    >>> is_similar("Who wrote Hamlet?", "who wrote hamlet"), is_similar("Who wrote Hamlet?", "Who wrote Faust?")
    (True, False)
    """
    one, other = (normalise_text(text[:_MAX_TEXT_LENGTH]) for text in (first, second))
    return one == other or _share_grams(_count_grams(one), _count_grams(other), similarity)


def _count_grams(text: str) -> Counter[str]:
    return Counter(text[at : at + _GRAM_LENGTH] for at in range(max(1, len(text) - _GRAM_LENGTH + 1)))


def _share_grams(one: Counter[str], other: Counter[str], similarity: float) -> bool:
    common = (one & other).total()
    return common >= similarity * (one.total() + other.total() - common)


def find_near_duplicates(
    texts: Sequence[str], confirm: Callable[[int, int], bool] | None = None
) -> list[tuple[int, int]]:
    """Return (index, index of an earlier text that is nearly the same), in order. Texts without words have no duplicates.

    Texts with different numbers are different: tasks generate questions from templates. `confirm` gets the indices of two
    similar texts and decides whether they are duplicates.

    >>> find_near_duplicates(["Who wrote Hamlet?", "who wrote  hamlet", "Who wrote Faust?"])
    [(1, 0)]
    """
    first: dict[str, int] = {}
    found: dict[int, int] = {}
    for index, text in enumerate(texts):
        plain = normalise_text(text[:_MAX_TEXT_LENGTH])
        if plain and first.setdefault(plain, index) != index:
            found[index] = first[plain]
    known = [(plain, index) for plain, index in first.items() if len(plain) > 2 * _GRAM_LENGTH]

    def confirm_known(later: int, earlier: int) -> bool:
        return confirm is None or confirm(known[later][1], known[earlier][1])

    for later, earlier in _find_similar([plain for plain, _ in known], confirm_known):
        found.setdefault(known[later][1], known[earlier][1])
    return sorted(found.items())


def _find_similar(texts: Sequence[str], confirm: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """Yield (index, earlier index) of texts with many common n-grams."""
    if len(texts) < 2:
        return
    signatures = _compute_signatures(texts)
    numbers: dict[tuple[str, ...], int] = {}
    numbered = [numbers.setdefault(tuple(_NUMBERS.findall(text)), len(numbers)) for text in texts]
    by_numbers = np.array(numbered, dtype=np.uint64)[:, None]
    taken: set[int] = set()
    compared: set[tuple[int, int]] = set()
    grams: dict[int, Counter[str]] = {}
    for band in range(_BANDS):
        rows = signatures[:, band * _ROWS_PER_BAND : (band + 1) * _ROWS_PER_BAND]
        part = np.hstack((by_numbers, rows))
        _, codes, counts = np.unique(part, axis=0, return_inverse=True, return_counts=True)
        codes = codes.reshape(-1)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(counts)
        for code in np.flatnonzero(counts > 1).tolist():
            bucket = order[ends[code] - counts[code] : ends[code]].tolist()
            for place, later in enumerate(bucket[1:], 1):
                if later in taken:
                    continue
                for earlier in bucket[max(0, place - _MAX_COMPARISONS) : place]:
                    pair = (earlier, later)
                    if pair in compared:
                        continue
                    compared.add(pair)
                    if _is_similar_pair(texts, pair, signatures, grams) and confirm(later, earlier):
                        taken.add(later)
                        yield later, earlier
                        break


def _is_similar_pair(
    texts: Sequence[str],
    pair: tuple[int, int],
    signatures: NDArray[np.uint64],
    grams: dict[int, Counter[str]],
) -> bool:
    one, other = pair
    if (signatures[one] == signatures[other]).mean() < MIN_SIMILARITY - 0.3:
        return False
    for index in pair:
        if index not in grams:
            grams[index] = _count_grams(texts[index])
    return _share_grams(grams[one], grams[other], MIN_SIMILARITY)


def _compute_signatures(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return the MinHash signature of each text: the smallest value of several hash functions over its n-grams."""
    random = np.random.default_rng(0)
    size = _BANDS * _ROWS_PER_BAND
    factors = random.integers(1, 2**63, size, dtype=np.uint64) | np.uint64(1)
    shifts = random.integers(0, 2**63, size, dtype=np.uint64)
    signatures = np.empty((len(texts), size), dtype=np.uint64)
    for start in range(0, len(texts), _CHUNK_SIZE):
        chunk = texts[start : start + _CHUNK_SIZE]
        letters = np.frombuffer("".join(chunk).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        lengths = np.array([len(text) for text in chunk])
        hashes = np.zeros(len(letters) - _GRAM_LENGTH + 1, dtype=np.uint64)
        for offset in range(_GRAM_LENGTH):
            hashes = hashes * np.uint64(0x100000001B3) + letters[offset : offset + len(hashes)]
        hashes ^= hashes >> np.uint64(29)
        inside = np.ones(len(hashes), dtype=bool)
        ends = np.cumsum(lengths)
        for back in range(1, _GRAM_LENGTH):  # n-grams across the end of a text
            inside[ends[:-1] - back] = False
        hashes = hashes[inside]
        starts = np.concatenate(([0], np.cumsum(lengths - _GRAM_LENGTH + 1)[:-1]))
        for column in range(size):
            values = hashes * factors[column] + shifts[column]
            values ^= values >> np.uint64(32)
            signatures[start : start + len(chunk), column] = np.minimum.reduceat(values, starts)
    return signatures
