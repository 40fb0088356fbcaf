"""`read_documents`: where a task's rows come from.

Local json, jsonl and csv files are read without further packages (`files.py`). Everything else (the hub, parquet,
arrow, a folder laid out like the hub under `--data_root`) goes through the `datasets` library (`library.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import DatasetError
from assay.core.specs import TaskSpec
from assay.tasks.data.hf_datasets import load_hf_dataset
from assay.tasks.data.local_files import SUFFIXES, read_files
from assay.tasks.data.rows import Rows, Split

__all__ = ["load_splits"]


def load_splits(
    spec: TaskSpec, *, data_root: str | None = None, trust_remote_code: bool = False
) -> Mapping[str, Split]:
    """Every split of the task's dataset, by name.

    Raises:
        DatasetError: The dataset or one of its files is not there or not readable.
        MissingPackage: It needs the `datasets` library, which is not installed.
    """
    if spec.custom_dataset is not None:
        made: Mapping[str, Split] = spec.custom_dataset(**spec.metadata, **spec.dataset_kwargs)
        return {name: _as_split(rows) for name, rows in made.items()}
    if spec.dataset_path in ("json", "csv") and set(spec.dataset_kwargs) == {"data_files"}:
        files = _local_files(spec)
        if files is not None:
            return {name: read_files(paths) for name, paths in files.items()}
    return load_hf_dataset(spec, data_root=data_root, trust_remote_code=trust_remote_code)


def _as_split(rows: Any) -> Split:
    return rows if hasattr(rows, "features") else Rows(rows)


def _local_files(spec: TaskSpec) -> dict[str, list[str]] | None:
    """Split name -> absolute paths; None when they are not plain local files of a kind read here."""
    data_files = spec.dataset_kwargs["data_files"]
    by_split = data_files if isinstance(data_files, Mapping) else {"train": data_files}
    folder = Path(spec.path).parent
    resolved: dict[str, list[str]] = {}
    for split, names in by_split.items():
        for name in names if isinstance(names, Sequence) and not isinstance(names, str) else [names]:
            if not isinstance(name, str):
                raise DatasetError(
                    f"`data_files` must name files, not {name!r}",
                    where=spec.place("dataset_kwargs"),
                    hint="`data_files: {test: my_data.jsonl}`",
                )
            if "://" in name or any(character in name for character in "*?["):
                return None
            path = Path(name)
            candidates = [path] if path.is_absolute() else [folder / path, path]
            found = next((candidate for candidate in candidates if _is_file(candidate)), None)
            if found is None:
                raise DatasetError(
                    f"the data file `{name}` is not there",
                    where=spec.place("dataset_kwargs"),
                    hint=f"paths are relative to {folder}",
                )
            if found.suffix not in SUFFIXES:
                return None
            resolved.setdefault(str(split), []).append(str(found))
    return resolved


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file can have
        return False
