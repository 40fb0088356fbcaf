"""Read JSON lines and JSON arrays. The rows stay in the file."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from assay.core.errors import DatasetError
from assay.tasks.data.indexed_files import ROW_HINT, IndexedFile

__all__ = ["JsonArray", "JsonLines", "starts_with_array"]

_scan_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""The scanner inside `json.loads`, without its setup, which costs as much as a short line."""

_LINE_ENDS = ("\n", "", "\r\n")
_SPACE = " \t\n\r"
_ARRAY_START = re.compile(r"\ufeff?[ \t\n\r]*\[[ \t\n\r]*(?=[^ \t\n\r])")
_SEPARATOR = re.compile(r"[ \t\n\r]*(?:(,)[ \t\n\r]*(?=[^ \t\n\r])|\])")
_CHUNK_BYTES = 1 << 20


class JsonLines(IndexedFile):
    """The rows of a file with one JSON object per line."""

    def _index_rows(self, file: BinaryIO, hasher: Any) -> None:
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

    def _read_row(self, file: BinaryIO, position: int) -> Mapping[str, Any]:
        file.seek(self._starts[position])
        line = file.readline()
        row = _parse_plain_row(line) if position else None
        if row is None:
            row = self._parse_row(line, position + 1, self._starts[position])
        assert row is not None  # only lines with a row have a position
        return row

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

    def _parse_row(self, line: bytes, number: int, start: int) -> Mapping[str, Any] | None:
        """Parse a line. Return None for an empty line."""
        text = self._decode(line, start)
        if not text.strip():
            return None
        row = _parse_json(text, f"{self.path}:{number}")
        if not isinstance(row, Mapping):
            raise DatasetError("a row must be a JSON object", where=f"{self.path}:{number}", hint=ROW_HINT)
        return row


class JsonArray(IndexedFile):
    """The rows of a file that is one JSON array of objects."""

    def _index_rows(self, file: BinaryIO, hasher: Any) -> None:
        try:
            self._scan_rows(file, hasher)
        except (ValueError, RecursionError) as error:
            file.seek(0)
            self._check_format(self._decode(file.read(), 0))
            raise DatasetError(f"not readable as JSON: {error}", where=str(self.path)) from None

    def _scan_rows(self, file: BinaryIO, hasher: Any) -> None:
        """Find the start of every row. The memory holds a chunk of the file, or one row if that is longer.

        Raises:
            ValueError: The file is not an array of objects.
            RecursionError: It has thousands of nested brackets.
        """
        decoder = getincrementaldecoder("utf-8")()

        def read_text(size: int) -> str:
            data = file.read(size)
            hasher.update(data)
            if not data:
                raise ValueError("the file has no end of the array")
            return decoder.decode(data)

        text, size = "", _CHUNK_BYTES
        while (opening := _ARRAY_START.match(text)) is None:
            text += read_text(size)
        at, start = opening.end(), len(opening[0].encode())  # the next character, and its byte in the file
        columns, last = self.columns, None
        is_ascii, is_open = text.isascii(), text[at] != "]"
        while is_open:
            try:
                row, end = _scan_json(text, at)
                separator = _SEPARATOR.match(text, end)
            except (StopIteration, ValueError):
                separator = None
            if separator is None:  # the row is invalid, or the next chunk contains the rest of it
                text = text[at:] + read_text(size)
                at, is_ascii = 0, text.isascii()
                size *= 2  # so that a long row is not parsed too often
                continue
            if type(row) is not dict:
                raise ValueError("a row is not an object")
            self._starts.append(start)
            names = tuple(row)
            if names != last:
                last = names
                columns.update(dict.fromkeys(names))
            is_open = separator[1] is not None
            end = separator.end()
            start += end - at if is_ascii else len(text[at:end].encode())
            at, size = end, _CHUNK_BYTES
        rest = text[at + (not self._starts) :]
        while not rest.strip(_SPACE):
            data = file.read(_CHUNK_BYTES)
            hasher.update(data)
            rest = decoder.decode(data, final=not data)
            if not data:
                return
        raise ValueError("text follows the array")

    def _check_format(self, text: str) -> None:
        """Parse the whole text, which finds the line of the error."""
        for number, row in enumerate(_parse_json(text, str(self.path), names_line=True), start=1):
            if not isinstance(row, Mapping):
                raise DatasetError(
                    "a row must be a JSON object", where=f"{self.path}, row {number}", hint=ROW_HINT
                )

    def _read_row(self, file: BinaryIO, position: int) -> Mapping[str, Any]:
        row: Mapping[str, Any] = _scan_json(self._read_bytes(file, position, position + 1).decode(), 0)[0]
        return row

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for data in self._read_batches():
            rows = data.decode().rstrip(_SPACE)[:-1]  # without the comma, or the end of the array
            yield from _scan_json(f"[{rows}]", 0)[0]


def starts_with_array(path: Path) -> bool:
    """Return whether a file is a JSON array, which may have spaces before it.

    Raises:
        DatasetError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
            while not start and (data := file.read(_CHUNK_BYTES)):
                start = data.lstrip()
            return start.startswith(b"[")
    except OSError as error:
        raise DatasetError(f"cannot read the data file: {error.strerror}", where=str(path)) from None


def _parse_plain_row(line: bytes) -> Mapping[str, Any] | None:
    """Parse a simple line quickly. Return None for a line that needs `JsonLines._parse_row`."""
    try:
        text = line.decode()
        row, end = _scan_json(text, 0)
    except (StopIteration, ValueError, RecursionError):
        return None
    return row if type(row) is dict and text[end:] in _LINE_ENDS else None


def _parse_json(text: str, where: str, *, names_line: bool = False) -> Any:
    """Parse a JSON text. With `names_line`, an error names the line in it.

    Raises:
        DatasetError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{where}:{error.lineno}" if names_line else where
        raise DatasetError(f"not valid JSON: {error.msg}", where=place) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number with thousands of digits, or thousands of nested brackets
        raise DatasetError(f"not readable as JSON: {error}", where=where) from None
