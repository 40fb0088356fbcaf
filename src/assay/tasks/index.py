"""Which names exist, and where: task files found under the task roots.

Roots, in order: the tasks that ship with Assay, `ASSAY_TASKS`, then every `--include_path`; a later root wins
over an earlier one, and the index says so. Only the keys that name things are looked at here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import AssayError, BadOption
from assay.tasks.yaml_reader import TaskFile, read_task_file

__all__ = ["Entry", "TaskIndex", "builtin_root", "default_roots"]

Kind = Literal["task", "group", "tag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name and what it stands for."""

    name: str
    kind: Kind
    path: Path | None = None
    root: Path | None = None
    members: tuple[str, ...] = ()
    """The tasks of a tag, sorted; the direct members of a group, where they are named."""


@dataclass(slots=True)
class TaskIndex:
    """Every task, group and tag under some roots."""

    roots: tuple[Path, ...] = ()
    entries: dict[str, Entry] = field(default_factory=dict)
    shadowed: list[tuple[str, Path, Path]] = field(default_factory=list)
    """Names defined twice: (name, the file that counts, the file that does not)."""

    broken: list[tuple[Path, AssayError]] = field(default_factory=list)
    """Files that could not be read; reported when somebody asks for what they might define."""

    @classmethod
    def build(cls, roots: Iterable[Path]) -> TaskIndex:
        """Read the naming keys of every `*.yaml` under the roots."""
        index = cls(roots=tuple(roots))
        for root in index.roots:
            for path in sorted(root.rglob("*.yaml"), key=lambda path: path.as_posix()):
                index._add_file(path, root)
        index._add_tags()
        return index

    def names(self, *kinds: Kind) -> list[str]:
        """Names of the given kinds (all when none is given), sorted."""
        return sorted(name for name, entry in self.entries.items() if not kinds or entry.kind in kinds)

    def _add_file(self, path: Path, root: Path) -> None:
        try:
            file = read_task_file(path)
        except AssayError as error:
            self.broken.append((path, error))
            return
        entry = entry_of(file, root)
        if entry is None:
            return
        known = self.entries.get(entry.name)
        if known is not None and known.path is not None:
            if known.root == root:
                self.shadowed.append((entry.name, known.path, path))
                return
            self.shadowed.append((entry.name, path, known.path))
        self.entries[entry.name] = entry
        for tag in _tags(file.config) if entry.kind == "task" else ():
            self._tagged.setdefault(tag, set()).add(entry.name)

    def _add_tags(self) -> None:
        for tag, members in self._tagged.items():
            if tag not in self.entries:
                self.entries[tag] = Entry(name=tag, kind="tag", members=tuple(sorted(members)))

    _tagged: dict[str, set[str]] = field(default_factory=dict, repr=False)


def entry_of(file: TaskFile, root: Path | None = None) -> Entry | None:
    """What a file defines: a group when `task` is a list, a task when it is a name, else nothing."""
    config = file.config
    task, group = config.get("task"), config.get("group")
    if isinstance(task, list) or (group is not None and task is None and "class" not in config):
        name = group if isinstance(group, str) else None
        members = tuple(_member_name(member) for member in task or ())
        return Entry(name=name, kind="group", path=file.path, root=root, members=members) if name else None
    if isinstance(task, str) and task:
        return Entry(name=task, kind="task", path=file.path, root=root)
    return None


def _member_name(member: Any) -> str:
    if isinstance(member, Mapping):
        return str(member.get("group") or member.get("task") or "?")
    return str(member)


def _tags(config: Mapping[str, Any]) -> list[str]:
    names: list[str] = []
    for key in ("tag", "group"):
        value = config.get(key)
        names += [value] if isinstance(value, str) else [str(one) for one in value or ()]
    return names


def builtin_root() -> Path:
    """The tasks that ship with Assay."""
    return Path(__file__).resolve().parent.parent / "builtin_tasks"


def default_roots(include_path: Iterable[str] = ()) -> list[Path]:
    """The roots a run looks into, built-in ones first.

    Raises:
        BadOption: A folder that was named is not there.
    """
    roots = [builtin_root()]
    named = [(path, "ASSAY_TASKS") for path in os.environ.get("ASSAY_TASKS", "").split(os.pathsep) if path]
    named += [(path, "--include_path") for path in include_path]
    for path, source in named:
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise BadOption(f"the task folder `{path}` is not there", where=source)
        roots.append(folder)
    return roots
