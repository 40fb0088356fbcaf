from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError, DatasetError, InvalidOption
from assay.core.records.specs import TaskSpec
from assay.tasks.data.rows import Rows, Split
from assay.tasks.data.splits import load_splits
from assay.tasks.documents import RenderingOptions
from assay.tasks.task import Task

Write = Callable[..., Path]


def make_spec(path: Path, data_files: Any, dataset_path: str = "json") -> TaskSpec:
    return TaskSpec(
        name="a",
        path=str(path.parent / "a.yaml"),
        dataset_path=dataset_path,
        dataset_kwargs={"data_files": data_files},
        test_split="test",
        places={"dataset_kwargs": "a.yaml:3"},
    )


@pytest.fixture
def read(write: Write) -> Callable[..., list[dict[str, Any]]]:
    """`read("x.jsonl", text)`: the rows of the one file of the split `test`."""

    def rows(name: str, content: str | bytes) -> list[dict[str, Any]]:
        path = write(name, content)
        return list(load_splits(make_spec(path, {"test": path.name}))["test"])

    return rows


Read = Callable[..., list[dict[str, Any]]]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.jsonl", '{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("x.jsonl", '{"a": 1}\n\n  \n{"a": 2}', [{"a": 1}, {"a": 2}]),
        ("x.jsonl", '{"a": 1}\r\n{"a": 2}\r\n', [{"a": 1}, {"a": 2}]),
        ("x.jsonl", '{"a": "x\\ny"}\n', [{"a": "x\ny"}]),
        ("x.jsonl", '{"a": "x\u2028y"}\n', [{"a": "x\u2028y"}]),
        ("x.jsonl", '{"a": 1}\n{"b": [1]}\n', [{"a": 1, "b": None}, {"a": None, "b": [1]}]),
        ("x.jsonl", "", []),
        ("x.json", '[{"a": 1}, {"a": {"b": null}}]', [{"a": 1}, {"a": {"b": None}}]),
        ("x.json", '\n [\n{"a": 1}\n]\n', [{"a": 1}]),
        ("x.json", "[]", []),
        ("x.json", '{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("x.jsonl", '\ufeff{"a": "é"}\n', [{"a": "é"}]),
        ("x.csv", "q,a\nwhy,because\n", [{"q": "why", "a": "because"}]),
        ("x.csv", "q,a\r\n1,2.5\r\n", [{"q": 1, "a": 2.5}]),
        ("x.csv", 'q,a\n"a, ""b""\nc",\n', [{"q": 'a, "b"\nc', "a": None}]),
        ("x.csv", "q,a\nx\n", [{"q": "x", "a": None}]),
        ("x.csv", "q,a\n", []),
        ("x.tsv", "q\ta\nx,y\tz\n", [{"q": "x,y", "a": "z"}]),
    ],
)
def test_a_file_becomes_rows(read: Read, name: str, content: str, expected: list[dict[str, Any]]) -> None:
    assert read(name, content) == expected


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0c", "\x1c"])
def test_only_line_ends_end_a_csv_row(read: Read, character: str) -> None:
    assert read("x.csv", f"q,a\nx{character}y,z\n") == [{"q": f"x{character}y", "a": "z"}]


def test_a_csv_column_is_of_one_kind(read: Read) -> None:
    """As the `datasets` library reads it: numbers only where the whole column is numbers."""
    rows = read("x.csv", "answer,n\n5,1\nfive,2\n")
    assert rows == [{"answer": "5", "n": 1}, {"answer": "five", "n": 2}]


@pytest.mark.parametrize(
    ("name", "content", "where", "message"),
    [
        ("x.jsonl", '{"a": 1}\n{"a": \n', ":2", "not valid JSON"),
        ("x.jsonl", '{"a": 1}\n\n[1]\n', ":3", "must be a JSON object"),
        ("x.jsonl", "5\n", ":1", "must be a JSON object"),
        ("x.jsonl", '{"a": 1} {"b": 2}\n', ":1", "not valid JSON"),
        ("x.json", '[{"a": 1},\n{"a": }]', ":2", "not valid JSON"),
        ("x.json", '[{"a": 1}, 5]', "row 2", "must be a JSON object"),
        ("x.jsonl", b'{"a": "\xff"}\n', "x.jsonl", "not UTF-8"),
        ("x.csv", b"a,b\n\xff,1\n", "x.csv", "not UTF-8"),
        ("x.csv", "a,b\n1,2\n1,2,3\n", "x.csv", "."),
        ("x.jsonl", '{"a": ' + "9" * 5000 + "}\n", "x.jsonl", "."),
        ("x.jsonl", '{"a": ' + "[" * 100_000 + "}\n", "x.jsonl", "."),
        ("x.json", "[" * 100_000, "x.json", "."),
    ],
    ids=[
        "half",
        "list",
        "number",
        "two",
        "array",
        "entry",
        "bytes",
        "csv bytes",
        "wide",
        "digits",
        "deep",
        "deep array",
    ],
)
def test_a_bad_row_is_refused_with_its_line(
    read: Read, name: str, content: str | bytes, where: str, message: str
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        read(name, content)
    assert where in caught.value.where


def test_a_cell_may_be_long(read: Read) -> None:
    assert read("x.csv", f"a,b\n{'x' * 200_000},y\n") == [{"a": "x" * 200_000, "b": "y"}]


def test_several_files_make_one_split_and_several_splits_stay_apart(write: Write) -> None:
    one, two = write("one.jsonl", '{"a": 1}\n'), write("deep/two.csv", "a,b\n2,3\n")
    splits = load_splits(make_spec(one, {"test": ["one.jsonl", "deep/two.csv"], "train": str(two)}))
    assert list(splits["test"]) == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    assert list(splits["train"]) == [{"a": 2, "b": 3}]


def test_data_files_without_a_split_are_train(write: Write) -> None:
    path = write("x.jsonl", '{"a": 1}\n')
    assert list(load_splits(make_spec(path, "x.jsonl"))) == ["train"]
    assert len(load_splits(make_spec(path, ["x.jsonl", "x.jsonl"]))["train"]) == 2


def test_a_data_file_may_be_relative_to_the_working_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("here/x.jsonl", '{"a": 1}\n')
    monkeypatch.chdir(tmp_path / "here")
    assert len(load_splits(make_spec(tmp_path / "tasks" / "a.yaml", {"test": "x.jsonl"}))["test"]) == 1


def test_a_data_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"data file not found: `nowhere\.jsonl`") as caught:
        load_splits(make_spec(tmp_path / "x", {"test": "nowhere.jsonl"}))
    assert (caught.value.where, str(tmp_path) in caught.value.hint) == ("a.yaml:3, dataset_kwargs", True)


@pytest.mark.parametrize(
    "data_files", [5, {"test": 5}, {"test": [5]}, [None], {"test": {"x": 1}}, "x" * 5000]
)
def test_data_files_of_a_wrong_kind_are_refused(tmp_path: Path, data_files: Any) -> None:
    with pytest.raises(AssayError):
        load_splits(make_spec(tmp_path / "x", data_files))


def test_a_changed_data_file_is_read_anew(write: Write) -> None:
    path = write("x.jsonl", '{"a": 1}\n')
    assert list(load_splits(make_spec(path, {"test": "x.jsonl"}))["test"]) == [{"a": 1}]
    path.write_text('{"a": 2}\n{"a": 3}\n')
    assert list(load_splits(make_spec(path, {"test": "x.jsonl"}))["test"]) == [{"a": 2}, {"a": 3}]


def test_a_custom_dataset_gets_the_metadata_and_the_arguments() -> None:
    def made(**given: Any) -> Mapping[str, Any]:
        return {"test": [{"given": given}]}

    spec = TaskSpec(name="a", custom_dataset=made, metadata={"version": 1}, dataset_kwargs={"size": 2})
    assert list(load_splits(spec)["test"]) == [{"given": {"version": 1, "size": 2}}]


def test_a_custom_dataset_gets_the_arguments_of_the_model_that_it_accepts() -> None:
    """As in lm-eval, where tasks of a given length find the tokenizer by them. `--metadata` takes precedence, the task file does not."""

    def made(**given: Any) -> Mapping[str, Any]:
        return {"test": [{"q": given, "a": ""}]}

    model_args = {"pretrained": "p", "tokenizer": "t", "size": 1}

    def build(function: Any, metadata: Mapping[str, Any], **more: Any) -> Any:
        spec = TaskSpec(name="a", custom_dataset=function, test_split="test", metadata={"size": 2}, **more)
        return Task(spec, RenderingOptions(model_args=model_args, metadata=metadata)).rows[0]["q"]

    def take_some(tokenizer: str, size: int) -> Mapping[str, Any]:
        return made(tokenizer=tokenizer, size=size)

    assert build(made, {}) == model_args
    assert build(made, {"size": 3}) == {**model_args, "size": 3}
    assert build(take_some, {}) == {"tokenizer": "t", "size": 1}
    assert build(made, {}, dialect="lmms_eval") == {"size": 2}, "lmms-eval does not pass them"


# --- rows ------------------------------------------------------------------------------------------


def test_rows_offer_what_helpers_use_of_the_datasets_library() -> None:
    rows = Rows([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}])
    assert (len(rows), rows.column_names, list(rows.features)) == (3, ["a", "b"], ["a", "b"])
    assert rows.map(lambda row: {"a": row["a"] * 2, "c": 0})[0] == {"a": 2, "b": "x", "c": 0}
    assert [row["a"] for row in rows.filter(lambda row: row["a"] != 2)] == [1, 3]
    assert [row["b"] for row in rows.select([2, 0])] == ["z", "x"]
    assert [row["a"] for row in rows[1:]] == [2, 3]
    assert rows[-1] == {"a": 3, "b": "z"}
    with pytest.raises(IndexError):
        rows[3]


def test_a_row_may_be_changed_without_changing_the_split() -> None:
    rows = Rows([{"a": 1}])
    rows[0]["a"] = 2
    next(iter(rows))["a"] = 3
    assert rows[0] == {"a": 1}


def test_a_filter_that_keeps_nothing_keeps_the_columns() -> None:
    assert Rows([{"a": 1}]).filter(lambda row: False).column_names == ["a"]


# --- splits of a task ------------------------------------------------------------------------------


def test_a_split_that_is_missing_is_named_with_those_there_are(make_task: Callable[..., Task]) -> None:
    task = make_task(splits={"train": [{"q": 1}]}, test_split="validation")
    with pytest.raises(DatasetError, match="no split `validation`") as caught:
        task.rows  # noqa: B018
    assert "train" in caught.value.hint and "test" in caught.value.hint


def test_a_split_without_documents_is_refused(make_task: Callable[..., Task]) -> None:
    with pytest.raises(DatasetError, match="no documents"):
        make_task([]).rows  # noqa: B018


def test_the_evaluated_rows_are_those_after_process_docs(make_task: Callable[..., Task]) -> None:
    def keep_even(rows: Split) -> Split:
        return Rows({**row, "even": True} for row in rows if int(row["q"][1:]) % 2 == 0)

    task = make_task(process_docs=keep_even)
    assert [document.fields["q"] for document in task.documents()] == ["Q0", "Q2", "Q4"]
    assert [document.index for document in task.documents()] == [0, 1, 2]
    assert task.columns == {"q", "a", "even"}


@pytest.mark.parametrize(
    ("rendering", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"limit": 2}, [0, 1]),
        ({"limit": 1}, [0]),
        ({"limit": 1.0}, [0]),
        ({"limit": 100}, [0, 1, 2, 3, 4, 5]),
        ({"limit": 0.5}, [0, 1, 2]),
        ({"limit": 0.51}, [0, 1, 2, 3]),
        ({"limit": 0.01}, [0]),
        ({"samples": [5, 1, 1]}, [1, 5]),
        ({"samples": []}, []),
        ({"samples": [2], "limit": 1}, [2]),
    ],
)
def test_limit_and_samples_choose_documents_in_their_order(
    make_task: Callable[..., Task], rendering: dict[str, Any], expected: list[int]
) -> None:
    task = make_task(rendering=rendering)
    assert [document.index for document in task.documents()] == expected
    assert [document.fields["q"] for document in task.documents()] == [f"Q{index}" for index in expected]
    assert len(task) == len(expected)


@pytest.mark.parametrize("index", [6, -1, 1000])
def test_a_sample_that_is_not_there_is_refused(make_task: Callable[..., Task], index: int) -> None:
    with pytest.raises(InvalidOption, match=f"index {index} does not exist") as caught:
        len(make_task(rendering={"samples": [0, index]}))
    assert caught.value.where == "--samples"


HOSTILE = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [
                '{"a": 1}',
                "{",
                "}",
                "[",
                "]",
                '"',
                ",",
                "\n",
                "\r",
                "\t",
                "a",
                "null",
                "NaN",
                "1e999",
                "-",
                "\\ud800",
                "\x00",
            ]
        ),
        max_size=15,
    ).map(lambda parts: "".join(parts).encode()),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=HOSTILE, suffix=st.sampled_from([".json", ".jsonl", ".csv", ".tsv"]), number=st.integers(0, 10**9)
)
@example(content=b"a,b\n1,2,3\n", suffix=".csv", number=0)
@example(content=b'"a\n', suffix=".csv", number=1)
@example(content=b"\xef\xbb\xbf", suffix=".json", number=2)
def test_whatever_the_data_only_our_errors_come_out(
    tmp_path: Path, content: bytes, suffix: str, number: int
) -> None:
    path = tmp_path / f"x{number}{suffix}"
    path.write_bytes(content)
    with suppress(AssayError):
        rows = load_splits(make_spec(path, {"test": path.name}))["test"]
        assert all(isinstance(row, dict) and set(row) == set(rows.features) for row in rows)
        assert all(isinstance(column, str) for column in rows.features)


@pytest.mark.parametrize(
    ("dataset_path", "arguments"),
    [
        ("json", {"data_dir": "data"}),
        ("json", {"data_dir": "data", "data_files": {"test": "test.jsonl"}}),
        ("text", {"data_files": {"test": "data/test.jsonl"}}),
        ("json", {"data_files": {"test": ["data/*.jsonl"]}}),
    ],
)
def test_data_beside_the_task_file_is_found_from_any_folder(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dataset_path: str,
    arguments: dict[str, Any],
) -> None:
    path = write("tasks/data/test.jsonl", '{"a": 1}\n{"a": 2}\n')
    spec = TaskSpec(
        name="a",
        path=str(path.parent.parent / "a.yaml"),
        dataset_path=dataset_path,
        dataset_kwargs=arguments,
        test_split="test",
    )
    monkeypatch.chdir(tmp_path)
    assert len(load_splits(spec)["test"]) == 2
