"""The rows of a jsonl file, read when they are wanted: what is held of a row is where it begins.

A file is read through once to check every line and to learn its columns, and again, line by line, by each pass.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO
from weakref import finalize

from assay.core.errors import BadData

__all__ = ["Lines", "parse"]

_HINT = '{"question": "…", "answer": "…"}'
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""The part of `json.loads` that reads; around it are preparations that cost as much as a short line."""

_LINE_ENDS = ("\n", "", "\r\n")


class Lines(Sequence[Mapping[str, Any]]):
    """The rows of one file. `Lines(path)` reads it through.

    Raises:
        BadData: The file cannot be read, a line is not an object, or the file is changed while it is being read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: dict[str, None] = {}
        """The names of all columns, in order of their first use."""

        self._starts = array("Q")
        self._file: BinaryIO | None = None
        self._turn = Lock()
        hasher = hashlib.blake2b(digest_size=16)
        with self._open() as file:
            self._stamp = _stamp(file)
            self._read_through(file, hasher)
        self.digest = hasher.hexdigest()
        """Hash of the whole file."""

    def _read_through(self, file: BinaryIO, hasher: Any) -> None:
        start = 0
        columns, last = self.columns, None
        for number, line in enumerate(file, start=1):
            hasher.update(line)
            row = _plain_row(line) if start else None
            if row is None:
                row = self._row(line, number, start)
            if row is not None:
                self._starts.append(start)
                names = tuple(row)
                if names != last:
                    last = names
                    columns.update(dict.fromkeys(names))
            start += len(line)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        with self._turn:
            if self._file is None:
                self._file = self._open()
                finalize(self, self._file.close)
            self._check(self._file)
            self._file.seek(self._starts[at])
            line = self._file.readline()
        row = _plain_row(line) if at else None
        return self._row(line, at + 1, self._starts[at]) if row is None else row

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        with self._open() as file:
            self._check(file)
            start = 0
            for number, line in enumerate(file, start=1):
                row = _plain_row(line) if start else None
                if row is None:
                    row = self._row(line, number, start)
                if row is not None:
                    yield row
                start += len(line)
            self._check(file)

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise BadData(f"cannot read the data file: {error.strerror}", where=str(self.path)) from None

    def _check(self, file: BinaryIO) -> None:
        if _stamp(file) != self._stamp:
            raise BadData(
                "the data file changed while it was being read",
                where=str(self.path),
                hint="leave it alone until the run has ended, or begin again",
            )

    def _row(self, line: bytes, number: int, start: int) -> Mapping[str, Any] | None:
        """The row of a line; None for one with nothing in it."""
        try:
            text = line.decode("utf-8" if start else "utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadData(
                f"the data file is not UTF-8: {error.reason} at byte {start + error.start}",
                where=str(self.path),
            ) from None
        if not text.strip():
            return None
        row = parse(text, f"{self.path}:{number}")
        if not isinstance(row, Mapping):
            raise BadData("a row must be a JSON object", where=f"{self.path}:{number}", hint=_HINT)
        return row


def _plain_row(line: bytes) -> Mapping[str, Any] | None:
    """The row of a line that is as nearly all of them are; None for one that is looked at more closely."""
    try:
        text = line.decode()
        row, end = _scan(text, 0)
    except (StopIteration, ValueError, RecursionError):
        return None
    return row if type(row) is dict and text[end:] in _LINE_ENDS else None


def _stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def parse(text: str, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        BadData: It is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = where if ":" in where else f"{where}:{error.lineno}"
        raise BadData(f"not valid JSON: {error.msg}", where=place) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of thousands of digits, a nest of thousands of brackets
        raise BadData(f"not readable as JSON: {error}", where=where) from None
