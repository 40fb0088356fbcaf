"""Tests of datasets loaded by the `datasets` library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import DatasetError
from assay.core.records.specs import TaskSpec
from assay.tasks.data import hf_datasets
from assay.tasks.data.hf_datasets import load_hf_dataset

datasets = pytest.importorskip("datasets")

ROWS = [{"videoID": name, "answer": name.upper()} for name in ("a", "b", "c")]


def make_spec(dataset_path: str, **settings: Any) -> TaskSpec:
    return TaskSpec(
        name="sums", path="a.yaml", dataset_path=dataset_path, dataset_kwargs=settings, test_split="test"
    )


def load(spec: TaskSpec, data_root: Path | None = None) -> Any:
    return load_hf_dataset(spec, data_root=str(data_root) if data_root else None, trust_remote_code=False)


@pytest.mark.parametrize("home", ["org/sums", "bare/org/sums"])
def test_a_folder_laid_out_like_the_hub_serves_a_dataset(tmp_path: Path, home: str) -> None:
    folder = tmp_path / home
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert list(load(make_spec("org/sums", token=True), tmp_path)["test"]) == ROWS


CARD = """---
configs:
- config_name: default
  data_files:
  - split: test
    path: test.jsonl
---
"""


def test_other_rows_under_the_same_card_are_read(tmp_path: Path) -> None:
    for root, rows in (("a", ROWS), ("b", ROWS[:1]), ("a", ROWS[1:])):
        folder = tmp_path / root / "org" / "carded_sums"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(CARD)
        (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert list(load(make_spec("org/carded_sums"), tmp_path / root)["test"]) == rows


@pytest.mark.parametrize("settings", [{}, {"load_from_disk": True}])
def test_a_saved_dataset_is_opened(tmp_path: Path, settings: dict[str, Any]) -> None:
    made = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"test": made}).save_to_disk(tmp_path / "several")
    made.save_to_disk(tmp_path / "one")
    for name in ("several", "one"):
        assert list(load(make_spec(str(tmp_path / name), **settings))["test"]) == ROWS


def test_only_documents_whose_videos_are_here_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(tmp_path / "clips")
    spec = make_spec(str(tmp_path / "clips"), From_YouTube=True)
    with pytest.raises(DatasetError, match="no video of"):
        load(spec)
    (tmp_path / "home" / "sums").mkdir(parents=True)
    (tmp_path / "home" / "sums" / "b.mp4").write_bytes(b"")
    assert [row["videoID"] for row in load(spec)["test"]] == ["b"]


def test_a_hub_that_was_out_of_reach_once_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def load_dataset(path: str, *_: Any, **__: Any) -> Any:
        asked.append(bool(datasets.config.HF_HUB_OFFLINE))
        raise ConnectionError(f"Couldn't reach '{path}' on the Hub")

    monkeypatch.setattr(hf_datasets, "_unreachable", [])
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    for _ in range(2):
        with pytest.raises(DatasetError, match="cannot load the dataset"):
            load(make_spec("nobody/nothing"))
    assert asked == [False, True]
    assert datasets.config.HF_HUB_OFFLINE is False
