"""The number of documents in a split, as far as files on this machine state it. Loads no dataset and uses no network.

Known are local files, the footers of Parquet files, the card of a copied or downloaded dataset, and what the `datasets` library
noted in its cache when it loaded the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.tasks.data.dataset_cards import find_config_info, is_config, list_mappings, read_card
from assay.tasks.data.dataset_folders import find_cached, find_local_copy, find_snapshots
from assay.tasks.data.local_files import SUFFIXES, read_files

__all__ = ["count_hub_documents", "count_rows", "find_data_files", "find_hub_split"]

_FILE_FORMATS = ("json", "csv", "parquet")

_MAX_READ_BYTES = 20_000_000
"""Larger text files are not counted."""


def find_hub_split(config: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return dataset, configuration and split of a task file; None if it reads local files or computes its documents."""
    split, dataset = _find_split(config), config.get("dataset_path")
    if not split or not isinstance(dataset, str) or dataset in _FILE_FORMATS:
        return None
    return dataset, str(config.get("dataset_name") or ""), split


def find_data_files(config: Mapping[str, Any], folder: Path) -> list[Path]:
    """Return the local files of the evaluated split of a task file in `folder`, existing or not."""
    split, arguments = _find_split(config), config.get("dataset_kwargs")
    if not split or config.get("dataset_path") not in _FILE_FORMATS:
        return []
    files = arguments.get("data_files") if isinstance(arguments, Mapping) else None
    if not isinstance(files, Mapping):
        files = {"train": files}
    names = files.get(split)
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        return []
    return [path for name in names for path in _find_files(folder, name)]


def _find_split(config: Mapping[str, Any]) -> str:
    """Return the evaluated split; empty if the task computes its documents, so that the data do not tell their number."""
    split = config.get("test_split") or config.get("validation_split")
    if config.get("process_docs") or config.get("custom_dataset") or not isinstance(split, str):
        return ""
    return split


def _find_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a name or pattern; the path itself if there are none, so that nothing is counted."""
    return _glob(folder, pattern) or [folder / pattern]


def _glob(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a pattern; none if the pattern is empty, absolute or invalid."""
    try:
        return sorted(folder.glob(pattern))
    except (OSError, ValueError, NotImplementedError):
        return []


def count_rows(paths: Sequence[Path]) -> int | None:
    """Return the number of rows in data files; None if there are no files, or one cannot be counted."""
    counts = [_count_file(path) for path in paths]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _count_file(path: Path) -> int | None:
    try:
        if path.suffix == ".parquet" and path.is_file():
            return _count_parquet_rows(path)
        if path.suffix in SUFFIXES and path.stat().st_size <= _MAX_READ_BYTES:
            return len(read_files([str(path)]))
    except (OSError, ValueError, DatasetError):  # missing or damaged; `assay check` reports it
        return None
    return None


def _count_parquet_rows(path: Path) -> int | None:
    """Read the number of rows from the footer; None without pyarrow."""
    try:
        from pyarrow import parquet
    except ImportError:
        return None
    return int(parquet.read_metadata(path).num_rows)


def count_hub_documents(dataset: str, config: str, split: str) -> int | None:
    """Return the number of documents of a hub dataset that was copied to the data folder or loaded before."""
    local = find_local_copy(dataset)
    if local is not None:
        return _count_in_folder(local, config, split)
    for folder in find_cached(dataset, config):
        if (count := _read_split_info(folder / "dataset_info.json", split)) is not None:
            return count
    for folder in find_snapshots(dataset):
        if (count := _count_in_card(read_card(folder), config, split)) is not None:
            return count
    return None


def _count_in_folder(folder: Path, config: str, split: str) -> int | None:
    card = read_card(folder)
    patterns = list(_find_patterns(card, config, split)) or [
        f"{place}{split}-*.parquet" for place in (f"{config}/" if config else "data/", "")
    ]
    files = [path for pattern in patterns for path in _glob(folder, pattern)]
    if files:
        return count_rows(files)
    count = _read_split_info(folder / split / "dataset_info.json", split)  # written by `save_to_disk`
    return count if count is not None else _count_in_card(card, config, split)


def _find_patterns(card: Mapping[str, Any], config: str, split: str) -> Iterator[str]:
    for entry in list_mappings(card.get("configs")):
        if is_config(entry, config):
            for files in list_mappings(entry.get("data_files")):
                paths = files.get("path")
                if files.get("split") == split:
                    listed = paths if isinstance(paths, list) else [paths]
                    yield from (path for path in listed if isinstance(path, str))


def _count_in_card(card: Mapping[str, Any], config: str, split: str) -> int | None:
    for one in list_mappings(find_config_info(card, config).get("splits")):
        if one.get("name") == split and isinstance(one.get("num_examples"), int):
            return int(one["num_examples"])
    return None


def _read_split_info(path: Path, split: str) -> int | None:
    try:
        info = json.loads(path.read_text("utf-8"))
        return int(info["splits"][split]["num_examples"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
