"""Which responses a journal has, in a dozen bytes each: an index kept in memory, so that the file is only appended to.

An index in the file would be written to all over, once per response; this one is rebuilt by reading the names once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

__all__ = ["ResponseIndex"]

MAX_RECENT = 1 << 15
"""How many of the last names are kept as they are, before they become numbers."""


class ResponseIndex:
    """Fingerprint -> row. Older names are kept as 64-bit hashes, so a hit is checked by whoever reads the row."""

    def __init__(self) -> None:
        self.next_row = 0
        """The number of the next row."""

        self._recent: dict[str, int] = {}
        self._older: list[tuple[Any, Any]] = []
        """(sorted hashes, rows) pairs, the largest first, each at least twice as long as the next."""

    def add(self, fingerprint: str, row: int) -> None:
        """Remember a name."""
        self._recent[fingerprint] = row
        self.next_row = max(self.next_row, row + 1)
        if len(self._recent) >= MAX_RECENT:
            self._compact()

    def add_new(self, fingerprints: Collection[str]) -> range:
        """Remember names that are not known yet, in rows of their own; returns these rows."""
        numbers = range(self.next_row, self.next_row + len(fingerprints))
        self._recent.update(zip(fingerprints, numbers, strict=True))
        self.next_row = numbers.stop
        if len(self._recent) >= MAX_RECENT:
            self._compact()
        return numbers

    def extend(self, named: Iterable[tuple[str, int]]) -> None:
        """Remember many names."""
        for fingerprint, row in named:
            self.add(fingerprint, row)

    def find_candidate_rows(self, fingerprints: Sequence[str]) -> list[int]:
        """The rows that may hold these names, in no order."""
        if not self._older:
            if not self._recent:
                return []
            return [row for row in map(self._recent.get, fingerprints) if row is not None]
        import numpy

        found = [row for row in map(self._recent.get, fingerprints) if row is not None]
        wanted = numpy.fromiter(map(hash, fingerprints), numpy.int64, len(fingerprints))
        for hashes, rows in self._older:
            places = numpy.searchsorted(hashes, wanted)
            places[places == len(hashes)] = 0
            found += rows[places[hashes[places] == wanted]].tolist()
        return found

    def discard(self, fingerprint: str) -> None:
        """A name whose row is not there any more; what is left of it is found out by whoever reads the row."""
        self._recent.pop(fingerprint, None)

    def is_recent(self, fingerprint: str) -> bool:
        """Whether a name was added lately."""
        return fingerprint in self._recent

    @property
    def has_older(self) -> bool:
        """Whether there are names that are no longer kept as they are."""
        return bool(self._older)

    def _compact(self) -> None:
        import numpy

        count = len(self._recent)
        hashes = numpy.fromiter(map(hash, self._recent), numpy.int64, count)
        rows = numpy.fromiter(
            self._recent.values(), numpy.uint32 if self.next_row < 1 << 32 else numpy.int64, count
        )
        self._recent = {}
        while self._older and len(self._older[-1][0]) < 2 * len(hashes):
            more_hashes, more_rows = self._older.pop()
            hashes, rows = numpy.concatenate((more_hashes, hashes)), numpy.concatenate((more_rows, rows))
        order = numpy.argsort(hashes, kind="stable")
        self._older.append((hashes[order], rows[order]))
