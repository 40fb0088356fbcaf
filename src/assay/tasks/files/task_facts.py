"""What task files say about their tasks without loading data: headline, output type, modality, and the size of local data.

The facts of unchanged files come from a cache in `ASSAY_HOME`, because reading a YAML file takes a millisecond. The sizes of
hub datasets are looked up every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from assay.core.errors import AssayError
from assay.tasks.data.dataset_folders import select_local
from assay.tasks.files.file_stamps import FileStamp, read_headline, stamp_file
from assay.tasks.files.index_cache import cache_path, write_cache

__all__ = ["TaskFacts", "describe_tasks"]

_FORMAT = 1
_MODALITIES = {"doc_to_image": "image", "doc_to_visual": "visual", "doc_to_audio": "audio"}
_GLOB_CHARACTERS = frozenset("*?[")


class TaskFacts(NamedTuple):
    """Facts about a task; empty or None where they are unknown."""

    headline: str = ""
    """The first line of the file, if that is a comment."""

    output_type: str = ""
    modality: str = ""
    documents: int | None = None


_HubSplit = tuple[str, str, str]
"""Dataset, configuration and split of the hub that the number of documents comes from."""

_FileFacts = tuple[list[FileStamp], TaskFacts, _HubSplit | None]
"""Facts that do not change until one of the stamped files does: the task file, its includes and its data files."""


def describe_tasks(root: Path, files: Iterable[str]) -> dict[str, TaskFacts]:
    """Return the facts about task files of one root, by file. A file that cannot be read has none."""
    cache = _FactsCache(root)
    found = {file: cache.get(file) or cache.read(file) for file in files}
    cache.save()
    local = select_local({hub_split[0] for _, hub_split in found.values() if hub_split})
    return {
        file: _add_hub_documents(facts, hub_split) if hub_split and hub_split[0] in local else facts
        for file, (facts, hub_split) in found.items()
    }


def _add_hub_documents(facts: TaskFacts, hub_split: _HubSplit) -> TaskFacts:
    from assay.tasks.data.dataset_sizes import count_hub_documents  # loads a YAML parser

    return facts._replace(documents=count_hub_documents(*hub_split))


class _FactsCache:
    """The facts about the files of one task root."""

    def __init__(self, root: Path) -> None:
        self._path = cache_path(root, "facts.json")
        self._stored = self._load()
        self._added: dict[str, _FileFacts] = {}
        self._stamps: dict[str, list[Any]] = {}
        """The present stamps of the files seen so far: many tasks include the same file."""

    def get(self, file: str) -> tuple[TaskFacts, _HubSplit | None] | None:
        """Return the stored facts about a file, or None if it or a file that it depends on changed."""
        try:
            stamps, facts, hub_split = self._stored[file]
            for stamp in stamps:
                path = stamp[0]
                present = self._stamps.get(path)
                if present is None:
                    present = self._stamps[path] = list(stamp_file(path))
                if stamp != present:
                    return None
            return TaskFacts(*facts), hub_split
        except (KeyError, TypeError, ValueError, IndexError):
            return None

    def read(self, file: str) -> tuple[TaskFacts, _HubSplit | None]:
        """Read the facts about a file, and store them if its stamps are enough to know that they still hold."""
        found, is_cacheable = _read_facts(Path(file))
        if is_cacheable:
            self._added[file] = found
        return found[1:]

    def save(self) -> None:
        """Write the cache if it changed."""
        if self._added:
            write_cache(self._path, {"format": _FORMAT, "files": {**self._stored, **self._added}})

    def _load(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes())
            return dict(content["files"]) if content["format"] == _FORMAT else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def _read_facts(path: Path) -> tuple[_FileFacts, bool]:
    """Return the facts about a file, and whether they hold as long as its stamps do."""
    from assay.tasks.data.dataset_sizes import count_rows, find_data_files, find_hub_split
    from assay.tasks.files.dialects import find_harness
    from assay.tasks.files.yaml_reader import read_task_file

    try:
        file = read_task_file(path)
    except AssayError:
        return ([], TaskFacts(read_headline(str(path))), None), False
    config = file.config
    modalities = [word for key, word in _MODALITIES.items() if config.get(key) is not None]
    kind = str(config.get("output_type", "" if config.get("class") else "generate_until"))
    hub_split = find_hub_split(config)
    data_files = find_data_files(config, path.parent)
    documents = count_rows(data_files)
    headline = read_headline(str(path))
    facts = TaskFacts(headline, kind, ", ".join(modalities) or ("text" if kind else ""), documents)
    stamps = [stamp_file(str(one)) for one in (path, *file.included, *data_files)]
    dialect = find_harness(path)
    depends_on_folder = bool(file.included) and dialect is not None and dialect.searches_working_folder
    depends_on_pattern = not _GLOB_CHARACTERS.isdisjoint(str(config.get("dataset_kwargs")))
    is_counted = documents is not None or not data_files
    return (stamps, facts, hub_split), is_counted and not depends_on_folder and not (
        data_files and depends_on_pattern
    )
