"""The texts of documents in one file, lower-cased: searched whole, at the speed of memory.

Half a million documents are a few hundred megabytes. Looking for the rarest letters of a word in all of them at once
takes a fraction of a second, needs no index to be built, and finds any part of any word in any script.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

__all__ = ["TextFile", "search_words"]

LONGEST = 65_536
"""Bytes of a document that are searched; a longer one is searched as far as that."""

_BLOCK = 1 << 24
_END = b"\0"


def search_words(query: str) -> list[str]:
    """What must occur in a text: every word, and everything in quotation marks as it stands.

    >>> search_words('Paris "capital of" 42')
    ['capital of', 'paris', '42']
    """
    quoted = [part.lower() for part in re.findall(r'"([^"]+)"', query)]
    rest = re.sub(r'"[^"]*"?', " ", query).lower().split()
    return [*quoted, *rest]


class TextFile:
    """Texts one after the other, each with the row it belongs to. A row's later text takes the place of its earlier one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts: list[NDArray[np.int64]] = []
        self.owners: list[NDArray[np.int32]] = []
        self.size = 0
        self._file: IO[bytes] | None = None

    def append(self, rows: list[int], texts: list[str]) -> None:
        """Add texts of rows."""
        if not rows:
            return
        kept = [text.lower().encode("utf-8", "replace")[:LONGEST].replace(_END, b" ") for text in texts]
        lengths = np.fromiter((len(text) + 1 for text in kept), np.int64, len(kept))
        self.starts.append(self.size + np.concatenate(([0], np.cumsum(lengths)[:-1])))
        self.owners.append(np.array(rows, dtype=np.int32))
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("r+b" if self.size else "wb")
            self._file.seek(self.size)
        self._file.write(_END.join(kept) + _END)
        self._file.flush()
        self.size += int(lengths.sum())

    def close(self) -> None:
        """Let go of the file; it is opened again by whoever appends."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(starts, owners) of all texts, in the order of the file; owners of texts that were replaced are -1."""
        if len(self.starts) > 1:
            self.starts, self.owners = [np.concatenate(self.starts)], [np.concatenate(self.owners)]
        if not self.starts:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        return self.starts[0], self.owners[0]

    def forget(self, rows: NDArray[np.int64]) -> None:
        """Texts of rows that are about to be added anew."""
        starts, owners = self.places()
        if len(owners):
            self.owners = [np.where(np.isin(owners, rows), np.int32(-1), owners)]
            self.starts = [starts]

    def search(self, words: list[str], rows: int) -> NDArray[np.bool_]:
        """Which of the rows have all of the words in their text."""
        starts, owners = self.places()
        found = np.zeros(rows, dtype=bool)
        if not len(starts):
            return found
        data = np.memmap(self.path, dtype=np.uint8, mode="r", shape=(self.size,))
        hits = np.ones(len(starts), dtype=bool)
        for word in words:
            hits &= _texts_with(data, starts, word.encode("utf-8", "replace"))
        owning = owners[hits]
        found[owning[(owning >= 0) & (owning < rows)]] = True  # texts are written before their rows are known
        return found


def _texts_with(data: NDArray[np.uint8], starts: NDArray[np.int64], word: bytes) -> NDArray[np.bool_]:
    """Which texts contain a word: its two rarest bytes are looked for everywhere, the others where those are."""
    found = np.zeros(len(starts), dtype=bool)
    letters = np.frombuffer(word, dtype=np.uint8)
    common = np.bincount(data[: 1 << 18], minlength=256)
    first, *others = np.argsort(common[letters], kind="stable").tolist()
    size, reach = len(data), len(letters)
    for begin in range(0, max(0, size - reach + 1), _BLOCK):
        end = min(begin + _BLOCK, size - reach + 1)
        mask = data[begin + first : end + first] == letters[first]
        if others:
            mask &= data[begin + others[0] : end + others[0]] == letters[others[0]]
        places = np.flatnonzero(mask)
        places += begin
        for at in others[1:]:
            if not len(places):
                break
            places = places[data[places + at] == letters[at]]
        if len(places):
            owners = np.searchsorted(starts, places, side="right") - 1
            found[owners] = True
    return found
