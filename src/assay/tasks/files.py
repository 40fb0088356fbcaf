"""Local json, jsonl, csv and tsv files as rows, without further packages. Every complaint has its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.core.errors import BadData
from assay.core.fingerprints import digest_bytes, digest_text
from assay.tasks.lines import Lines, parse
from assay.tasks.rows import Joined, Rows

__all__ = ["SUFFIXES", "read_files"]

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")
_HINT = '{"question": "…", "answer": "…"}'


def read_files(paths: Sequence[str]) -> Rows:
    """The rows of some files, one after the other; read once per version of the files.

    Raises:
        BadData: A file cannot be read, or is not what its name says.
    """
    try:
        stamps = tuple(
            (path, status.st_size, status.st_mtime_ns) for path in paths for status in [Path(path).stat()]
        )
    except OSError as error:
        raise BadData(f"cannot read the data file: {error.strerror}", where=str(error.filename)) from None
    return _read_versions(stamps)


@lru_cache(maxsize=64)
def _read_versions(stamps: tuple[tuple[str, int, int], ...]) -> Rows:
    parts: list[Sequence[Mapping[str, Any]]] = []
    digests = []
    columns: dict[str, None] = {}
    for name, _, _ in stamps:
        path = Path(name)
        if path.suffix == ".jsonl" and not _begins_an_array(path):
            lines = Lines(path)
            parts.append(lines)
            digests.append(lines.digest)
            columns |= lines.columns
        else:
            data = _bytes(path)
            digests.append(digest_bytes(data))
            rows = _parse(path, data)
            parts.append(rows)
            columns |= dict.fromkeys(key for row in rows for key in row)
    whole = parts[0] if len(parts) == 1 else Joined(parts)
    return Rows.over(whole, columns=columns, fingerprint=digest_text(*digests))


def _begins_an_array(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    except OSError as error:
        raise BadData(f"cannot read the data file: {error.strerror}", where=str(path)) from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadData(f"cannot read the data file: {error.strerror}", where=str(path)) from None


def _parse(path: Path, data: bytes) -> Sequence[Mapping[str, Any]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadData(
            f"the data file is not UTF-8: {error.reason} at byte {error.start}", where=str(path)
        ) from None
    if path.suffix in (".csv", ".tsv"):
        return _table(path, text, "\t" if path.suffix == ".tsv" else ",")
    return _array(path, text) if text.lstrip().startswith("[") else _lines(path, text)


def _table(path: Path, text: str, delimiter: str) -> list[Mapping[str, Any]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        table = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise BadData(f"not a valid table: {error}", where=f"{path}:{reader.line_num}") from None
    if not table:
        return []
    header = table[0][1]
    for line, row in table[1:]:
        if len(row) > len(header):
            raise BadData(f"a row has {len(row)} cells under {len(header)} columns", where=f"{path}:{line}")
    columns = [
        _typed([row[at] if at < len(row) else "" for _, row in table[1:]]) for at in range(len(header))
    ]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _typed(cells: list[str]) -> list[Any]:
    """A column of integers, of floats, or of texts: one kind for the whole column. An empty cell is None."""
    filled = [cell for cell in cells if cell != ""]
    kinds: tuple[Any, ...] = (int, float)
    for kind in kinds:
        try:
            values = {cell: kind(cell) for cell in filled if "_" not in cell or _raise()}
        except ValueError:
            continue
        if filled:
            return [values.get(cell) for cell in cells]
    return [None if cell == "" else cell for cell in cells]


def _raise() -> bool:
    raise ValueError  # Python reads 1_000 as a number, tables do not


def _array(path: Path, text: str) -> list[Mapping[str, Any]]:
    rows = parse(text, str(path))
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise BadData("a row must be a JSON object", where=f"{path}, row {number}", hint=_HINT)
    return list(rows)


def _lines(path: Path, text: str) -> list[Mapping[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            row = parse(line, f"{path}:{number}")
            if not isinstance(row, Mapping):
                raise BadData("a row must be a JSON object", where=f"{path}:{number}", hint=_HINT)
            rows.append(row)
    return rows
