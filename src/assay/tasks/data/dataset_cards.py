"""Read the YAML header of the `README.md` of a dataset: its configurations, their files and columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "ParquetConfig",
    "find_config_info",
    "find_parquet_config",
    "is_config",
    "list_mappings",
    "read_card",
]

_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Headers of cards with many configurations are long."""

_OTHER_METADATA = (".huggingface.yaml", "dataset_infos.json", "dataset_dict.json", "state.json")
"""Files beside the card that change what the `datasets` library reads."""

_SPLIT_NAME = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetConfig:
    """A configuration of a dataset whose files are all Parquet files."""

    files: Mapping[str, Sequence[Path]]
    """The files by split."""

    features: Sequence[Any] | None
    """The columns as the card describes them, or None."""

    counts: Mapping[str, Any] | None
    """The number of rows by split as the card states it, or None."""


def read_card(folder: Path) -> Mapping[str, Any]:
    """Return the YAML header of README.md; empty if there is none."""
    path = folder / "README.md"
    try:
        return _parse_card(path, path.stat().st_mtime_ns)
    except (OSError, ValueError, yaml.YAMLError):
        return {}


@lru_cache(maxsize=256)
def _parse_card(path: Path, changed: int) -> Mapping[str, Any]:
    header = re.match(r"---\n(.*?)\n---\s*(?:\n|$)", path.read_text("utf-8"), re.DOTALL)
    card = yaml.load(header[1], _YAML_LOADER) if header else None
    return card if isinstance(card, Mapping) else {}


def is_config(entry: Mapping[str, Any], config: str) -> bool:
    """Return whether an entry of the card is about a configuration; empty: the default one."""
    return str(entry.get("config_name", "default")) == (config or "default")


def list_mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return a mapping or the mappings in a list."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, Mapping)]


def find_config_info(card: Mapping[str, Any], config: str) -> Mapping[str, Any]:
    """Return the entry of `dataset_info` for a configuration; empty if there is none."""
    return next((entry for entry in list_mappings(card.get("dataset_info")) if is_config(entry, config)), {})


def find_parquet_config(folder: Path, config: str | None) -> ParquetConfig | None:
    """Return the files of a configuration, or None if only the `datasets` library can tell what they are.

    The card must list the files of every split, by name or with a `*` in the name, and contain no other settings.
    """
    if any((folder / name).exists() for name in _OTHER_METADATA):
        return None
    card = read_card(folder)
    configs = card.get("configs")
    if not isinstance(configs, list) or not all(isinstance(entry, Mapping) for entry in configs):
        return None
    entry = _select_config(configs, config)
    # the first configuration decides which format the library reads
    if entry is None or _find_files(folder, configs[0]) is None:
        return None
    files = _find_files(folder, entry)
    if files is None:
        return None
    name = str(entry["config_name"])
    if sum(is_config(one, name) for one in list_mappings(card.get("dataset_info"))) > 1:
        return None
    info = find_config_info(card, name)
    splits, features = info.get("splits"), info.get("features")
    counts = None
    if splits is not None:
        counts = {str(one.get("name")): one.get("num_examples") for one in list_mappings(splits)}
    return ParquetConfig(files=files, features=features, counts=counts)


def _select_config(configs: Sequence[Mapping[str, Any]], config: str | None) -> Mapping[str, Any] | None:
    names = [entry.get("config_name") for entry in configs]
    if len(set(map(str, names))) < len(names) or not all(isinstance(name, str) for name in names):
        return None
    if config is not None:
        return next((entry for entry in configs if entry["config_name"] == config), None)
    defaults = [entry for entry in configs if entry["config_name"] == "default" or entry.get("default")]
    candidates = list(configs) if len(configs) == 1 else defaults
    return candidates[0] if len(candidates) == 1 else None


def _find_files(folder: Path, entry: Mapping[str, Any]) -> dict[str, list[Path]] | None:
    """Return the Parquet files of a configuration by split; None if it has other files or settings."""
    data_files = entry.get("data_files")
    if entry.keys() - {"config_name", "data_files", "default"} or not isinstance(data_files, list):
        return None
    found: dict[str, list[Path]] = {}
    for one in data_files:
        if not isinstance(one, Mapping) or one.keys() != {"split", "path"}:
            return None
        split, paths = one["split"], one["path"]
        if not isinstance(split, str) or not _SPLIT_NAME.fullmatch(split) or split == "all" or split in found:
            return None
        found[split] = []
        for pattern in paths if isinstance(paths, list) else [paths]:
            files = list(_expand_pattern(folder, pattern)) if isinstance(pattern, str) else []
            if not files or any(file.suffix != ".parquet" for file in files):
                return None
            found[split] += files
    return found or None


def _expand_pattern(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files of a relative path whose last part may contain `*`; nothing for other patterns."""
    *parents, last = pattern.split("/")
    if "://" in pattern or "::" in pattern or "**" in last or re.search(r"[?\[\]{}~\\]", pattern):
        return
    if any(part in ("", "..") or part.startswith((".", "__")) or "*" in part for part in parents):
        return
    if "*" not in last:
        if not last.startswith((".", "__")) and (folder / pattern).is_file():
            yield folder / pattern
        return
    place = folder.joinpath(*parents)
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if fnmatchcase(path.name, last) and not path.name.startswith((".", "__")) and path.is_file():
            yield path
