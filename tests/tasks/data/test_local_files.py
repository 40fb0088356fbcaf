from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DatasetError
from assay.tasks.data.local_files import JsonLines, read_files
from assay.tasks.data.rows import ConcatenatedRows, Rows

ROWS = [{"a": 1}, {"b": "é\u2028x"}, {"a": None, "c": [1, {"d": "\n"}]}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS), encoding="utf-8")
    return path


def test_rows_are_read_in_order_and_in_any_order(path: Path) -> None:
    lines = JsonLines(path)
    assert list(lines) == list(lines) == ROWS
    assert [lines[2], lines[0], lines[-2]] == [ROWS[2], ROWS[0], ROWS[1]]
    assert lines[1:] == ROWS[1:]
    assert (len(lines), list(lines.columns)) == (3, ["a", "b", "c"])
    with pytest.raises(IndexError):
        lines[3]


def test_the_digest_is_that_of_the_file(path: Path) -> None:
    assert JsonLines(path).digest == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def test_empty_lines_spaces_a_mark_at_the_start_and_carriage_returns_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\n \n {"a": 1} \r\n\r\n{"a": 2}\r\n\n{"a": 3}')
    lines = JsonLines(path)
    assert list(lines) == [lines[0], lines[1], lines[2]] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"")
    assert (len(JsonLines(path)), list(JsonLines(path))) == (0, [])


@pytest.mark.parametrize("look", [list, lambda lines: lines[0]], ids=["all", "one"])
def test_a_file_that_changes_under_a_run_is_noticed(path: Path, look: Any) -> None:
    lines = JsonLines(path)
    path.write_text('{"other": 1}\n')
    os.utime(path, ns=(1, 1))
    with pytest.raises(DatasetError, match="changed during the run") as caught:
        look(lines)
    assert caught.value.where == str(path)


def test_bytes_that_are_no_text_are_found_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(DatasetError, match="at byte 16"):
        JsonLines(path)


@given(rows=st.lists(st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=5)))))
def test_whatever_was_written_is_read(rows: list[dict[str, Any]], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = JsonLines(path)
    assert list(lines) == [lines[at] for at in range(len(rows))] == rows


def test_rows_over_a_file_have_every_column(path: Path) -> None:
    lines = JsonLines(path)
    rows = Rows.wrap(lines, columns=lines.columns)
    assert rows[0] == next(iter(rows)) == next(rows.iterate_shared()) == {"a": 1, "b": None, "c": None}
    assert list(rows.deep_copy()) == list(rows)
    assert [row["a"] for row in rows.select([2, 0])] == [None, 1]


def test_joined_rows_are_found_across_their_parts() -> None:
    joined = ConcatenatedRows([[], [{"a": 0}, {"a": 1}], [], [{"a": 2}]])
    assert [joined[at]["a"] for at in (0, 1, 2, -1)] == [0, 1, 2, 2]
    assert [row["a"] for row in joined] == [row["a"] for row in joined[0:]] == [0, 1, 2]
    with pytest.raises(IndexError):
        joined[3]


def test_selected_rows_of_a_file_stay_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(json.dumps({"n": number, "list": [number]}) + "\n" for number in range(1000)), "utf-8"
    )
    rows = read_files([str(file)]).deep_copy()
    odd = rows.filter(lambda row: row["n"] % 2)
    few = odd.select([2, 0, -1])
    assert [len(odd), odd[3]["n"], odd[-1]["n"], len(list(odd))] == [500, 7, 999, 500]
    assert [row["n"] for row in few] == [5, 1, 999]
    assert [row["n"] for row in odd[1:4]] == [3, 5, 7]
    odd[0]["list"].append("changed")
    assert odd[0]["list"] == rows[1]["list"] == [1]
    with pytest.raises(IndexError):
        rows.select([1000])
