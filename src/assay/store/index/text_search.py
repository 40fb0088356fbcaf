"""Full-text search: finds parts of words in half a million documents in a fraction of a second.

Each document is stored as lower-case text and as a list of word numbers. A search for `zebr` scans the vocabulary (a few
megabytes) for words that contain it, and then the word numbers of the documents. Phrases are searched in the texts of
the documents that contain all their words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

__all__ = ["TextIndex", "parse_search_words"]

MAX_TEXT_BYTES = 65_536
"""Maximum number of indexed bytes per document."""

SCAN_BLOCK_BYTES = 1 << 24
_MAX_TEXTS_READ_SINGLY = 20_000
"""Up to this number, texts are searched one by one; for more, the whole file is scanned."""

_END = b"\0"


def parse_search_words(query: str) -> list[str]:
    """Split a query into words and quoted phrases.

    >>> parse_search_words('Paris "capital of" 42')
    ['capital of', 'paris', '42']
    """
    quoted = [" ".join(part.lower().split()) for part in re.findall(r'"([^"]+)"', query)]
    rest = re.sub(r'"[^"]*"?', " ", query).lower().split()
    return [part for part in (*quoted, *rest) if part]


class TextIndex:
    """An append-only file of texts with the row of each. A later text of a row replaces the earlier one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words_path = path.with_suffix(".words")
        self.starts: list[NDArray[np.int64]] = []
        """Start of each text in bytes."""

        self.word_starts: list[NDArray[np.int64]] = []
        """Start of the word numbers of each text."""

        self.owners: list[NDArray[np.int32]] = []
        self.size = 0
        self.word_count = 0
        self._vocabulary: dict[str, int] | None = {"": 0}
        self._stored_vocabulary = b""
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._vocabulary_blob: tuple[NDArray[np.uint8], NDArray[np.int64]] | None = None

    @property
    def vocabulary(self) -> dict[str, int]:
        """Word -> number. Number 0 is part of every text, so that none is empty."""
        if self._vocabulary is None:
            self._vocabulary = {
                word: at for at, word in enumerate(self._stored_vocabulary.decode().split("\0"))
            }
        return self._vocabulary

    def encode_vocabulary(self) -> bytes:
        """Return all words in the order of their numbers, as stored."""
        if self._vocabulary is None:
            return self._stored_vocabulary
        return "\0".join(self._vocabulary).encode()

    def load_vocabulary(self, stored: bytes) -> None:
        """Load a stored vocabulary; it is decoded on first use."""
        self._stored_vocabulary, self._vocabulary, self._vocabulary_blob = stored, None, None

    def append(self, rows: list[int], texts: list[str]) -> None:
        """Add the texts of rows."""
        if not rows:
            return
        lines: list[bytes] = []
        numbers: list[int] = []
        firsts: list[int] = []
        known = self.vocabulary
        for text in texts:
            if not text.isascii():  # replace lone surrogates
                text = text.encode("utf-8", "replace").decode()
            words = text.lower().replace("\0", " ").split()
            line = " ".join(words).encode()
            if len(line) > MAX_TEXT_BYTES:
                line = line[:MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()
                words = line.decode().split()
            lines.append(line)
            firsts.append(self.word_count + len(numbers))
            numbers.append(0)
            for word in set(words):
                number = known.get(word)
                if number is None:
                    number = known[word] = len(known)
                numbers.append(number)
        lengths = np.fromiter((len(line) + 1 for line in lines), np.int64, len(lines))
        self.starts.append(self.size + np.concatenate(([0], np.cumsum(lengths)[:-1])))
        self.word_starts.append(np.array(firsts, dtype=np.int64))
        self.owners.append(np.array(rows, dtype=np.int32))
        text_file, word_file = self._open()
        text_file.write(_END.join(lines) + _END)
        word_file.write(np.array(numbers, dtype=np.int32).tobytes())
        text_file.flush()
        word_file.flush()
        self.size += int(lengths.sum())
        self.word_count += len(numbers)
        self._vocabulary_blob = None

    def _open(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._files is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "r+b" if self.size else "wb"
            self._files = (self.path.open(mode), self.words_path.open(mode))
            self._files[0].seek(self.size)
            self._files[1].seek(4 * self.word_count)
        return self._files

    def close(self) -> None:
        """Close the files; `append` opens them again."""
        for file in self._files or ():
            file.close()
        self._files = None

    def read_positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
        """Return (starts, word starts, owners) of all texts in file order; the owner of a replaced text is -1."""
        if len(self.starts) > 1:
            self.starts, self.word_starts, self.owners = (
                [np.concatenate(self.starts)],
                [np.concatenate(self.word_starts)],
                [np.concatenate(self.owners)],
            )
        if not self.starts:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)
        return self.starts[0], self.word_starts[0], self.owners[0]

    def discard_rows(self, rows: NDArray[np.int64]) -> None:
        """Discard the texts of rows that are added again."""
        owners = self.read_positions()[2]
        if len(owners):
            self.owners = [np.where(np.isin(owners, rows), np.int32(-1), owners)]

    def search(self, words: list[str], rows: int) -> NDArray[np.bool_]:
        """Return which rows contain all words and phrases."""
        starts, word_starts, owners = self.read_positions()
        found = np.zeros(rows, dtype=bool)
        hits = owners >= 0
        for part in dict.fromkeys(part for word in words for part in word.split()):
            if not hits.any():
                return found
            hits &= self._match_word_part(part, word_starts)
        for phrase in words:
            if " " in phrase and hits.any():
                hits &= self._match_phrase(phrase.encode("utf-8", "replace"), starts, hits)
        owning = owners[hits]
        found[owning[owning < rows]] = True  # texts are written before their rows are published
        return found

    def _match_word_part(self, part: str, word_starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which texts have a word that contains `part`."""
        if self._vocabulary_blob is None:
            self._vocabulary_blob = _build_blob(self.encode_vocabulary())
        wanted = _find_texts_containing(*self._vocabulary_blob, part.encode("utf-8", "replace"))
        wanted[0] = False
        if not wanted.any():
            return np.zeros(len(word_starts), dtype=bool)
        numbers = np.memmap(self.words_path, dtype=np.int32, mode="r", shape=(self.word_count,))
        found: NDArray[np.bool_] = np.logical_or.reduceat(wanted[numbers], word_starts)
        return found

    def _match_phrase(
        self, phrase: bytes, starts: NDArray[np.int64], hits: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        data = np.memmap(self.path, dtype=np.uint8, mode="r", shape=(self.size,))
        chosen = np.flatnonzero(hits)
        if len(chosen) > _MAX_TEXTS_READ_SINGLY:
            return _find_texts_containing(data, starts, phrase)
        found = np.zeros(len(starts), dtype=bool)
        ends = np.append(starts[1:], self.size)
        for at in chosen.tolist():
            found[at] = phrase in data[starts[at] : ends[at]].tobytes()
        return found


def _build_blob(words: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all words as one array, and the start of each."""
    data = np.frombuffer(words + _END, dtype=np.uint8)
    ends = np.flatnonzero(data == 0)
    return data, np.concatenate(([0], ends[:-1] + 1)).astype(np.int64)


def _find_texts_containing(
    data: NDArray[np.uint8], starts: NDArray[np.int64], word: bytes
) -> NDArray[np.bool_]:
    """Return which texts contain a word: scan for its two rarest bytes, then compare the others."""
    found = np.zeros(len(starts), dtype=bool)
    letters = np.frombuffer(word, dtype=np.uint8)
    common = np.bincount(data[: 1 << 18], minlength=256)
    first, *others = np.argsort(common[letters], kind="stable").tolist()
    size, reach = len(data), len(letters)
    for begin in range(0, max(0, size - reach + 1), SCAN_BLOCK_BYTES):
        end = min(begin + SCAN_BLOCK_BYTES, size - reach + 1)
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
            found[np.searchsorted(starts, places, side="right") - 1] = True
    return found
