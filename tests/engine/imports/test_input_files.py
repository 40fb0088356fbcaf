"""Reading files of other programs."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from assay.core.errors import DatasetError
from assay.engine.imports import input_files
from assay.engine.imports.input_files import (
    build_identity,
    iterate_json_array,
    iterate_json_object,
    parse_json,
    parse_number,
    read_json,
    read_json_lines,
)


def test_truncated_json_is_an_error_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": [1, 2')
    with pytest.raises(DatasetError, match="not valid JSON") as caught:
        read_json(file)
    assert caught.value.where == str(file)


def test_bad_line_is_an_error_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": NaN}\n\n[1]\n')
    lines = read_json_lines(file)
    assert next(lines)[0] == 1
    with pytest.raises(DatasetError, match="not a JSON object") as caught:
        next(lines)
    assert caught.value.where == f"{file}:3"


@pytest.mark.parametrize(
    ("value", "number"),
    [("0.5", 0.5), (True, 1.0), ("nan", None), (float("inf"), None), ("-", None), (None, None)],
)
def test_only_finite_numbers_are_numbers(value: object, number: float | None) -> None:
    assert parse_number(value) == number


def test_identity_depends_on_the_content_of_the_files(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    first = build_identity("helm", "model", {"a": file})
    moved = file.rename(tmp_path / "b")
    assert build_identity("helm", "model", {"a": moved}) == first
    moved.write_text("2")
    assert build_identity("helm", "model", {"a": moved}) != first


@pytest.mark.parametrize("size", [1, 7, 64])
def test_items_of_large_files_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The file is longer than the part that is read at once, and numbers and texts are cut by it."""
    monkeypatch.setattr(input_files, "_CHUNK_CHARACTERS", size)
    items = [
        1,
        -12.5,
        "a ] , [ \\" + "é" * 50,
        [[]],
        {},
        {"a": [1, {"b": "}"}]},
        None,
        float("inf"),
        123456789,
    ]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"skipped": items, "wanted": items}, indent=2))
    assert list(iterate_json_array(file, "wanted")) == items
    assert dict(iterate_json_object(file)) == {"skipped": items, "wanted": items}
    file.write_text(f" {json.dumps(items)} ")
    assert list(iterate_json_array(file)) == items


@pytest.mark.parametrize("surrogate", [rb"\ud800", rb"\uDC00", b"\xed\xa0\x80"])
def test_lone_surrogates_are_replaced(surrogate: bytes) -> None:
    text = b'{"a%s": ["%s", 1, "\\ud83d\\ude00"]}' % (surrogate, surrogate)
    assert parse_json(text) == {"a\ufffd": ["\ufffd", 1, "\U0001f600"]}


@pytest.mark.parametrize(
    "text", ["", "[1, 2", "[1 2]", '{"a": 1', '{"a" 1}', "[", '["a', "nul", '{"b": [1]}', '{"a": 3}']
)
def test_damaged_arrays_are_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(DatasetError):
        list(iterate_json_array(file, "a" if text.startswith("{") else ""))


def test_array_is_not_held_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    with file.open("w") as opened:
        opened.write("[")
        for number in range(200):
            opened.write(f'{"," if number else ""}{{"text": "{"x" * 100_000}"}}')
        opened.write("]")
    tracemalloc.start()
    count = sum(1 for _ in iterate_json_array(file))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200 and peak < 8_000_000 < file.stat().st_size
