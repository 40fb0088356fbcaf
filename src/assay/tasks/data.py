"""`read_documents`: where a task's rows come from.

Local json, jsonl and csv files are read here, without further packages. Everything else (the hub, parquet,
arrow, a folder laid out like the hub under `--data_root`) goes through the `datasets` library.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from assay.core.errors import BadData, MissingPackage
from assay.core.fingerprints import digest_bytes, digest_text
from assay.core.specs import TaskSpec

__all__ = ["Rows", "Split", "load_splits"]


class Split(Protocol):
    """What Assay needs of a split: the `datasets` library's class has it, and so has `Rows`."""

    @property
    def features(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Rows(Sequence[dict[str, Any]]):
    """Rows held in memory. Every row has every column; what a file left out is None.

    >>> rows = Rows([{"a": 1}, {"b": 2}])
    >>> rows[1]
    {'a': None, 'b': 2}
    >>> list(rows.filter(lambda row: row["a"]))
    [{'a': 1, 'b': None}]
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        kept = list(rows)
        self.features: dict[str, Any] = dict.fromkeys(key for row in kept for key in row)
        self._rows = [{**self.features, **row} for row in kept]

        self._fingerprint: str | None = None
        """Hash of the files the rows were read from, where they are as they were read."""

    def __len__(self) -> int:
        return len(self._rows)

    def shared(self) -> Iterator[Mapping[str, Any]]:
        """The rows themselves, not copies: for readers that do not write."""
        return iter(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return Rows(self._rows[index]) if isinstance(index, slice) else dict(self._rows[index])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(row) for row in self._rows)

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def map(self, function: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Rows:
        """Every row updated with what the function returns, as `datasets` does it."""
        return Rows({**row, **function(row)} for row in self)

    def filter(self, function: Callable[[dict[str, Any]], Any]) -> Rows:
        """The rows the function keeps."""
        return Rows(row for row in self if function(row))

    def select(self, indices: Iterable[int]) -> Rows:
        """The rows at these positions, in this order."""
        return Rows(self._rows[index] for index in indices)


def load_splits(
    spec: TaskSpec, *, data_root: str | None = None, trust_remote_code: bool = False
) -> Mapping[str, Split]:
    """Every split of the task's dataset, by name.

    Raises:
        BadData: The dataset or one of its files is not there or not readable.
        MissingPackage: It needs the `datasets` library, which is not installed.
    """
    if spec.custom_dataset is not None:
        made: Mapping[str, Split] = spec.custom_dataset(**spec.metadata, **spec.dataset_kwargs)
        return {name: _as_split(rows) for name, rows in made.items()}
    if spec.dataset_path in ("json", "csv") and spec.dataset_kwargs.get("data_files"):
        files = _local_files(spec)
        if files is not None:
            return {
                name: _read_files(tuple(paths), spec.place("dataset_kwargs")) for name, paths in files.items()
            }
    return _from_library(spec, data_root, trust_remote_code)


def _as_split(rows: Any) -> Split:
    return rows if hasattr(rows, "features") else Rows(rows)


def _local_files(spec: TaskSpec) -> dict[str, list[str]] | None:
    """Split name -> absolute paths; None when they are not plain local files of a kind read here."""
    data_files = spec.dataset_kwargs["data_files"]
    by_split = data_files if isinstance(data_files, Mapping) else {"train": data_files}
    folder = Path(spec.path).parent
    resolved: dict[str, list[str]] = {}
    for split, names in by_split.items():
        for name in [names] if isinstance(names, str) else names:
            if "://" in name or any(character in name for character in "*?["):
                return None
            path = Path(name)
            candidates = [path] if path.is_absolute() else [folder / path, path]
            found = next((candidate for candidate in candidates if candidate.is_file()), None)
            if found is None:
                raise BadData(
                    f"the data file `{name}` is not there",
                    where=spec.place("dataset_kwargs"),
                    hint=f"paths are relative to {folder}",
                )
            if found.suffix not in (".json", ".jsonl", ".csv", ".tsv"):
                return None
            resolved.setdefault(str(split), []).append(str(found))
    return resolved


def _read_files(paths: tuple[str, ...], where: str) -> Rows:
    """The rows of some files, read once per version of the files."""
    stamps = tuple((path, Path(path).stat().st_size, Path(path).stat().st_mtime_ns) for path in paths)
    return _read_versions(stamps)


@lru_cache(maxsize=64)
def _read_versions(stamps: tuple[tuple[str, int, int], ...]) -> Rows:
    rows = Rows(row for path, _, _ in stamps for row in _read_file(Path(path)))
    rows._fingerprint = digest_text(*(digest_bytes(Path(path).read_bytes()) for path, _, _ in stamps))
    return rows


def _read_file(path: Path) -> list[Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadData(
            f"the data file is not UTF-8: {error.reason} at byte {error.start}", where=str(path)
        ) from None
    except OSError as error:
        raise BadData(f"cannot read the data file: {error.strerror}", where=str(path)) from None
    if path.suffix in (".csv", ".tsv"):
        reader = csv.DictReader(
            text.splitlines(keepends=True), delimiter="\t" if path.suffix == ".tsv" else ","
        )
        return [{key: _number(value) for key, value in row.items()} for row in reader]
    return _read_json(path, text)


def _read_json(path: Path, text: str) -> list[Mapping[str, Any]]:
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadData(f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}") from None
        numbered = list(enumerate(rows, start=1))
    else:
        numbered = []
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    numbered.append((number, json.loads(line)))
                except json.JSONDecodeError as error:
                    raise BadData(f"not valid JSON: {error.msg}", where=f"{path}:{number}") from None
    for number, row in numbered:
        if not isinstance(row, Mapping):
            raise BadData(
                "a row must be a JSON object",
                where=f"{path}:{number}",
                hint='{"question": "…", "answer": "…"}',
            )
    return [row for _, row in numbered]


def _number(text: str | None) -> Any:
    if text is None or text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _from_library(spec: TaskSpec, data_root: str | None, trust_remote_code: bool) -> Mapping[str, Split]:
    try:
        import datasets
    except ModuleNotFoundError:
        raise MissingPackage.of(
            "datasets",
            f"the dataset `{spec.dataset_path}`",
            extra="datasets",
            where=spec.place("dataset_path"),
        ) from None
    arguments = dict(spec.dataset_kwargs)
    arguments.pop("trust_remote_code", None)
    if trust_remote_code:
        arguments["trust_remote_code"] = True
    path = _under_root(str(spec.dataset_path), data_root) or str(spec.dataset_path)
    try:
        loaded = datasets.load_dataset(path, spec.dataset_name, **arguments)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        first_line = str(error).partition("\n")[0]
        raise BadData(
            f"the dataset `{spec.dataset_path}` cannot be loaded: {first_line}",
            where=spec.place("dataset_path"),
            hint="offline, put it under --data_root (or ASSAY_DATA) laid out as on the hub",
        ) from None
    return loaded  # type: ignore[no-any-return]


def _under_root(dataset_path: str, data_root: str | None) -> str | None:
    """The folder that serves a dataset id offline: `<root>/<org>/<name>`, or `<root>/bare/<name>`."""
    root = data_root or os.environ.get("ASSAY_DATA")
    if not root:
        return None
    for candidate in (Path(root) / dataset_path, Path(root) / "bare" / dataset_path):
        if candidate.is_dir():
            return str(candidate)
    return None
