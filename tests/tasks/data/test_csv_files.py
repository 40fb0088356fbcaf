from __future__ import annotations

import csv
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.data.peak_memory import measure_peak_bytes

from assay.core.errors import DatasetError
from assay.tasks.data.csv_files import CsvTable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.csv"


def test_rows_are_read_in_order_and_in_any_order(path: Path) -> None:
    path.write_bytes('\ufeffid,text\r\n\r\n1,"a\r\nb, ""é"""\r\n\n2\r\n3,"c\n'.encode())
    table = CsvTable(path)
    rows = [{"id": 1, "text": 'a\r\nb, "é"'}, {"id": 2, "text": None}, {"id": 3, "text": "c\n"}]
    assert list(table) == list(table) == [table[0], table[1], table[2]] == rows
    assert table[1:] == table.read_rows([1, 2]) == rows[1:]
    assert (len(table), list(table.columns)) == (3, ["id", "text"])
    assert table.digest == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    with pytest.raises(IndexError):
        table[3]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "", "-3"], [1, None, -3]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["1", "2.5", "x"], ["1", "2.5", "x"]),
        (["1", "1_000", "2"], ["1", "1_000", "2"]),
        (["1", "", "nan?"], ["1", None, "nan?"]),
        (["1", "9" * 5000, "2"], [1.0, float("inf"), 2.0]),
        (["007", " 8 ", "9"], [7, 8, 9]),
    ],
)
@pytest.mark.parametrize("repeats", [1, 300], ids=["short", "long"])
def test_the_type_of_a_column_fits_every_cell(
    path: Path, cells: list[str], expected: list[Any], repeats: int
) -> None:
    lines = [*[cells[0]] * repeats, *cells[1:]]
    path.write_text("".join(f"{line},\n" for line in ["a", *lines]))
    values = [expected[0]] * repeats + expected[1:]
    table = CsvTable(path)
    assert [row["a"] for row in table] == [table[at]["a"] for at in range(len(values))] == values
    assert [type(row["a"]) for row in table] == [*map(type, values)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "open"])
def test_any_line_end_ends_a_row(path: Path, end: str, last: bool) -> None:
    path.write_bytes((end.join(["a,b", "1,x", "", "2,y"]) + end * last).encode())
    table = CsvTable(path)
    assert list(table) == [table[0], table[1]] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_errors_name_the_line(path: Path) -> None:
    path.write_text('a,b\n"x\ny",1\n\n1,2,3\n')
    with pytest.raises(DatasetError, match="a row has 3 cells under 2 columns") as caught:
        CsvTable(path)
    assert caught.value.where == f"{path}:5"


def test_bytes_that_are_no_text_are_found_where_they_are(path: Path) -> None:
    path.write_bytes(b"a,b\n1,2\n\xff,1\n")
    with pytest.raises(DatasetError, match="at byte 8"):
        CsvTable(path)


def test_a_file_that_changes_under_a_run_is_noticed(path: Path) -> None:
    path.write_text("a\n1\n2\n")
    table = CsvTable(path)
    path.write_text("a\n")
    os.utime(path, ns=(1, 1))
    for look in (list, lambda rows: rows[0], lambda rows: rows.read_rows([1])):
        with pytest.raises(DatasetError, match="changed during the run"):
            look(table)


def test_a_table_is_not_held_in_memory(path: Path) -> None:
    path.write_text("n,text\n" + "".join(f'{number},"{"x" * 1000}"\n' for number in range(20_000)))

    def read() -> None:
        table = CsvTable(path)
        assert sum(row["n"] for row in table) == 199_990_000
        assert table[777]["n"] == 777

    assert measure_peak_bytes(read) < 4_000_000 < path.stat().st_size


@given(
    cells=st.lists(
        st.lists(st.text(st.sampled_from('a1.é_ ",\r\n\u2028'), max_size=4), min_size=2, max_size=2)
    ),
    plain=st.booleans(),
)
def test_cells_are_those_of_the_standard_reader(
    cells: list[list[str]], plain: bool, tmp_path_factory: Any
) -> None:
    file = io.StringIO(newline="")
    if plain:
        file.write("".join(f"{','.join(row)}\n" for row in [["h", "i"], *cells]))
    else:
        csv.writer(file).writerows([["h", "i"], *cells])
    path = tmp_path_factory.mktemp("tables") / "x.csv"
    path.write_bytes(file.getvalue().encode())
    _, *rows = (row for row in csv.reader(io.StringIO(file.getvalue(), newline="")) if row)
    if any(len(row) > 2 for row in rows):
        with pytest.raises(DatasetError, match="cells under 2 columns"):
            CsvTable(path)
        return
    table = CsvTable(path)
    read = [[row["h"], row["i"]] for row in table]
    assert read == [[table[at]["h"], table[at]["i"]] for at in range(len(table))]
    for index in range(2):
        column = [row[index] if index < len(row) else "" for row in rows]
        kind = next(kind for kind in (_as_number(int), _as_number(float), str) if _allows(column, kind))
        assert [row[index] for row in read] == [kind(cell) if cell else None for cell in column]


def _as_number(kind: Any) -> Any:
    return lambda cell: kind(cell if "_" not in cell else "no number")


def _allows(cells: list[str], kind: Any) -> bool:
    try:
        return all(kind(cell) is not None for cell in cells if cell)
    except ValueError:
        return False
