"""Find copies of hub datasets on this machine: in the data folder, in the cache of the `datasets` library, in the hub cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["find_cached", "find_local_copy", "find_snapshots", "find_under_root", "select_local"]


def select_local(datasets: Iterable[str]) -> set[str]:
    """Return the datasets of which any folder exists. It is much faster than searching for their configurations."""
    cached, downloaded = _list_names(_cache_root()), _list_names(_hub_root())
    return {
        dataset
        for dataset in datasets
        if find_local_copy(dataset) is not None
        or (cached and not cached.isdisjoint(_cache_names(dataset)))
        or _hub_name(dataset) in downloaded
    }


def find_local_copy(dataset: str) -> Path | None:
    """Return the folder that a dataset id names, or its copy in `ASSAY_DATA`."""
    return Path(dataset) if os.path.isdir(dataset) else find_under_root(dataset, None)


def find_under_root(dataset_path: str, data_root: str | None) -> Path | None:
    """Return the local folder of a dataset id: `<root>/<org>/<name>` or `<root>/bare/<name>`."""
    root = data_root or os.environ.get("ASSAY_DATA")
    if not root:
        return None
    for candidate in (Path(root) / dataset_path, Path(root) / "bare" / dataset_path):
        if candidate.is_dir():
            return candidate
    return None


def find_cached(dataset: str, config: str) -> list[Path]:
    """Return the folders that the `datasets` library wrote for a dataset, the newest first."""
    found = [
        path.parent
        for name in _cache_names(dataset)
        for path in Path(_cache_root(), name, config or "default").glob("*/*/dataset_info.json")
    ]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def find_snapshots(dataset: str) -> list[Path]:
    """Return the downloaded revisions of a dataset, the newest first."""
    found = Path(_hub_root(), _hub_name(dataset), "snapshots").glob("*")
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def _list_names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _cache_names(dataset: str) -> dict[str, None]:
    """Return the names that the `datasets` library may give to the folder of a dataset."""
    owner, _, name = dataset.rpartition("/")
    snake = re.sub(r"([a-z\d])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)).lower()
    prefix = f"{owner}___" if owner else ""
    return dict.fromkeys((prefix + snake, prefix + name))


def _cache_root() -> str:
    return os.path.expanduser(os.environ.get("HF_DATASETS_CACHE") or f"{_hf_home()}/datasets")


def _hub_name(dataset: str) -> str:
    return f"datasets--{dataset.replace('/', '--')}"


def _hub_root() -> str:
    return os.path.expanduser(os.environ.get("HF_HUB_CACHE") or f"{_hf_home()}/hub")


def _hf_home() -> str:
    return os.environ.get("HF_HOME") or "~/.cache/huggingface"
