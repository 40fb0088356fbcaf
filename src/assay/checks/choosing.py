"""From what was typed to what is checked: like `select`, but what is wrong is noted and the rest goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from assay.checks.findings import Findings
from assay.core.errors import AssayError, BadTask, UnknownName
from assay.tasks.index import Entry, TaskIndex, entry_of
from assay.tasks.yaml_reader import read_task_file

__all__ = ["Chosen", "choose"]


@dataclass(slots=True)
class Chosen:
    """Tasks and groups to check."""

    index: TaskIndex
    """Everything that has a name here, what was found in named folders included."""

    entries: dict[str, Entry] = field(default_factory=dict)
    words: dict[str, Findings] = field(default_factory=dict)
    """What was asked for and cannot be checked: unknown names, unreadable files."""

    def add(self, entry: Entry) -> None:
        """Take in a task or a group; of a tag its tasks."""
        if entry.kind == "tag":
            for name in entry.members:
                self.entries.setdefault(name, self.index.entries[name])
        else:
            self.entries.setdefault(entry.name, entry)

    def refuse(self, word: str, error: AssayError, kind: str = "name") -> None:
        """Note that something asked for cannot be checked."""
        self.words.setdefault(word, Findings()).raised(kind, error)


def choose(words: Iterable[str], index: TaskIndex) -> Chosen:
    """Names, groups, tags, globs, YAML files and folders."""
    chosen = Chosen(index)
    for word in words:
        _choose_one(word, chosen)
    return chosen


def _choose_one(word: str, chosen: Chosen) -> None:
    entries: Mapping[str, Entry] = chosen.index.entries
    if word in entries:
        chosen.add(entries[word])
        return
    path = Path(word)
    if path.suffix in (".yaml", ".yml") and not _is_glob(word):
        _choose_file(word, path, chosen)
        return
    if path.is_dir():
        _choose_folder(path, chosen)
        return
    matches = [name for name in chosen.index.names() if fnmatchcase(name, word)] if _is_glob(word) else []
    for name in matches:
        chosen.add(entries[name])
    broken = [(file, error) for file, error in chosen.index.broken if fnmatchcase(file.stem, word)]
    for file, error in broken:
        chosen.refuse(str(file), error, "yaml")
    if not matches and not broken:
        chosen.refuse(word, UnknownName.of("task", word, chosen.index.names()))


def _is_glob(word: str) -> bool:
    return any(character in word for character in "*?[")


def _choose_file(word: str, path: Path, chosen: Chosen) -> None:
    try:
        entry = entry_of(read_task_file(path))
    except AssayError as error:
        chosen.refuse(word, error, "yaml")
        return
    if entry is None:
        chosen.refuse(
            word,
            BadTask("the file names neither a task nor a group", where=word, hint="add `task: my_task`"),
        )
        return
    chosen.add(entry)


def _choose_folder(folder: Path, chosen: Chosen) -> None:
    """Everything a folder defines; its groups find their members there first."""
    inside = TaskIndex.build([folder])
    chosen.index = TaskIndex(
        roots=(*chosen.index.roots, folder),
        entries={**chosen.index.entries, **inside.entries},
        shadowed=[*chosen.index.shadowed, *inside.shadowed],
        broken=chosen.index.broken,
    )
    for file, error in inside.broken:
        chosen.refuse(str(file), error, "yaml")
    if not inside.entries and not inside.broken:
        chosen.refuse(str(folder), UnknownName(f"the folder `{folder}` holds no task file"))
    for entry in inside.entries.values():
        chosen.add(entry)
