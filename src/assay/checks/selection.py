"""Select the tasks and groups to check. Unlike a run's selection, an error is recorded and the rest is still selected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from assay.checks.findings import Findings
from assay.core.errors import AssayError, TaskError, UnknownName
from assay.tasks.files.index import IndexEntry, TaskIndex, entry_from_file
from assay.tasks.files.selection import describe_folder_of_same_name
from assay.tasks.files.yaml_reader import read_task_file

__all__ = ["CheckSelection", "select_subjects"]


@dataclass(slots=True)
class CheckSelection:
    """The tasks and groups to check."""

    index: TaskIndex
    """Every known name, including those defined in selected folders."""

    entries: dict[str, IndexEntry] = field(default_factory=dict)
    others: dict[str, IndexEntry] = field(default_factory=dict)
    """Tasks whose name another selected file has, too, by name and file."""

    rejected: dict[str, Findings] = field(default_factory=dict)
    """Words that cannot be checked (unknown names, unreadable files), with their findings."""

    def add(self, entry: IndexEntry) -> None:
        """Add a task or a group; for a tag, add its tasks."""
        if entry.kind == "tag":
            for name in entry.members:
                self.entries.setdefault(name, self.index.entries[name])
            return
        known = self.entries.setdefault(entry.name, entry)
        if entry.kind == "task" and known.file != entry.file:
            self.others[f"{entry.name} ({entry.file})"] = entry

    def reject(self, word: str, error: AssayError, kind: str = "name") -> None:
        """Record that a word cannot be checked."""
        self.rejected.setdefault(word, Findings()).add_exception(kind, error)


def select_subjects(words: Iterable[str], index: TaskIndex) -> CheckSelection:
    """Select by name, group, tag, glob, YAML file or folder."""
    selection = CheckSelection(index)
    for word in words:
        _select_word(word, selection)
    return selection


def _select_word(word: str, selection: CheckSelection) -> None:
    entries: Mapping[str, IndexEntry] = selection.index.entries
    if word in entries:
        if note := describe_folder_of_same_name(word, entries[word]):
            selection.rejected.setdefault(word, Findings()).note("name", note)
        selection.add(entries[word])
        return
    path = Path(word)
    label, _, name = word.partition("/")
    if label in selection.index.labels and not path.exists():
        _select_from_root(word, name, selection.index.labels[label], selection)
        return
    if path.suffix in (".yaml", ".yml") and not _is_glob(word):
        _select_file(word, path, selection)
        return
    if path.is_dir():
        _select_folder(path, selection)
        return
    matches = [name for name in selection.index.names() if fnmatchcase(name, word)] if _is_glob(word) else []
    for name in matches:
        selection.add(entries[name])
    broken = [(file, error) for file, error in selection.index.broken if fnmatchcase(file.stem, word)]
    for file, error in broken:
        selection.reject(str(file), error, "yaml")
    if not matches and not broken:
        selection.reject(word, UnknownName.of("task", word, selection.index.names()))


def _select_from_root(word: str, name: str, root: Path, selection: CheckSelection) -> None:
    """Select `lm_eval/NAME`: the tasks and groups of that root that match."""
    inside = selection.index.view_from(root)
    own = [key for key, entry in inside.entries.items() if entry.root == root and fnmatchcase(key, name)]
    for key in own:
        selection.add(inside.entries[key])
    if not own:
        known = [f"{word.partition('/')[0]}/{key}" for key, one in inside.entries.items() if one.root == root]
        selection.reject(word, UnknownName.of("task", word, known))


def _is_glob(word: str) -> bool:
    return any(character in word for character in "*?[")


def _select_file(word: str, path: Path, selection: CheckSelection) -> None:
    try:
        entry = entry_from_file(read_task_file(path))
    except AssayError as error:
        selection.reject(word, error, "yaml")
        return
    if entry is None:
        selection.reject(
            word,
            TaskError("the file defines neither a task nor a group", where=word, hint="add `task: my_task`"),
        )
        return
    if entry.kind == "group":
        selection.index = selection.index.with_neighbours(path)
    selection.add(entry)


def _select_folder(folder: Path, selection: CheckSelection) -> None:
    """Select everything a folder defines; its groups look up members in the folder first."""
    inside = TaskIndex.build([folder])
    selection.index = TaskIndex(
        roots=(*selection.index.roots, folder),
        entries={**selection.index.entries, **inside.entries},
        shadowed=[*selection.index.shadowed, *inside.shadowed],
        broken=selection.index.broken,
    )
    for file, error in inside.broken:
        selection.reject(str(file), error, "yaml")
    if not inside.entries and not inside.broken:
        selection.reject(str(folder), UnknownName(f"no task file in folder `{folder}`"))
    for entry in inside.entries.values():
        selection.add(entry)
    for _, _, hidden in inside.shadowed:
        _select_file(str(hidden), hidden, selection)
