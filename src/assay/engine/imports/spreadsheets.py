"""Rows of spreadsheets and tables: xlsx, tsv and csv, one row at a time, without further packages.

Formulas, macros and links of a workbook are not evaluated; a cell with a formula has its stored value.
"""

from __future__ import annotations

import csv
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from assay.core.errors import DatasetError

__all__ = ["iterate_rows", "read_header"]

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_STRINGS = "xl/sharedStrings.xml"
_SHEET = re.compile(r"xl/worksheets/sheet\d+\.xml$")
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_CELL_CHARACTERS = 1 << 27
_MAX_STRINGS_BYTES = 1 << 31
_DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, IndexError, RuntimeError)
"""Errors of damaged, encrypted and unsupported archives."""

_CONTROL = re.compile(r"_x([0-9A-Fa-f]{4})_")


def read_header(path: Path) -> list[str]:
    """Return the column names of a table; empty if it has none or cannot be read."""
    try:
        return [str(name) for name in next(_iterate_cells(path), [])]
    except DatasetError:
        return []


def iterate_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table below its header. Cells are text or numbers; empty cells are left out.

    Raises:
        DatasetError: The file is damaged.
    """
    cells = _iterate_cells(path)
    header = [str(name) for name in next(cells, [])]
    for row in cells:
        found = {
            name: value
            for name, value in zip(header, row, strict=False)
            if name and value is not None and value != ""
        }
        if found:
            yield found


def _iterate_cells(path: Path) -> Iterator[list[Any]]:
    try:
        if path.suffix == ".xlsx":
            yield from _iterate_xlsx(path)
        else:
            yield from _iterate_text(path)
    except OSError as error:
        raise DatasetError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from None
    except (*_DAMAGES, ElementTree.ParseError, csv.Error) as error:
        what = "workbook" if path.suffix == ".xlsx" else "table"
        raise DatasetError(f"the file is not a valid {what}: {error}", where=str(path)) from None


def _iterate_text(path: Path) -> Iterator[list[Any]]:
    before = csv.field_size_limit(_MAX_CELL_CHARACTERS)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
            for row in csv.reader(opened, delimiter="\t" if path.suffix == ".tsv" else ","):
                yield [*row]
    finally:
        csv.field_size_limit(before)


def _iterate_xlsx(path: Path) -> Iterator[list[Any]]:
    with zipfile.ZipFile(path) as archive:
        sheets = sorted(
            (name for name in archive.namelist() if _SHEET.search(name)), key=lambda name: (len(name), name)
        )
        if not sheets:
            raise ValueError("it has no worksheet")
        if any(member.compress_type not in _COMPRESSIONS for member in archive.infolist()):
            raise ValueError("it has an unknown compression")
        strings = _read_strings(archive) if _STRINGS in archive.namelist() else []
        _check_no_entities(archive, sheets[0])
        with archive.open(sheets[0]) as opened:
            for event, element in ElementTree.iterparse(opened, events=("start-ns", "end")):
                if event == "end" and element.tag == f"{_MAIN}row":
                    yield _read_row(element, strings)
                    element.clear()


def _read_strings(archive: zipfile.ZipFile) -> list[str]:
    if archive.getinfo(_STRINGS).file_size > _MAX_STRINGS_BYTES:
        raise ValueError("its texts are larger than 2 GB")
    _check_no_entities(archive, _STRINGS)
    found = []
    with archive.open(_STRINGS) as opened:
        for _, element in ElementTree.iterparse(opened):
            if element.tag == f"{_MAIN}si":
                found.append(_join_text(element))
                element.clear()
    return found


def _check_no_entities(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse document type definitions: workbooks have none, and entities can expand without limit."""
    with archive.open(name) as opened:
        if b"<!DOCTYPE" in opened.read(4096):
            raise ValueError("it has a document type definition")


def _join_text(element: ElementTree.Element) -> str:
    text = "".join(part.text or "" for part in element.iter(f"{_MAIN}t"))
    return _CONTROL.sub(lambda match: chr(int(match[1], 16)), text)


def _read_row(row: ElementTree.Element, strings: list[str]) -> list[Any]:
    cells: list[Any] = []
    for cell in row.iter(f"{_MAIN}c"):
        column = _parse_column(cell.get("r", "")) if cell.get("r") else len(cells)
        if not 0 <= column < 1 << 14:
            raise ValueError(f"invalid cell {cell.get('r')}")
        cells.extend([None] * (column + 1 - len(cells)))
        cells[column] = _read_cell(cell, strings)
    return cells


def _read_cell(cell: ElementTree.Element, strings: list[str]) -> Any:
    kind, value = cell.get("t", "n"), cell.findtext(f"{_MAIN}v")
    if kind == "inlineStr":
        inline = cell.find(f"{_MAIN}is")
        return None if inline is None else _join_text(inline)
    if value is None:
        return None
    match kind:
        case "s":
            return strings[int(value)]
        case "b":
            return value == "1"
        case "n":
            number = float(value)
            return int(number) if number.is_integer() and abs(number) < 1 << 53 else number
    return value


def _parse_column(reference: str) -> int:
    """Return the number of the column of a cell, from 0.

    >>> _parse_column("A1"), _parse_column("AB12")
    (0, 27)
    """
    number = 0
    for letter in reference.rstrip("0123456789"):
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
