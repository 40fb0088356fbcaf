from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.tasks.data.dataset_sizes import count_hub_documents, count_rows, find_data_files, find_hub_split

CARD = """---
dataset_info:
- config_name: main
  splits:
  - {name: train, num_examples: 70}
  - {name: test, num_examples: 13}
configs:
- config_name: main
  data_files:
  - {split: test, path: main/test-*}
---
# A dataset
"""


def count_documents(config: dict[str, Any], folder: Path) -> int | None:
    hub = find_hub_split(config)
    return count_hub_documents(*hub) if hub else count_rows(find_data_files(config, folder))


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASSAY_DATA", "HF_DATASETS_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def write_parquet(path: Path, rows: int) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table({"question": ["?"] * rows}), path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def describe_files(kind: str, *names: str) -> dict[str, Any]:
    return {
        "dataset_path": kind,
        "dataset_kwargs": {"data_files": {"test": list(names) if len(names) > 1 else names[0]}},
        "test_split": "test",
    }


HUB: dict[str, Any] = {"dataset_path": "some/IFSums", "dataset_name": "main", "test_split": "test"}


def test_local_files_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"q": 1}\n\n{"q": 2}\n')
    write(tmp_path / "b.json", '[{"q": 1}, {"q": 2}, {"q": 3}]')
    write(tmp_path / "c.csv", 'q,a\n"two\nlines",1\nx,2\n')
    write(tmp_path / "d.tsv", "q\ta\nx\t2\n")
    write_parquet(tmp_path / "e.parquet", 7)
    for files, count in (
        (describe_files("json", "a.jsonl"), 2),
        (describe_files("json", "b.json"), 3),
        (describe_files("json", "a.jsonl", "b.json"), 5),
        (describe_files("csv", "c.csv"), 2),
        (describe_files("csv", "d.tsv"), 1),
        (describe_files("parquet", "e.parquet"), 7),
        (describe_files("parquet", "*.parquet"), 7),
    ):
        assert count_documents(files, tmp_path) == count


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(describe_files("json", "none.jsonl"), id="a missing file"),
        pytest.param(describe_files("json", "bad.json"), id="a damaged file"),
        pytest.param(describe_files("parquet", "bad.parquet"), id="a damaged Parquet file"),
        pytest.param(describe_files("json", "a.jsonl", "none.jsonl"), id="a part is missing"),
        pytest.param(describe_files("json", "a.jsonl") | {"process_docs": print}, id="code may drop documents"),
        pytest.param(describe_files("json", "a.jsonl") | {"test_split": "dev"}, id="another split"),
        pytest.param(HUB, id="a dataset that was never loaded"),
    ],
)  # fmt: skip
def test_what_is_not_stated_is_unknown(tmp_path: Path, config: dict[str, Any]) -> None:
    write(tmp_path / "a.jsonl", '{"q": 1}\n')
    write(tmp_path / "bad.json", "[{")
    write(tmp_path / "bad.parquet", "PAR1")
    assert count_documents(config, tmp_path) is None


def test_a_copied_dataset_is_counted_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "data"))
    write_parquet(tmp_path / "data" / "some" / "IFSums" / "main" / "test-00000-of-00001.parquet", 9)
    assert count_documents(HUB, tmp_path) == 9
    write(tmp_path / "data" / "some" / "IFSums" / "README.md", CARD)
    assert count_documents(HUB, tmp_path) == 9, "the files of a copy count, not what its card says"


def test_the_card_of_a_download_states_the_size(tmp_path: Path) -> None:
    write(tmp_path / "hf" / "hub" / "datasets--some--IFSums" / "snapshots" / "1" / "README.md", CARD)
    assert count_documents(HUB, tmp_path) == 13
    assert count_documents(HUB | {"test_split": "train"}, tmp_path) == 70
    assert count_documents(HUB | {"dataset_name": "other"}, tmp_path) is None


def test_a_loaded_dataset_is_counted_by_the_cache_of_the_library(tmp_path: Path) -> None:
    info = {"splits": {"test": {"name": "test", "num_examples": 11}}}
    write(
        tmp_path / "hf/datasets/some___if_sums/main/0.0.0/abc/dataset_info.json",
        json.dumps(info),
    )
    assert count_documents(HUB, tmp_path) == 11


@pytest.mark.parametrize(
    "path", ["/data/test.parquet", "''", "7", "[3, null, '', /x, {a: b}]", "true", "{a: b}"]
)
def test_paths_of_a_card_that_are_no_patterns_are_ignored(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "data"))
    write(tmp_path / "data" / "some" / "IFSums" / "README.md", CARD.replace("main/test-*", path))
    assert count_documents(HUB, tmp_path) == 13
