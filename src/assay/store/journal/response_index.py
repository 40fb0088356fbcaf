"""In-memory index of the responses of a journal: fingerprint to row, in about a dozen bytes each.

An index in the file would cause a random write per response; with this one the file is only appended to. It is rebuilt
by reading the fingerprints once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

__all__ = ["ResponseIndex"]

MAX_RECENT = 1 << 15
"""Number of recent fingerprints stored in full, before they are compacted to hashes."""


class ResponseIndex:
    """Maps fingerprints to rows. Older ones are stored as 64-bit hashes, so callers must verify the row they read."""

    def __init__(self) -> None:
        self.next_row = 0
        """Id of the next row."""

        self._recent: dict[str, int] = {}
        self._older: list[tuple[Any, Any]] = []
        """(sorted hashes, rows) pairs, the largest first, each at least twice as long as the next."""

    def add(self, fingerprint: str, row: int) -> None:
        """Add a fingerprint."""
        self._recent[fingerprint] = row
        self.next_row = max(self.next_row, row + 1)
        if len(self._recent) >= MAX_RECENT:
            self._compact()

    def add_new(self, fingerprints: Collection[str]) -> range:
        """Assign rows to new fingerprints; return the rows."""
        numbers = range(self.next_row, self.next_row + len(fingerprints))
        self._recent.update(zip(fingerprints, numbers, strict=True))
        self.next_row = numbers.stop
        if len(self._recent) >= MAX_RECENT:
            self._compact()
        return numbers

    def extend(self, entries: Iterable[tuple[str, int]]) -> None:
        """Add (fingerprint, row) pairs."""
        for fingerprint, row in entries:
            self.add(fingerprint, row)

    def find_candidate_rows(self, fingerprints: Sequence[str]) -> list[int]:
        """Return the rows that may contain these fingerprints, unordered."""
        if not self._older:
            if not self._recent:
                return []
            return [row for row in map(self._recent.get, fingerprints) if row is not None]
        import numpy

        found = [row for row in map(self._recent.get, fingerprints) if row is not None]
        wanted = numpy.fromiter(map(hash, fingerprints), numpy.int64, len(fingerprints))
        for hashes, rows in self._older:
            positions = numpy.searchsorted(hashes, wanted)
            positions[positions == len(hashes)] = 0
            found += rows[positions[hashes[positions] == wanted]].tolist()
        return found

    def discard(self, fingerprint: str) -> None:
        """Remove a fingerprint whose row was deleted. Compacted entries remain; reading the row shows that it is gone."""
        self._recent.pop(fingerprint, None)

    def is_recent(self, fingerprint: str) -> bool:
        """Whether a fingerprint is among the recent ones."""
        return fingerprint in self._recent

    @property
    def has_older(self) -> bool:
        """Whether there are compacted entries."""
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
