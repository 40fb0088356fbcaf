"""Read csv and tsv files. The rows stay in the file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from assay.core.errors import DatasetError
from assay.tasks.data.indexed_files import IndexedFile

__all__ = ["CsvTable"]

_TYPES: tuple[type[int], type[float], type[str]] = (int, float, str)
"""The types of a column: the first one that every cell allows."""

_BATCH_ROWS = 256
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


class CsvTable(IndexedFile):
    """The rows of a table with a header. A cell that is empty or missing is None.

    A column contains integers or floats if every cell allows it, otherwise texts.
    """

    def _index_rows(self, file: BinaryIO, hasher: Any) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), self._stamp[0]))
        end = 0

        def read_lines() -> Iterator[str]:
            nonlocal end
            for line in file:
                hasher.update(line)
                is_one_line = line.count(b"\r") == line.endswith(b"\r\n")
                for part in (line,) if is_one_line else _LINE.findall(line):
                    start, end = end, end + len(part)
                    yield self._decode(part, start)

        self._header: list[str] = []
        self._types: list[int] = []
        reader = self._parse(read_lines())
        batch: list[list[str]] = []
        start = 0
        try:
            for row in reader:
                if not row:
                    pass
                elif not self._header:
                    self._header, self._types = row, [0] * len(row)
                elif len(row) > len(self._header):
                    raise DatasetError(
                        f"a row has {len(row)} cells under {len(self._header)} columns",
                        where=f"{self.path}:{reader.line_num}",
                    )
                else:
                    self._starts.append(start)
                    batch.append(row)
                    if len(batch) == _BATCH_ROWS:
                        self._narrow_types(batch)
                        batch.clear()
                start = end
        except csv.Error as error:
            raise DatasetError(
                f"not a valid table: {error}", where=f"{self.path}:{reader.line_num}"
            ) from None
        self._narrow_types(batch)
        if self._starts:
            self.columns = dict.fromkeys(self._header)

    def _parse(self, lines: Iterator[str]) -> Any:
        return csv.reader(lines, delimiter="\t" if self.path.suffix == ".tsv" else ",")

    def _narrow_types(self, rows: Sequence[Sequence[str]]) -> None:
        """Change the types of the columns to those that also allow the cells of these rows.

        Every text that is an integer is also a float, so earlier rows allow the new type, too.
        """
        for index, cells in enumerate(self._fill_columns(rows)):
            while self._types[index] < 2 and not _has_type(cells, _TYPES[self._types[index]]):
                self._types[index] += 1

    def _fill_columns(self, rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
        """Return the columns of some rows. Missing cells are empty."""
        width = len(self._header)
        if any(len(row) != width for row in rows):
            rows = [[*row, *[""] * (width - len(row))] for row in rows]
        return zip(*rows, strict=True)

    def _convert_rows(self, rows: Sequence[Sequence[str]]) -> Iterator[Mapping[str, Any]]:
        columns = [
            _convert_cells(cells, _TYPES[index])
            for cells, index in zip(self._fill_columns(rows), self._types, strict=True)
        ]
        header = self._header
        return (dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True))

    def _read_row(self, file: BinaryIO, position: int) -> Mapping[str, Any]:
        text = self._read_bytes(file, position, position + 1).decode()
        return next(self._convert_rows([next(self._parse(io.StringIO(text, newline="")))]))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for data in self._read_batches():
            rows = [row for row in self._parse(io.StringIO(data.decode(), newline="")) if row]
            yield from self._convert_rows(rows)


def _has_type(cells: Sequence[str], kind: type[int] | type[float] | type[str]) -> bool:
    try:
        for cell in cells:
            if "_" in cell:  # Python parses 1_000 as a number, but a table means text
                return False
            if cell:
                kind(cell)
    except ValueError:
        return False
    return True


def _convert_cells(cells: Sequence[str], kind: type[int] | type[float] | type[str]) -> Sequence[Any]:
    if "" in cells:
        return [kind(cell) if cell else None for cell in cells]
    return cells if kind is str else [*map(kind, cells)]
