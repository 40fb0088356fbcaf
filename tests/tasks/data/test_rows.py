from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy
import pytest

from assay.core.errors import MissingPackage
from assay.tasks.data.local_files import read_files
from assay.tasks.data.rows import Rows, iterate_rows

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def table() -> Any:
    count = 700  # several batches
    made = datasets.Dataset.from_dict(
        {
            "text": [f"no. {at}" for at in range(count)],
            "choices": [[str(at), None] for at in range(count)],
            "nested": [{"x": at, "parts": [{"y": 0.5}]} for at in range(count)],
            "when": [date(2020, 1, 1)] * count,
            "answer": [at % 2 for at in range(count)],
        }
    )
    return made.cast_column("answer", datasets.ClassLabel(names=["no", "yes"]))


SHAPES: dict[str, Callable[[Any], Any]] = {
    "as it was read": lambda table: table,
    "shuffled": lambda table: table.shuffle(seed=1),
    "filtered": lambda table: table.filter(lambda row: row["answer"] == 1),
    "selected": lambda table: table.select([5, 3, 4]),
    "mapped": lambda table: table.map(lambda row: {"text": row["text"].upper(), "more": 1}),
    "without a column": lambda table: table.remove_columns("text"),
    "empty": lambda table: table.select([]),
    "with a format": lambda table: table.with_format("numpy", columns=["answer"]),
    "with some columns": lambda table: table.with_format(None, columns=["answer", "text"]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_the_library_makes(table: Any, shape: str) -> None:
    rows = SHAPES[shape](table)
    expected = list(rows)
    assert [list(row.items()) for row in iterate_rows(rows)] == [list(row.items()) for row in expected]
    assert list(iterate_rows(rows, 2, 30)) == expected[2:30]
    assert list(iterate_rows(rows, len(expected) + 1)) == []


def test_what_has_to_be_decoded_is_left_to_the_library(table: Any) -> None:
    from PIL import Image

    pictures = datasets.Dataset.from_dict({"picture": [Image.new("RGB", (2, 2))]})
    (row,) = iterate_rows(pictures.cast_column("picture", datasets.Image()))
    assert isinstance(row["picture"], Image.Image)


def test_long_rows_come_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch, table: Any) -> None:
    long = datasets.Dataset.from_dict({"text": ["x" * 1_500_000] * 6})
    taken: list[Any] = []
    real = datasets.Dataset.__getitem__

    def watched(self: Any, key: Any) -> Any:
        taken.append(key)
        return real(self, key)

    monkeypatch.setattr(datasets.Dataset, "__getitem__", watched)
    assert len(list(iterate_rows(long))) == 6
    assert taken == [slice(0, 2), slice(2, 4), slice(4, 6)]


def test_rows_of_files_are_handed_on_as_they_are() -> None:
    rows = Rows([{"a": 1}, {"a": 2}, {"a": 3}])
    assert list(iterate_rows(rows, 1)) == [{"a": 2}, {"a": 3}]
    assert list(iterate_rows([{"a": 1}, {"a": 2}], 0, 1)) == [{"a": 1}]


def make_rows(folder: Path, *, in_file: bool) -> Rows:
    rows = [{"name": f"n{number * 7 % 11}", "number": number} for number in range(11)]
    if not in_file:
        return Rows(rows)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return read_files([str(folder / "rows.jsonl")])


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("options", [{"seed": 3}, {"seed": 3, "load_from_cache_file": False}, {}])
def test_rows_are_shuffled_as_by_the_library(tmp_path: Path, in_file: bool, options: Any) -> None:
    rows = make_rows(tmp_path, in_file=in_file)
    numpy.random.seed(5)
    shuffled, after = rows.shuffle(**options), numpy.random.random()
    numpy.random.seed(5)
    assert list(shuffled) == list(datasets.Dataset.from_list(list(rows)).shuffle(**options))
    assert after == numpy.random.random()
    assert list(rows.shuffle(generator=numpy.random.default_rng(1))) == [
        rows[int(index)] for index in numpy.random.default_rng(1).permutation(11)
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.rename_columns({"name": "title", "number": "n"}),
        lambda rows: rows.rename_column("name", "title"),
        lambda rows: rows.remove_columns(["number"]),
        lambda rows: rows.train_test_split(test_size=4, seed=1)["test"],
        lambda rows: rows.take(3),
        lambda rows: rows.map(lambda row: {"twice": row["number"] * 2}, remove_columns=["name"]),
        lambda rows: rows.filter(lambda row, index: index % 2 == 0, with_indices=True),
        lambda rows: [{"names": rows.unique("name"), "first": rows.take(1).to_list()}],
    ],
    ids=["rename all", "rename", "remove", "split", "take", "map", "filter", "values"],
)
def test_other_methods_are_those_of_the_library(tmp_path: Path, change: Any) -> None:
    rows = make_rows(tmp_path, in_file=True)
    assert list(change(rows)) == list(change(datasets.Dataset.from_list(list(rows))))


def test_a_method_of_the_library_needs_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(tmp_path, in_file=True)
    assert not hasattr(rows, "cast_column"), "which is for columns of media"
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPackage, match="datasets"):
        rows.remove_columns(["name"])


def test_rows_in_memory_share_the_objects_of_their_column_names() -> None:
    texts = ['{"question": "a", "answer": 1}', '{"answer": 2, "question": "b"}'] * 2
    rows = list(Rows(json.loads(text) for text in texts))
    assert [dict(row) for row in rows[:2]] == [{"question": "a", "answer": 1}, {"question": "b", "answer": 2}]
    for name in ("question", "answer"):
        objects = {id(key) for row in rows for key in row if key == name}
        assert len(objects) == 1
