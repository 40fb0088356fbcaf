"""Read files of other programs: JSON with clear errors, lines one by one, checksums."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from assay.core.errors import DatasetError

__all__ = [
    "build_identity",
    "expect_format",
    "iterate_json_array",
    "iterate_json_object",
    "parse_count",
    "parse_json",
    "parse_number",
    "read_json",
    "read_json_lines",
    "read_start",
]

_MALFORMED = (
    AttributeError, IndexError, KeyError, OverflowError, RecursionError, SyntaxError, TypeError, ValueError
)  # fmt: skip
"""Errors of code that expects other values."""

_START_BYTES = 4096
_CHUNK_CHARACTERS = 1 << 20
_MAX_COUNT = 1 << 53
_NUMBER_SIGNS = ("", ".", "e", "E")
_SURROGATE_BYTES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@contextmanager
def expect_format(what: str, where: str | Path, hint: str = "") -> Iterator[None]:
    """Turn the errors of code that expects other values into an error that names the place.

    Raises:
        DatasetError: The code inside failed because a value has another type, or is missing.
    """
    try:
        yield
    except _MALFORMED as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise DatasetError(f"{what} an unexpected format: {reason}", where=str(where), hint=hint) from None


def build_identity(program: str, model: str, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the identity of an imported run: the program, the model and the checksum of its files.

    `files`: by a name that does not depend on where the files are stored.
    """
    hasher = hashlib.sha256()
    for name, file in sorted(files.items()):
        with file.open("rb") as opened:
            hasher.update(
                name.encode("utf-8", "surrogatepass") + b"\0" + hashlib.file_digest(opened, "sha256").digest()
            )
    return {"imported_from": program, "name": model, "files_sha256": hasher.hexdigest()}


def read_start(path: Path) -> str:
    """Return the start of a file as text, for detection; empty if it cannot be read."""
    try:
        with path.open("rb") as opened:
            return opened.read(_START_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def read_json(path: Path) -> Any:
    """Read a JSON file. `NaN` and `Infinity` are accepted, because other programs write them.

    Raises:
        DatasetError: The file cannot be read or is not valid JSON.
    """
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"the file is not valid JSON: {error}", where=str(path), hint="it may be truncated; copy it again"
        ) from None


def parse_json(data: bytes) -> Any:
    """Parse JSON. Lone surrogates, which no file of a run can contain, become the replacement character.

    >>> parse_json(rb'{"a\\ud800": ["\\ud83d\\ude00"]}')
    {'a\ufffd': ['😀']}
    """
    value = json.loads(data)
    return _replace_surrogates(value) if _SURROGATE_BYTES.search(data) else value


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list) else value


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file with their line numbers. Reads one line at a time.

    Raises:
        DatasetError: A line is not a JSON object.
    """
    try:
        with path.open("rb") as opened:
            for number, line in enumerate(opened, 1):
                if not line.strip():
                    continue
                try:
                    row = parse_json(line)
                except (ValueError, RecursionError) as error:
                    raise DatasetError(
                        f"the line is not valid JSON: {error}", where=f"{path}:{number}"
                    ) from None
                if not isinstance(row, dict):
                    raise DatasetError("the line is not a JSON object", where=f"{path}:{number}")
                yield number, row
    except OSError as error:
        raise DatasetError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from None


def iterate_json_array(path: Path, key: str = "") -> Iterator[Any]:
    """Yield the items of the array in a JSON file, or of the array under a key of its object. Holds one item at a time.

    Raises:
        DatasetError: The file is not valid JSON, or has no such array.
    """
    with _open_json(path) as stream:
        if key and not _seek_key(stream, key):
            raise DatasetError(f"the file has no `{key}`", where=str(path))
        if not stream.take("["):
            raise DatasetError(f"`{key}` is not a list" if key else "the file is not a list", where=str(path))
        if stream.take("]"):
            return
        while True:
            yield stream.read_value()
            if not stream.take(","):
                break
        stream.require("]")


def iterate_json_object(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of the object in a JSON file. Holds one value at a time.

    Raises:
        DatasetError: The file is not valid JSON, or no object.
    """
    with _open_json(path) as stream:
        if not stream.take("{"):
            raise DatasetError("the file is not a JSON object", where=str(path))
        if stream.take("}"):
            return
        while True:
            key = stream.read_value()
            stream.require(":")
            yield str(key), stream.read_value()
            if not stream.take(","):
                break
        stream.require("}")


@contextmanager
def _open_json(path: Path) -> Iterator[_JsonStream]:
    try:
        with path.open(encoding="utf-8", errors="replace") as opened:
            yield _JsonStream(opened)
    except OSError as error:
        raise DatasetError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from None
    except (_InvalidJson, RecursionError) as error:
        raise DatasetError(
            f"the file is not valid JSON: {error}", where=str(path), hint="it may be truncated; copy it again"
        ) from None


class _InvalidJson(ValueError):
    """The text is not valid JSON."""


def _seek_key(stream: _JsonStream, key: str) -> bool:
    """Move to the value of a key of the outer object."""
    if not stream.take("{") or stream.take("}"):
        return False
    while True:
        name = stream.read_value()
        stream.require(":")
        if name == key:
            return True
        stream.read_value()
        if not stream.take(","):
            return False


class _JsonStream:
    """JSON values, read one after the other from an open file."""

    def __init__(self, opened: TextIO) -> None:
        self._opened = opened
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._dropped = 0
        self._ended = False

    def take(self, sign: str) -> bool:
        """Skip whitespace and a sign; return False if something else follows."""
        self._skip_whitespace()
        if self._text[self._at : self._at + 1] != sign:
            return False
        self._at += 1
        return True

    def require(self, sign: str) -> None:
        """Skip whitespace and a sign.

        Raises:
            _InvalidJson: Something else follows.
        """
        if not self.take(sign):
            raise _InvalidJson(f"expected `{sign}` at character {self._dropped + self._at}")

    def read_value(self) -> Any:
        """Read the next value.

        Raises:
            _InvalidJson: It is not valid, or the file ends before it does.
        """
        self._skip_whitespace()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    raise _InvalidJson(f"{error.msg} at character {self._dropped + error.pos}") from None
            else:
                if (
                    self._ended or self._text[end : end + 1] not in _NUMBER_SIGNS
                ):  # else a number may continue
                    self._at = end
                    return _replace_surrogates(value)
            self._fill(max(_CHUNK_CHARACTERS, len(self._text) - self._at))

    def _skip_whitespace(self) -> None:
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text) or self._ended:
                return
            self._fill(_CHUNK_CHARACTERS)

    def _fill(self, count: int) -> None:
        more = self._opened.read(count)
        self._ended = not more
        self._dropped += self._at
        self._text, self._at = self._text[self._at :] + more, 0


def parse_number(value: Any) -> float | None:
    """Return a finite number; None for other values, including `nan`, infinity and booleans in text."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def parse_count(value: Any) -> int | None:
    """Return a count as a whole number; None for other values and for numbers that no file can have."""
    number = parse_number(value)
    return round(number) if number is not None and 0 <= number < _MAX_COUNT else None
