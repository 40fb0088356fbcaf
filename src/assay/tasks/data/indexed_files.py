"""Rows of a data file that stay in the file: eight bytes of memory per row, which is read on demand.

`IndexedFile` is the part that all formats share: the offsets of the rows, the hash, random access, and the check that
the file did not change. `json_files` and `csv_files` contain the formats.
"""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO
from weakref import finalize

from assay.core.errors import DatasetError

__all__ = ["ROW_HINT", "ConcatenatedFiles", "IndexedFile"]

ROW_HINT = '{"question": "…", "answer": "…"}'

_MAX_BATCH_ROWS = 256
_MAX_BATCH_BYTES = 1_000_000
"""Limits of the rows that an iteration reads at once."""


class IndexedFile(Sequence[Mapping[str, Any]]):
    """The rows of one file. The constructor reads the file through.

    Raises:
        DatasetError: The file cannot be read, does not have its format, or is changed while it is being read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: dict[str, None] = {}
        """The names of all columns, in order of first use."""

        self._starts = array("Q")
        self._file: BinaryIO | None = None
        self._lock = Lock()
        hasher = hashlib.blake2b(digest_size=16)
        with self._open() as file:
            self._stamp = _file_stamp(file)
            self._index_rows(file, hasher)
        self.digest = hasher.hexdigest()
        """Hash of the whole file."""

    @abstractmethod
    def _index_rows(self, file: BinaryIO, hasher: Any) -> None:
        """Read the whole file: update the hash, and fill `_starts` and `columns`."""

    @abstractmethod
    def _read_row(self, file: BinaryIO, position: int) -> Mapping[str, Any]:
        """Read one row."""

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        with self._lock:
            if self._file is None:
                self._file = self._open()
                finalize(self, self._file.close)
            self._check_unchanged(self._file)
            return self._read_row(self._file, position)

    @property
    def mean_row_bytes(self) -> float:
        """The mean length of a row in the file."""
        return self._stamp[0] / max(1, len(self))

    def read_rows(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Read rows at ascending positions. They are often in the same block of the file."""
        with self._open() as file:
            self._check_unchanged(file)
            rows = [self._read_row(file, position) for position in positions]
            self._check_unchanged(file)
        return rows

    def _read_bytes(self, file: BinaryIO, position: int, end: int) -> bytes:
        """Read the bytes from the start of one row to the start of another one, or to the end of the file."""
        starts = self._starts
        start = starts[position]
        size = (starts[end] if end < len(starts) else self._stamp[0]) - start
        file.seek(start)
        data = file.read(size)
        if len(data) < size:
            self._check_unchanged(file)
        return data

    def _read_batches(self) -> Iterator[bytes]:
        """Read the bytes of all rows, a batch of whole rows at a time."""
        size = max(1, min(_MAX_BATCH_ROWS, int(_MAX_BATCH_BYTES / max(1.0, self.mean_row_bytes))))
        with self._open() as file:
            self._check_unchanged(file)
            for position in range(0, len(self), size):
                data = self._read_bytes(file, position, position + size)
                self._check_unchanged(file)
                yield data

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise DatasetError(f"cannot read the data file: {error.strerror}", where=str(self.path)) from None

    def _check_unchanged(self, file: BinaryIO) -> None:
        if _file_stamp(file) != self._stamp:
            raise DatasetError(
                "the data file changed during the run",
                where=str(self.path),
                hint="start the run again",
            )

    def _decode(self, data: bytes, start: int) -> str:
        """Decode bytes of the file. A byte order mark at its start is removed."""
        try:
            return data.decode("utf-8" if start else "utf-8-sig")
        except UnicodeDecodeError as error:
            raise DatasetError(
                f"the data file is not UTF-8: {error.reason} at byte {start + error.start}",
                where=str(self.path),
            ) from None


class ConcatenatedFiles(Sequence[Mapping[str, Any]]):
    """The rows of several files as one sequence."""

    def __init__(self, files: Sequence[IndexedFile]) -> None:
        self._files = files
        self._ends = list(accumulate(len(file) for file in files))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _locate(self, position: int) -> tuple[int, int]:
        """Return the number of the file with a row, and the position of its first row."""
        number = bisect_right(self._ends, position)
        return number, self._ends[number - 1] if number else 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.read_rows(range(*index.indices(len(self))))
        position = range(len(self))[index]
        number, first = self._locate(position)
        return self._files[number][position - first]

    @property
    def mean_row_bytes(self) -> float:
        """The mean length of a row in the files."""
        return sum(file.mean_row_bytes * len(file) for file in self._files) / max(1, len(self))

    def read_rows(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Read rows together."""
        rows: list[Mapping[str, Any]] = []
        for (number, first), some in groupby(positions, key=self._locate):
            rows += self._files[number].read_rows([position - first for position in some])
        return rows

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return chain.from_iterable(self._files)


def _file_stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns
