"""Finding copies of hub datasets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.tasks.data.dataset_folders import (
    find_cached,
    find_local_copy,
    find_snapshots,
    find_under_root,
    select_local,
)


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every place that is searched to an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("HF_DATASETS_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "data"))
    return tmp_path


def add_snapshot(root: Path, dataset: str, revision: str, *, time: int = 0) -> Path:
    """Create a folder as the hub library lays it out."""
    folder = root / f"datasets--{dataset.replace('/', '--')}" / "snapshots" / revision
    folder.mkdir(parents=True)
    os.utime(folder, (time, time))
    return folder


def add_cached(root: Path, name: str, config: str, *, time: int = 0) -> Path:
    """Create a folder as the `datasets` library lays it out."""
    folder = root / name / config / "0.0.0" / f"hash{time}"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{}")
    os.utime(folder, (time, time))
    return folder


def test_datasets_are_found_below_the_data_folder(caches: Path) -> None:
    (caches / "data" / "openai" / "gsm8k").mkdir(parents=True)
    (caches / "data" / "bare" / "piqa").mkdir(parents=True)
    assert find_local_copy("openai/gsm8k") == caches / "data" / "openai" / "gsm8k"
    assert find_local_copy("piqa") == caches / "data" / "bare" / "piqa"
    assert find_local_copy("openai/other") is None
    assert find_under_root("piqa", str(caches)) is None, "another root was named"


def test_a_folder_that_the_id_names_comes_first(caches: Path) -> None:
    for folder in (caches / "openai" / "gsm8k", caches / "data" / "openai" / "gsm8k"):
        folder.mkdir(parents=True)
    assert find_local_copy("openai/gsm8k") == Path("openai/gsm8k")


def test_no_data_folder_has_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_DATA")
    assert find_under_root("piqa", None) is None


@pytest.mark.parametrize("name", ["allenai___ai2_arc", "allenai___AI2ARC"])
def test_the_newest_folder_of_the_datasets_library_comes_first(caches: Path, name: str) -> None:
    root = caches / "hf" / "datasets"
    add_cached(root, name, "ARC-Easy", time=1)
    newest = add_cached(root, name, "ARC-Easy", time=2)
    add_cached(root, name, "ARC-Challenge", time=3)
    for index, folder in enumerate((newest.with_name("hash1"), newest)):
        os.utime(folder, (index, index))
    dataset = "allenai/ai2_arc" if name.islower() else "allenai/AI2ARC"
    assert [path.name for path in find_cached(dataset, "ARC-Easy")] == ["hash2", "hash1"]
    assert find_cached(dataset, "") == []


def test_the_newest_snapshot_comes_first(caches: Path) -> None:
    hub = caches / "hf" / "hub"
    old, new = (add_snapshot(hub, "cais/mmlu", name, time=time) for name, time in (("b", 1), ("a", 2)))
    assert find_snapshots("cais/mmlu") == [new, old]
    assert find_snapshots("cais/other") == []


def test_only_datasets_with_a_folder_are_selected(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (caches / "data" / "openai" / "gsm8k").mkdir(parents=True)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(caches / "other"))
    add_cached(caches / "other", "allenai___ai2_arc", "ARC-Easy")
    monkeypatch.setenv("HF_HUB_CACHE", str(caches / "hub"))
    add_snapshot(caches / "hub", "cais/mmlu", "a")
    names = ["openai/gsm8k", "allenai/ai2_arc", "cais/mmlu", "cais/other"]
    assert select_local(names) == set(names[:3])
