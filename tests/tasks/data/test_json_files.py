from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.data.peak_memory import measure_peak_bytes

from assay.core.errors import DatasetError
from assay.tasks.data.indexed_files import IndexedFile
from assay.tasks.data.json_files import JsonArray, JsonLines, starts_with_array
from assay.tasks.data.rows import Rows

ROWS = [{"a": 1}, {"b": "é\u2028x"}, {"a": None, "c": [1, {"d": "\n"}]}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS), encoding="utf-8")
    return path


@pytest.fixture(params=["lines", "array", "indented array"])
def indexed(request: pytest.FixtureRequest, path: Path) -> IndexedFile:
    if request.param == "lines":
        return JsonLines(path)
    path.write_text(
        json.dumps(ROWS, ensure_ascii=False, indent=2 if "indented" in request.param else None), "utf-8"
    )
    return JsonArray(path)


def test_rows_are_read_in_order_and_in_any_order(indexed: IndexedFile) -> None:
    assert list(indexed) == list(indexed) == ROWS
    assert [indexed[2], indexed[0], indexed[-2]] == [ROWS[2], ROWS[0], ROWS[1]]
    assert indexed[1:] == indexed.read_rows([1, 2]) == ROWS[1:]
    assert (len(indexed), list(indexed.columns)) == (3, ["a", "b", "c"])
    with pytest.raises(IndexError):
        indexed[3]


def test_the_digest_is_that_of_the_file(indexed: IndexedFile) -> None:
    assert indexed.digest == hashlib.blake2b(indexed.path.read_bytes(), digest_size=16).hexdigest()


def test_empty_lines_spaces_a_mark_at_the_start_and_carriage_returns_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\n \n {"a": 1} \r\n\r\n{"a": 2}\r\n\n{"a": 3}')
    lines = JsonLines(path)
    assert list(lines) == [lines[0], lines[1], lines[2]] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_spaces_and_a_mark_at_the_start_do_not_matter_in_an_array(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf\n [\r\n {"a": 1}\t,\n\n{"a": 2},{"a": 3} \n] \r\n\n')
    array = JsonArray(path)
    assert list(array) == [array[0], array[1], array[2]] == [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize(("kind", "content"), [(JsonLines, b""), (JsonArray, b"[]"), (JsonArray, b" [ ]\n")])
def test_a_file_without_rows_has_none(tmp_path: Path, kind: type[IndexedFile], content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert (len(kind(path)), list(kind(path))) == (0, [])


@pytest.mark.parametrize("look", [list, lambda rows: rows[0]], ids=["all", "one"])
def test_a_file_that_changes_under_a_run_is_noticed(indexed: IndexedFile, look: Any) -> None:
    indexed.path.write_text('{"other": 1}\n')
    os.utime(indexed.path, ns=(1, 1))
    with pytest.raises(DatasetError, match="changed during the run") as caught:
        look(indexed)
    assert caught.value.where == str(indexed.path)


@pytest.mark.parametrize(
    ("kind", "content"),
    [(JsonLines, b'{"a": 1}\n{"a": "\xff"}\n'), (JsonArray, b'[{"a":1},{"a": "\xff"}]')],
)
def test_bytes_that_are_no_text_are_found_where_they_are(
    tmp_path: Path, kind: type[IndexedFile], content: bytes
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="at byte 16"):
        kind(path)


@pytest.mark.parametrize(
    ("content", "where", "message"),
    [
        ('[{"a": 1},\n{"a": 2}', ":2", "Expecting ',' delimiter"),
        # from Python 3.13 on, the line of the comma
        ('[{"a": 1},\n]', (":1", ":2"), "Expecting value|Illegal trailing comma"),
        ('[{"a": 1}]\n\n{"a": 2}', ":3", "Extra data"),
        ('[]\n{"a": 2}', ":2", "Extra data"),
        ('[{"a": 1}\n{"a": 2}]', ":2", "Expecting ',' delimiter"),
        ('[{"a": 1},\n12', ":2", "Expecting ',' delimiter"),
        ('[{"a": 1}, "x"]', ", row 2", "must be a JSON object"),
        ('[{"a": ' + "9" * 5000 + "}]", "x.json", "not readable as JSON"),
    ],
)
def test_errors_of_an_array_name_the_line(
    tmp_path: Path, content: str, where: str | tuple[str, ...], message: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match=message) as caught:
        JsonArray(path)
    assert caught.value.where.endswith(where)


def test_a_row_may_be_longer_than_a_chunk_and_characters_may_lie_across_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    rows = [{"a": "é" * length, "b": "\n"} for length in (5, 2_999_999, 1, 2_000_002, 7)]
    path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    array = JsonArray(path)
    assert list(array) == [array[at] for at in range(5)] == rows


def test_an_array_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"n": number, "text": "x" * 1000} for number in range(20_000)]))

    def read() -> None:
        array = JsonArray(path)
        assert sum(row["n"] for row in array) == 199_990_000
        assert array[777]["n"] == 777

    assert measure_peak_bytes(read) < 8_000_000 < path.stat().st_size


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"[", True), (b'\xef\xbb\xbf \n[{"a": 1}]', True), (b" " * 5000 + b"[]", True), (b'{"a": []}', False)],
)
def test_arrays_are_recognised(tmp_path: Path, content: bytes, expected: bool) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert starts_with_array(path) is expected


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=5)))),
    indent=st.sampled_from([None, 1]),
)
def test_whatever_was_written_is_read(
    rows: list[dict[str, Any]], indent: int | None, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "x.json").write_text(
        json.dumps(rows, ensure_ascii=False, indent=indent), "utf-8", "surrogatepass"
    )
    for indexed in (JsonLines(folder / "x.jsonl"), JsonArray(folder / "x.json")):
        assert list(indexed) == [indexed[at] for at in range(len(rows))] == rows


def test_rows_over_a_file_have_every_column(indexed: IndexedFile) -> None:
    rows = Rows.wrap(indexed, columns=indexed.columns)
    assert rows[0] == next(iter(rows)) == next(rows.iterate_shared()) == {"a": 1, "b": None, "c": None}
    assert list(rows.deep_copy()) == list(rows)
    assert [row["a"] for row in rows.select([2, 0])] == [None, 1]
