"""Load the splits of a task's dataset.

`local_files` reads local json, jsonl, csv and tsv files without further packages. `parquet_files` reads Parquet files, also of a
local copy of the hub under `--data_root`, with pyarrow alone. `hf_datasets` loads everything else with the `datasets` library.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core.dialects import Dialect
from assay.core.errors import DatasetError
from assay.core.records.specs import TaskSpec
from assay.tasks.data.allowed_folders import AllowedFolders
from assay.tasks.data.dataset_cards import find_parquet_config
from assay.tasks.data.dataset_folders import find_under_root
from assay.tasks.data.local_files import SUFFIXES, read_files
from assay.tasks.data.parquet_files import read_parquet_files, read_parquet_splits
from assay.tasks.data.rows import Rows, Split

__all__ = ["load_splits", "resolve_data_paths", "select_model_args"]

_FILE_LOADERS = frozenset(
    "arrow audiofolder csv imagefolder json pandas parquet text videofolder webdataset xml".split()
)
"""Values of `dataset_path` that read local files and are not repositories of the hub."""


def load_splits(
    spec: TaskSpec,
    *,
    data_root: str | None = None,
    trust_remote_code: bool = False,
    allow_data_outside: bool = False,
) -> Mapping[str, Split]:
    """Load every split of the task's dataset, by name.

    Raises:
        DatasetError: The dataset or one of its files does not exist or is not readable, or is a local file outside the
            folders that a task may read without `allow_data_outside`.
        MissingPackage: The dataset needs the `datasets` library, which is not installed.
    """
    if spec.custom_dataset is not None:
        arguments = {**spec.metadata, **spec.dataset_kwargs}
        if data_root and _has_parameter(spec.custom_dataset, "data_root"):
            arguments["data_root"] = data_root
        made: Mapping[str, Split] = spec.custom_dataset(**arguments)
        return {name: _as_split(rows) for name, rows in made.items()}
    if not allow_data_outside:
        folders = AllowedFolders.for_task(spec, data_root)
        for key, name in _list_local_paths(spec):
            folders.check_data(name, where=spec.place(key))
    if spec.dataset_path in ("json", "csv") and set(spec.dataset_kwargs) == {"data_files"}:
        files = _resolve_local_files(spec, SUFFIXES)
        if files is not None:
            return {name: read_files(paths) for name, paths in files.items()}
    if (plain := _read_plain_parquet(spec, data_root)) is not None:
        return plain
    if spec.dataset_path in _FILE_LOADERS:
        spec = replace(spec, dataset_kwargs=resolve_data_paths(spec))
    from assay.tasks.data.hf_datasets import load_hf_dataset

    return load_hf_dataset(spec, data_root=data_root, trust_remote_code=trust_remote_code)


def _read_plain_parquet(spec: TaskSpec, data_root: str | None) -> Mapping[str, Split] | None:
    """Read Parquet files without the `datasets` library; None if the library may read them differently.

    `process_docs` gets a table of the library, because it may use any of its methods.
    """
    if spec.process_docs is not None or spec.fewshot.process_docs is not None:
        return None
    if spec.dataset_path == "parquet":
        files = None
        if set(spec.dataset_kwargs) == {"data_files"}:
            files = _resolve_local_files(spec, (".parquet",))
        return read_parquet_files(files) if files else None
    if spec.dataset_path in _FILE_LOADERS or spec.dataset_kwargs.keys() - {"trust_remote_code", "token"}:
        return None
    path = str(spec.dataset_path)
    folder = find_under_root(path, data_root) or Path(path)
    config = find_parquet_config(folder, spec.dataset_name)
    return read_parquet_splits(config) if config is not None else None


def resolve_data_paths(spec: TaskSpec) -> dict[str, Any]:
    """Return `dataset_kwargs` in which `data_dir` and `data_files` that exist beside the task file are absolute.

    Other relative paths stay as they are: the `datasets` library looks for them in the working directory.
    """
    folder = Path(spec.path).parent.absolute()
    arguments = dict(spec.dataset_kwargs)
    base = arguments.get("data_dir")
    if isinstance(base, str):
        arguments["data_dir"] = _resolve_beside(base, folder)
    elif "data_files" in arguments:
        arguments["data_files"] = _resolve_names(arguments["data_files"], folder)
    return arguments


def _resolve_names(names: Any, folder: Path) -> Any:
    if isinstance(names, Mapping):
        return {split: _resolve_names(value, folder) for split, value in names.items()}
    if isinstance(names, (list, tuple)):
        return [_resolve_names(value, folder) for value in names]
    return _resolve_beside(names, folder) if isinstance(names, str) else names


def _resolve_beside(name: str, folder: Path) -> str:
    if "://" in name or Path(name).expanduser().is_absolute():
        return name
    try:
        found = (folder / name).exists() or any(folder.glob(name))
    except (OSError, ValueError, NotImplementedError):  # not a valid file name or pattern
        return name
    return str(folder / name) if found else name


def select_model_args(spec: TaskSpec, model_args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the model that the function of a task's dataset accepts, if its harness passes them."""
    if spec.custom_dataset is None or spec.dialect is not Dialect.LM_EVAL:
        return {}
    known = _list_parameters(spec.custom_dataset)
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):
        return dict(model_args)
    return {name: value for name, value in model_args.items() if name in known}


def _has_parameter(function: Any, name: str) -> bool:
    """Whether a function names this parameter, so that functions of other harnesses get nothing unexpected."""
    return name in _list_parameters(function)


def _list_parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _list_local_paths(spec: TaskSpec) -> Iterator[tuple[str, str]]:
    """Yield (key, path) of everything in a task file that can name a local file or folder; a pattern by its fixed part."""
    if spec.dataset_path is not None:
        yield "dataset_path", str(spec.dataset_path)
    data_files = spec.dataset_kwargs.get("data_files")
    by_split = data_files if isinstance(data_files, Mapping) else {"": data_files}
    names = [spec.dataset_kwargs.get("data_dir"), *by_split.values()]
    while names:
        name = names.pop()
        if isinstance(name, (list, tuple)):
            names += name
        elif isinstance(name, str) and ("://" not in name or name.startswith("file://")):
            fixed, *pattern = re.split(r"[*?\[]", name.removeprefix("file://"), maxsplit=1)
            yield "dataset_kwargs", (os.path.dirname(fixed) if pattern else fixed) or "."  # noqa: PTH120


def _as_split(rows: Any) -> Split:
    return rows if hasattr(rows, "features") else Rows(rows)


def _resolve_local_files(spec: TaskSpec, suffixes: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the paths by split name, or None if they are not all local files with one of these suffixes."""
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
                    f"data file not found: `{name}`",
                    where=spec.place("dataset_kwargs"),
                    hint=f"paths are relative to {folder}",
                )
            if found.suffix not in suffixes:
                return None
            resolved.setdefault(str(split), []).append(str(found))
    return resolved


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # not a valid file name
        return False
