"""Tests of Parquet files that are read without the `datasets` library."""

from __future__ import annotations

import datetime
import decimal
import gc
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.core.records.specs import TaskSpec
from assay.tasks.data import parquet_files
from assay.tasks.data.dataset_cards import list_mappings, read_card
from assay.tasks.data.hf_datasets import load_hf_dataset
from assay.tasks.data.parquet_files import TableCache, read_parquet_files
from assay.tasks.data.rows import Rows, iterate_rows, read_rows
from assay.tasks.data.splits import load_splits

PROJECT = Path(__file__).resolve().parents[3]

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

MOMENT = datetime.datetime(2026, 11, 19, 3, 4, 5, 678_901)  # noqa: DTZ001 - columns without a time zone
NAMED = pa.struct([("text", pa.string()), ("ids", pa.list_(pa.int16()))])

SAME_VALUES: Mapping[str, tuple[Any, list[Any]]] = {
    "string": (pa.string(), ["a", "", "é\n", None]),
    "large string": (pa.large_string(), ["a", None]),
    "bool": (pa.bool_(), [True, False, None]),
    "null": (pa.null(), [None, None]),
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), [-1, None, 100]) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), [0, None, 200]) for bits in (8, 16, 32, 64)},
    "float16": (pa.float16(), [0.5, None]),
    "float32": (pa.float32(), [0.1, float("nan"), float("inf"), None]),
    "float64": (pa.float64(), [0.1, float("nan"), -0.0, None]),
    "decimal128": (pa.decimal128(10, 2), [decimal.Decimal("1.50"), None]),
    "decimal256": (pa.decimal256(50, 4), [decimal.Decimal("-1.5000"), None]),
    "date32": (pa.date32(), [MOMENT.date(), None]),
    "date64": (pa.date64(), [MOMENT.date(), None]),
    "time32": (pa.time32("ms"), [datetime.time(1, 2, 3), None]),
    "time64": (pa.time64("us"), [datetime.time(1, 2, 3, 4), None]),
    "timestamp s": (pa.timestamp("s"), [MOMENT.replace(microsecond=0), None]),
    "timestamp us": (pa.timestamp("us"), [MOMENT, None]),
    "timestamp ns": (pa.timestamp("ns"), [1_700_000_000_123_456_789, None]),
    "timestamp with time zone": (pa.timestamp("us", tz="Europe/Berlin"), [MOMENT, None]),
    "duration": (pa.duration("us"), [datetime.timedelta(days=1, microseconds=3), None]),
    "binary": (pa.binary(), [b"\x00\xff", b"", None]),
    "large binary": (pa.large_binary(), [b"a", None]),
    "list": (pa.list_(pa.string()), [["a", None], [], None]),
    "large list": (pa.large_list(pa.int64()), [[1], [], None]),
    "nested list": (pa.list_(pa.list_(pa.float64())), [[[1.5], []], None]),
    "list of nulls": (pa.list_(pa.null()), [[None], []]),
    "struct": (NAMED, [{"text": "a", "ids": [1]}, {"text": None, "ids": None}, None]),
    "list of structs": (pa.list_(NAMED), [[{"text": "a", "ids": []}, None], [], None]),
}

OTHER_VALUES: Mapping[str, Any] = {
    "dictionary": lambda: pa.array(["a", "b", "a"]).dictionary_encode(),
    "fixed-size list": lambda: pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
    "fixed-size binary": lambda: pa.array([b"ab"], pa.binary(2)),
    "map": lambda: pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "view": lambda: pa.array(["a"], pa.string_view()),
    "extension": lambda: pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])),
    "nested dictionary": lambda: pa.array(
        [{"a": "b"}], pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])
    ),
}


def write(path: Path, columns: Mapping[str, Any], **features: Any) -> Path:
    table = pa.table(dict(columns))
    if features:
        metadata = {"info": {"features": features}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)
    return path


def read(*paths: Path) -> Rows | None:
    splits = read_parquet_files({"test": [str(path) for path in paths]})
    return None if splits is None else splits["test"]


def read_with_library(*paths: Path) -> Any:
    pytest.importorskip("datasets")
    spec = TaskSpec(
        name="made",
        path="a.yaml",
        dataset_path="parquet",
        dataset_kwargs={"data_files": {"test": [str(path) for path in paths]}},
        test_split="test",
    )
    return load_hf_dataset(spec, data_root=None, trust_remote_code=False)["test"]


def test_rows_of_every_plain_type_are_those_of_the_library(tmp_path: Path) -> None:
    length = max(len(values) for _, values in SAME_VALUES.values())
    columns = {
        name: pa.array((values * length)[:length], kind) for name, (kind, values) in SAME_VALUES.items()
    }
    path = write(tmp_path / "all.parquet", columns)
    rows = read(path)
    assert rows is not None
    expected = read_with_library(path)
    assert repr(list(rows)) == repr(list(expected)) == repr(list(iterate_rows(expected)))
    assert repr([rows[index] for index in range(length)]) == repr(list(expected))
    assert list(rows.features) == list(expected.features)


@pytest.mark.parametrize("kind", OTHER_VALUES)
def test_types_that_the_library_converts_are_left_to_it(tmp_path: Path, kind: str) -> None:
    try:
        path = write(tmp_path / "a.parquet", {"a": OTHER_VALUES[kind]()})
    except (pa.ArrowException, NotImplementedError) as error:
        pytest.skip(f"this pyarrow does not write it: {error}")
    assert read(path) is None


def test_only_features_that_change_no_values_are_read(tmp_path: Path) -> None:
    label = {"_type": "ClassLabel", "names": ["no", "yes"]}
    path = write(tmp_path / "a.parquet", {"label": [0, 1, None], "_type": ["x", "y", "z"]}, label=label)
    rows = read(path)
    assert rows is not None
    assert list(rows) == list(read_with_library(path))
    picture = {"bytes": [b"png"], "path": [None]}
    stored = pa.StructArray.from_arrays([pa.array(column) for column in picture.values()], list(picture))
    for feature in ({"_type": "Image"}, {"_type": "List", "feature": {"_type": "Image"}}):
        assert read(write(tmp_path / "b.parquet", {"picture": stored}, picture=feature)) is None
    assert read(write(tmp_path / "b.parquet", {"picture": stored})) is not None


def test_several_files_are_one_split_if_their_columns_are_equal(tmp_path: Path) -> None:
    one = write(tmp_path / "1.parquet", {"a": [1, 2], "b": ["x", None]})
    two = write(tmp_path / "2.parquet", {"a": [3], "b": ["z"]})
    rows = read(one, two)
    assert rows is not None
    assert [row["a"] for row in rows] == [1, 2, 3]
    assert [rows[index]["b"] for index in (0, -1, 2)] == ["x", "z", "z"]
    assert read_rows(rows, [2, 0]) == {0: {"a": 1, "b": "x"}, 2: {"a": 3, "b": "z"}}
    assert list(rows) == list(read_with_library(one, two))
    for other in ({"b": ["x"], "a": [1]}, {"a": [1.0], "b": ["x"]}, {"a": [1]}):
        assert read(one, write(tmp_path / "3.parquet", other)) is None


def test_required_columns_of_one_file_do_not_matter(tmp_path: Path) -> None:
    one = write(tmp_path / "1.parquet", {"a": [1]})
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    parquet.write_table(pa.table({"a": [2]}, schema=schema), tmp_path / "2.parquet")
    rows = read(one, tmp_path / "2.parquet")
    assert rows is not None
    assert [rows[1], *rows] == [{"a": 2}, {"a": 1}, {"a": 2}]


def test_empty_and_large_files_are_left_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(write(tmp_path / "empty.parquet", {"a": pa.array([], pa.int64())})) is None
    path = write(tmp_path / "a.parquet", {"a": [1]})
    monkeypatch.setattr(parquet_files, "_MAX_SPLIT_BYTES", 10)
    assert read(path) is None


def test_rows_may_be_read_in_any_order_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = list(range(1000))
    parquet.write_table(pa.table({"a": numbers}), tmp_path / "a.parquet", row_group_size=70)
    rows = read(tmp_path / "a.parquet")
    assert rows is not None
    monkeypatch.setattr(parquet_files, "_MAX_BATCH_ROWS", 33)
    monkeypatch.setattr(parquet_files, "_MAX_LIST_ROWS", 10)
    assert [row["a"] for row in rows] == numbers
    assert [rows[index]["a"] for index in (5, 999, 0, 500)] == [5, 999, 0, 500]
    assert [row["a"] for row in rows[998:]] == [998, 999]
    assert [row["a"] for row in rows.select([7, 3, 7])] == [7, 3, 7]
    with pytest.raises(IndexError):
        rows[1000]


def test_tables_leave_the_cache_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = TableCache(max_bytes=20)
    monkeypatch.setattr(parquet_files, "_TABLES", cache)
    splits = [read(write(tmp_path / f"{name}.parquet", {"a": [name, name]})) for name in (1, 2)]
    for rows, number in zip(splits * 2, (1, 2, 1, 2), strict=True):
        assert rows is not None
        assert rows.read_shared([1]) == [{"a": number}]
        assert len(cache) == 1
    del splits, rows
    gc.collect()
    assert len(cache) == 0  # no task uses them any more


def test_a_change_of_the_file_during_the_run_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": [1]})
    rows = read(path)
    assert rows is not None
    before = rows._fingerprint
    write(path, {"a": [1, 2]})
    for use in (lambda: list(rows), lambda: rows.read_shared([0])):
        with pytest.raises(DatasetError, match="changed during the run"):
            use()
    changed = read(path)
    assert changed is not None
    assert changed._fingerprint != before
    path.unlink()
    with pytest.raises(DatasetError, match="cannot read the data file"):
        list(changed)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_repeated_texts_are_in_memory_once(tmp_path: Path, kind: Any) -> None:
    texts = [f"{number % 7} ".encode() + b"word " * 2000 for number in range(3000)]
    contexts = pa.array(texts, pa.binary()).cast(kind)
    columns = {"context": contexts, "nested": [[{"text": "a"}, {"text": "b"}]] * 3000, "number": range(3000)}
    with_dictionary = write(tmp_path / "a.parquet", columns)
    without = tmp_path / "b.parquet"
    table = parquet.read_table(with_dictionary)
    parquet.write_table(table.slice(0, 500), without, use_dictionary=False)
    found = read_parquet_files({"train": [str(with_dictionary), str(without)]})
    assert found is not None
    rows: Any = found["train"]._rows
    expected = [*table.to_pylist(), *table.slice(0, 500).to_pylist()]
    chosen = [3400, 0, 2999, 3000, 5]
    assert rows.read_rows(chosen) == [expected[number] for number in chosen]
    assert rows[3100] == expected[3100]
    assert rows._load_table().nbytes < 2_000_000  # 30 MB in the rows


@pytest.mark.parametrize("replaces", [False, True])
def test_a_change_of_the_file_while_it_is_read_is_an_error(tmp_path: Path, replaces: bool) -> None:
    """The rows of the old and the new file would be mixed."""
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for file, text in ((path, "old"), (other, "new")):
        parquet.write_table(pa.table({"a": [text] * 4000}), file, row_group_size=1024)
    rows = iter(read(path) or ())
    assert next(rows)["a"] == "old"
    if replaces:
        other.replace(path)
    else:
        path.write_bytes(other.read_bytes())
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))  # also if the clock of the file system is coarse
    with pytest.raises(DatasetError, match="changed during the run"):
        list(rows)


def test_a_damaged_page_is_an_error_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": ["word " * 50] * 100}), path, compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[20:60] = bytes(40)
    path.write_bytes(data)
    rows = read(path)
    assert rows is not None
    with pytest.raises(DatasetError, match="cannot read the data file") as caught:
        list(rows)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    "get", [list, lambda rows: rows[1], lambda rows: rows[1:3], lambda rows: rows[300], lambda rows: rows[-1]]
)
def test_text_that_is_not_utf8_is_an_error_with_the_name_of_the_file(
    tmp_path: Path, get: Callable[[Any], Any]
) -> None:
    text = pa.array([b"a", *[b"\xff"] * 300]).view(pa.string())
    parquet.write_table(pa.table({"a": text}), tmp_path / "a.parquet")
    found = read_parquet_files({"train": [str(tmp_path / "a.parquet")]})
    assert found is not None
    with pytest.raises(DatasetError, match="cannot read the data file: 'utf-8' codec") as caught:
        get(found["train"]._rows)
    assert caught.value.where == str(tmp_path / "a.parquet")


def test_no_parquet_file_is_left_to_the_library(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("not a Parquet file")
    assert read(tmp_path / "a.parquet") is None


# --- task files ------------------------------------------------------------------------------------

CARD = """
    configs:
    - config_name: main
      data_files:
      - split: train
        path: main/train-*
      - split: test
        path: main/test.parquet
    - config_name: small
      default: true
      data_files:
      - {split: test, path: [small/b.parquet, small/a.parquet]}
    dataset_info:
    - config_name: main
      features:
      - {name: question, dtype: string}
      - name: label
        dtype: {class_label: {names: {'0': 'no', '1': 'yes'}}}
      - {name: tags, sequence: string}
      - name: parts
        list:
        - {name: text, dtype: string}
        - {name: ids, list: int16}
      splits:
      - {name: train, num_bytes: 1, num_examples: 3}
      - {name: test, num_bytes: 1, num_examples: 1}
"""


def make_columns(*names: str) -> dict[str, Any]:
    return {
        "question": list(names),
        "label": pa.array([1] * len(names), pa.int64()),
        "tags": pa.array([["x"]] * len(names), pa.list_(pa.string())),
        "parts": pa.array([[{"text": "a", "ids": [1]}]] * len(names), pa.list_(NAMED)),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "org" / "sums"
    write(folder / "main" / "train-2.parquet", make_columns("c"))
    write(folder / "main" / "train-1.parquet", make_columns("a", "b"))
    write(folder / "main" / "test.parquet", make_columns("d"))
    write(folder / "main" / ".train-0.parquet", make_columns("hidden"))
    write(folder / "small" / "a.parquet", {"question": ["e"]})
    write(folder / "small" / "b.parquet", {"question": ["f"]})
    write_card(folder, CARD)
    return folder


def write_card(folder: Path, card: str) -> None:
    (folder / "README.md").write_text(f"---\n{textwrap.dedent(card).strip()}\n---\n# Sums\n")


def make_spec(name: str | None, **settings: Any) -> TaskSpec:
    return TaskSpec(
        name="sums",
        path="a.yaml",
        dataset_path="org/sums",
        dataset_name=name,
        test_split="test",
        **settings,
    )


def load_questions(splits: Mapping[str, Any]) -> dict[str, list[str]]:
    return {split: [row["question"] for row in rows] for split, rows in splits.items()}


@pytest.mark.parametrize("name", ["main", "small", None])
def test_a_copied_dataset_is_read_by_its_card(tmp_path: Path, folder: Path, name: str | None) -> None:
    spec = make_spec(name)
    splits = load_splits(spec, data_root=str(tmp_path))
    assert all(isinstance(rows, Rows) for rows in splits.values())
    pytest.importorskip("datasets")
    expected = load_hf_dataset(spec, data_root=str(tmp_path), trust_remote_code=False)
    assert {split: list(rows) for split, rows in splits.items()} == {
        split: list(rows) for split, rows in expected.items()
    }
    assert list(splits) == list(expected)


def break_card(old: str, new: str) -> Callable[[Path], None]:
    assert old in CARD
    return lambda folder: write_card(folder, CARD.replace(old, new, 1))


LEFT_TO_THE_LIBRARY: Mapping[str, Callable[[Path], Any]] = {
    "no card": lambda folder: (folder / "README.md").unlink(),
    "damaged card": lambda folder: write_card(folder, "configs: ["),
    "other file": break_card("main/test.parquet", "main/test.jsonl"),
    "pattern of folders": break_card("main/train-*", "**/train-*"),
    "one of two": break_card("main/train-*", "main/train-[12].parquet"),
    "outside": break_card("main/test.parquet", "../sums/main/test.parquet"),
    "missing file": lambda folder: (folder / "main" / "test.parquet").unlink(),
    "setting": break_card("config_name: main\n", "config_name: main\n      columns: [question]\n"),
    "other type": break_card("dtype: string", "dtype: large_string"),
    "other order": break_card("{name: question, dtype: string}\n", "{name: label, dtype: int64}\n"),
    "picture": break_card("dtype: string", "dtype: image"),
    "other inner type": break_card("list: int16", "list: int32"),
    "old list of structs": break_card("list:\n", "sequence:\n"),
    "other number of rows": break_card("num_examples: 3", "num_examples: 4"),
    "other splits": break_card("{name: train, num_bytes", "{name: dev, num_bytes"),
    "further metadata": lambda folder: (folder / "dataset_infos.json").write_text("{}"),
    "saved dataset": lambda folder: (folder / "state.json").write_text("{}"),
}


@pytest.mark.parametrize("change", LEFT_TO_THE_LIBRARY)
def test_what_the_card_does_not_say_plainly_is_left_to_the_library(
    tmp_path: Path, folder: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    LEFT_TO_THE_LIBRARY[change](folder)
    monkeypatch.setattr("assay.tasks.data.hf_datasets.load_hf_dataset", lambda *_, **__: {"library": []})
    assert list(load_splits(make_spec("main"), data_root=str(tmp_path))) == ["library"]


def test_settings_and_process_docs_need_the_library(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.tasks.data.hf_datasets.load_hf_dataset", lambda *_, **__: {"library": []})
    for settings in ({"process_docs": list}, {"dataset_kwargs": {"revision": "1"}}):
        assert list(load_splits(make_spec("main", **settings), data_root=str(tmp_path))) == ["library"]
    assert list(load_splits(make_spec("other"), data_root=str(tmp_path))) == ["library"]
    trusted = make_spec("main", dataset_kwargs={"trust_remote_code": True, "token": True})
    assert "library" not in load_splits(trusted, data_root=str(tmp_path))


TASK = """
task: sums
dataset_path: parquet
dataset_kwargs: {data_files: {test: sums.parquet, train: sums.parquet}}
test_split: test
fewshot_split: train
num_fewshot: 1
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: exact_match}]
"""

RUN = """
import sys, assay
run = assay.run(model="oracle", tasks=["sums.yaml"], output_path="out")
print(run.results["sums"]["exact_match,none"], sorted({"datasets", "pandas"} & sys.modules.keys()))
"""


def test_a_run_over_a_parquet_file_does_not_import_the_library(tmp_path: Path) -> None:
    write(tmp_path / "sums.parquet", {"question": ["1 + 1", "2 + 2"], "answer": ["2", "4"]})
    (tmp_path / "sums.yaml").write_text(TASK)
    ran = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1:] == ["1.0 []"], ran.stderr


def test_a_missing_parquet_file_is_named(tmp_path: Path) -> None:
    spec = TaskSpec(
        name="sums",
        path=str(tmp_path / "a.yaml"),
        dataset_path="parquet",
        dataset_kwargs={"data_files": {"test": "absent.parquet"}},
        test_split="test",
    )
    with pytest.raises(DatasetError, match=r"data file not found: `absent\.parquet`"):
        load_splits(spec)


# --- copies of real datasets -----------------------------------------------------------------------


def compare_with_library(hub: Path, name: str, config: str) -> bool:
    """Return whether a configuration is read without the library; its rows must be the same."""
    spec = TaskSpec(name="copied", path="a.yaml", dataset_path=name, dataset_name=config, test_split="test")
    splits = load_splits(spec, data_root=str(hub))
    if not all(isinstance(rows, Rows) for rows in splits.values()):
        return False
    expected = load_hf_dataset(spec, data_root=str(hub), trust_remote_code=False)
    assert list(splits) == list(expected)
    for split, rows in expected.items():
        assert repr(list(splits[split])) == repr(list(rows)), (name, config, split)
        assert list(splits[split].features) == list(rows.features)
    return True


def provide_hub() -> Path:
    pytest.importorskip("datasets")
    hub = Path(os.environ.get("ASSAY_SHARED") or PROJECT.parent / "shared") / "hub"
    if not hub.is_dir():
        pytest.skip("no datasets: set ASSAY_SHARED to the folder that holds hub/")
    return hub


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("allenai/ai2_arc", "ARC-Easy"),
        ("cais/mmlu", "anatomy"),
        ("google/IFEval", "default"),
        ("mandarjoshi/trivia_qa", "rc.nocontext"),
        ("truthfulqa/truthful_qa", "multiple_choice"),
    ],
)
def test_copies_of_datasets_are_read_without_the_library(name: str, config: str) -> None:
    assert compare_with_library(provide_hub(), name, config)


@pytest.mark.slow
def test_the_rows_of_copied_datasets_are_those_of_the_library() -> None:
    hub = provide_hub()
    direct = 0
    for card in sorted(hub.glob("*/*/README.md")):
        name = str(card.parent.relative_to(hub)).removeprefix("bare/")
        for entry in list_mappings(read_card(card.parent).get("configs"))[:2]:
            with suppress(DatasetError):  # a configuration of the card without files
                direct += compare_with_library(hub, name, entry["config_name"])
    assert direct > 30
