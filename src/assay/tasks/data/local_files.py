"""Read local json, jsonl, csv and tsv files without further packages. Errors name the line.

A jsonl file is not held in memory: `JsonLines` keeps the offset of each line and reads rows on demand.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO
from weakref import finalize

from assay.core.errors import DatasetError
from assay.core.fingerprints import digest_bytes, digest_text
from assay.tasks.data.rows import ConcatenatedRows, Rows

__all__ = ["SUFFIXES", "JsonLines", "read_files"]

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")
_HINT = '{"question": "…", "answer": "…"}'


def read_files(paths: Sequence[str]) -> Rows:
    """Read the rows of several files as one split. Unchanged files are read once per process.

    Raises:
        DatasetError: A file cannot be read or does not have the format of its suffix.
    """
    try:
        stamps = tuple(
            (path, status.st_size, status.st_mtime_ns) for path in paths for status in [Path(path).stat()]
        )
    except OSError as error:
        raise DatasetError(
            f"cannot read the data file: {error.strerror}", where=str(error.filename)
        ) from None
    return _read_stamped_files(stamps)


@lru_cache(maxsize=64)
def _read_stamped_files(stamps: tuple[tuple[str, int, int], ...]) -> Rows:
    parts: list[Sequence[Mapping[str, Any]]] = []
    digests = []
    columns: dict[str, None] = {}
    for name, _, _ in stamps:
        path = Path(name)
        if path.suffix == ".jsonl" and not _starts_with_array(path):
            lines = JsonLines(path)
            parts.append(lines)
            digests.append(lines.digest)
            columns |= lines.columns
        else:
            data = _read_bytes(path)
            digests.append(digest_bytes(data))
            rows = _parse_file(path, data)
            parts.append(rows)
            columns |= dict.fromkeys(key for row in rows for key in row)
    whole = parts[0] if len(parts) == 1 else ConcatenatedRows(parts)
    return Rows.wrap(whole, columns=columns, fingerprint=digest_text(*digests))


def _starts_with_array(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    except OSError as error:
        raise DatasetError(f"cannot read the data file: {error.strerror}", where=str(path)) from None


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"cannot read the data file: {error.strerror}", where=str(path)) from None


def _parse_file(path: Path, data: bytes) -> Sequence[Mapping[str, Any]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"the data file is not UTF-8: {error.reason} at byte {error.start}", where=str(path)
        ) from None
    if path.suffix in (".csv", ".tsv"):
        return _parse_table(path, text, "\t" if path.suffix == ".tsv" else ",")
    return _parse_array(path, text) if text.lstrip().startswith("[") else _parse_lines(path, text)


def _parse_table(path: Path, text: str, delimiter: str) -> list[Mapping[str, Any]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        table = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise DatasetError(f"not a valid table: {error}", where=f"{path}:{reader.line_num}") from None
    if not table:
        return []
    header = table[0][1]
    for line, row in table[1:]:
        if len(row) > len(header):
            raise DatasetError(
                f"a row has {len(row)} cells under {len(header)} columns", where=f"{path}:{line}"
            )
    columns = [
        _convert_column([row[index] if index < len(row) else "" for _, row in table[1:]])
        for index in range(len(header))
    ]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _convert_column(cells: list[str]) -> list[Any]:
    """Convert a column to integers or floats if every cell allows it. An empty cell is None."""
    filled = [cell for cell in cells if cell != ""]
    kinds: tuple[Any, ...] = (int, float)
    for kind in kinds:
        try:
            values = {cell: kind(cell) for cell in filled if "_" not in cell or _reject()}
        except ValueError:
            continue
        if filled:
            return [values.get(cell) for cell in cells]
    return [None if cell == "" else cell for cell in cells]


def _reject() -> bool:
    raise ValueError  # Python parses 1_000 as a number, but a table means text


def _parse_array(path: Path, text: str) -> list[Mapping[str, Any]]:
    rows = parse_json(text, str(path))
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DatasetError("a row must be a JSON object", where=f"{path}, row {number}", hint=_HINT)
    return list(rows)


def _parse_lines(path: Path, text: str) -> list[Mapping[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            row = parse_json(line, f"{path}:{number}")
            if not isinstance(row, Mapping):
                raise DatasetError("a row must be a JSON object", where=f"{path}:{number}", hint=_HINT)
            rows.append(row)
    return rows


_scan_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""The scanner inside `json.loads`, without its setup, which costs as much as a short line."""

_LINE_ENDS = ("\n", "", "\r\n")


class JsonLines(Sequence[Mapping[str, Any]]):
    """The rows of one file. `Lines(path)` reads it through.

    Raises:
        DatasetError: The file cannot be read, a line is not an object, or the file is changed while it is being read.
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
            self._index_lines(file, hasher)
        self.digest = hasher.hexdigest()
        """Hash of the whole file."""

    def _index_lines(self, file: BinaryIO, hasher: Any) -> None:
        start = 0
        columns, last = self.columns, None
        for number, line in enumerate(file, start=1):
            hasher.update(line)
            row = _parse_plain_row(line) if start else None
            if row is None:
                row = self._parse_row(line, number, start)
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
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        with self._lock:
            if self._file is None:
                self._file = self._open()
                finalize(self, self._file.close)
            self._check_unchanged(self._file)
            self._file.seek(self._starts[position])
            line = self._file.readline()
        row = _parse_plain_row(line) if position else None
        return self._parse_row(line, position + 1, self._starts[position]) if row is None else row

    @property
    def mean_row_bytes(self) -> float:
        """The mean length of a line."""
        return self._stamp[0] / max(1, len(self))

    def read_rows(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Read rows at ascending positions. Their lines are often in the same block of the file."""
        with self._open() as file:
            self._check_unchanged(file)
            rows = []
            for position in positions:
                file.seek(self._starts[position])
                line = file.readline()
                row = _parse_plain_row(line) if position else None
                if row is None:
                    row = self._parse_row(line, position + 1, self._starts[position])
                assert row is not None  # only lines with a row have a position
                rows.append(row)
            self._check_unchanged(file)
        return rows

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        with self._open() as file:
            self._check_unchanged(file)
            start = 0
            for number, line in enumerate(file, start=1):
                row = _parse_plain_row(line) if start else None
                if row is None:
                    row = self._parse_row(line, number, start)
                if row is not None:
                    yield row
                start += len(line)
            self._check_unchanged(file)

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

    def _parse_row(self, line: bytes, number: int, start: int) -> Mapping[str, Any] | None:
        """Parse a line. Return None for an empty line."""
        try:
            text = line.decode("utf-8" if start else "utf-8-sig")
        except UnicodeDecodeError as error:
            raise DatasetError(
                f"the data file is not UTF-8: {error.reason} at byte {start + error.start}",
                where=str(self.path),
            ) from None
        if not text.strip():
            return None
        row = parse_json(text, f"{self.path}:{number}")
        if not isinstance(row, Mapping):
            raise DatasetError("a row must be a JSON object", where=f"{self.path}:{number}", hint=_HINT)
        return row


def _parse_plain_row(line: bytes) -> Mapping[str, Any] | None:
    """Parse a simple line quickly. Return None for a line that needs `JsonLines._parse_row`."""
    try:
        text = line.decode()
        row, end = _scan_json(text, 0)
    except (StopIteration, ValueError, RecursionError):
        return None
    return row if type(row) is dict and text[end:] in _LINE_ENDS else None


def _file_stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def parse_json(text: str, where: str) -> Any:
    """Parse a JSON text.

    Raises:
        DatasetError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = where if ":" in where else f"{where}:{error.lineno}"
        raise DatasetError(f"not valid JSON: {error.msg}", where=place) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number with thousands of digits, or thousands of nested brackets
        raise DatasetError(f"not readable as JSON: {error}", where=where) from None
