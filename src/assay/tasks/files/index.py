"""Which names exist, and where: task files found under the task roots.

Roots, in order: the tasks that ship with Assay, the task folders of `lm_eval` and `lmms_eval` where those packages are
present (found, not imported), `ASSAY_TASKS`, every `--include_path`. A later root wins over an earlier one, and the index
says so; `assay/NAME`, `lm_eval/NAME` and `lmms_eval/NAME` say which is meant. Only the keys that name things are looked
at here.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from assay.core.errors import AssayError, InvalidOption
from assay.tasks.files.index_cache import FileStamp, NamingCache, RootSnapshot
from assay.tasks.files.naming_keys import extract_naming_keys, list_yaml_files

if TYPE_CHECKING:  # the YAML reader is half the time of listing tasks, and needed only for what is wrong
    from assay.tasks.files.yaml_reader import TaskFile

__all__ = [
    "IndexEntry",
    "TaskIndex",
    "builtin_root",
    "entry_from_file",
    "find_harness_roots",
    "find_task_roots",
]

Kind = Literal["task", "group", "tag"]
_FOREIGN = ("lmms_eval", "lm_eval")
"""The later one wins: lmms_eval carries copies of lm_eval's text tasks."""


class IndexEntry(NamedTuple):
    """One name and what it stands for; a tuple, because thirteen thousand are made at every start."""

    name: str
    kind: Kind
    file: str = ""
    """The task file; empty for tags."""

    root: Path | None = None
    members: tuple[str, ...] = ()
    """The tasks of a tag, sorted; the direct members of a group, where they are named."""

    @property
    def path(self) -> Path | None:
        return Path(self.file) if self.file else None


@dataclass(slots=True)
class TaskIndex:
    """Every task, group and tag under some roots."""

    roots: tuple[Path, ...] = ()
    entries: dict[str, IndexEntry] = field(default_factory=dict)
    shadowed: list[tuple[str, Path, Path]] = field(default_factory=list)
    """Names defined twice: (name, the file that counts, the file that does not)."""

    broken: list[tuple[Path, AssayError]] = field(default_factory=list)
    """Files that could not be read; reported when somebody asks for what they might define."""

    _tagged: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _hidden: dict[Path, dict[str, IndexEntry]] = field(default_factory=dict, repr=False)
    """Root -> what it defines that a later root defines too."""

    @classmethod
    def build(cls, roots: Iterable[Path]) -> TaskIndex:
        """Read the naming keys of every `*.yaml` under the roots; unchanged files from memory."""
        index = cls(roots=tuple(roots))
        with _pause_gc():
            for root in index.roots:
                _RootReader(index, root).read()
            index._add_tags()
        return index

    def names(self, *kinds: Kind) -> list[str]:
        """Names of the given kinds (all when none is given), sorted."""
        return sorted(name for name, entry in self.entries.items() if not kinds or entry.kind in kinds)

    def add(self, entry: IndexEntry, tags: Iterable[str]) -> None:
        """Take an entry in; within a root the first file of a name counts, between roots the later one."""
        known = self.entries.get(entry.name)
        if known is not None and known.file and entry.file:
            if known.root == entry.root:
                self.shadowed.append((entry.name, Path(known.file), Path(entry.file)))
                return
            self.shadowed.append((entry.name, Path(entry.file), Path(known.file)))
            if known.root is not None:
                self._hidden.setdefault(known.root, {})[entry.name] = known
        self.entries[entry.name] = entry
        if entry.kind == "task":
            for tag in tags:
                self._tagged.setdefault(tag, set()).add(entry.name)

    @property
    def labels(self) -> dict[str, Path]:
        """What well-known roots are called: `assay`, `lm_eval`, `lmms_eval`."""
        known = {"assay": builtin_root()}
        for root in self.roots:
            if root.name == "tasks" and root.parent.name in _FOREIGN:
                known[root.parent.name] = root
        return {label: root for label, root in known.items() if root in self.roots}

    def find_label(self, file: Path) -> str:
        """What the well-known root is called in which a file lies; empty for other folders."""
        return next((label for label, root in self.labels.items() if file.is_relative_to(root)), "")

    def view_from(self, root: Path | None) -> TaskIndex:
        """The same index as seen from inside a root, whose own names come first there."""
        hidden = self._hidden.get(root) if root is not None else None
        if not hidden:
            return self
        return replace(self, entries={**self.entries, **hidden}, _hidden={})

    def find_alternative(self, entry: IndexEntry) -> str:
        """The other well-known root that has a task of this name, as `assay/NAME`; empty where there is none."""
        for label, root in self.labels.items():
            if root != entry.root and entry.name in self._hidden.get(root, {}):
                return f"{label}/{entry.name}"
        return ""

    def _add_tags(self) -> None:
        for tag, members in self._tagged.items():
            if tag not in self.entries:
                self.entries[tag] = IndexEntry(name=tag, kind="tag", members=tuple(sorted(members)))


class _RootReader:
    """Reads one root into an index."""

    def __init__(self, index: TaskIndex, root: Path) -> None:
        self._index = index
        self._root = root
        self._files: dict[str, Mapping[str, Any] | None] = {}
        self._templates: dict[str, tuple[int, int]] = {}

    def read(self) -> None:
        """From the snapshot where nothing changed since, else file by file."""
        files = list_yaml_files(self._root)
        snapshot = RootSnapshot(self._root, files)
        rows = snapshot.load()
        if rows is None:
            before = len(self._index.broken)
            rows = self._read_files(files)
            if len(self._index.broken) == before:  # what is wrong is said every time
                snapshot.save(rows, self._templates)
        for name, kind, file, members, tags in rows:
            self._index.add(IndexEntry(name, kind, file, self._root, tuple(members)), tags)

    def _read_files(self, files: Sequence[FileStamp]) -> list[list[Any]]:
        self._cache = NamingCache(self._root)
        rows: list[list[Any]] = []
        for path, size, changed_ns in files:
            try:
                config = self._merged(path, (size, changed_ns), ())
            except AssayError as error:
                self._index.broken.append((Path(path), error))
                continue
            entry = _entry(config, path, self._root)
            if entry is not None:
                rows.append([entry.name, entry.kind, entry.file, list(entry.members), _tags(config)])
        self._cache.save()
        return rows

    def _merged(self, path: str, stamp: tuple[int, int] | None, opened: tuple[str, ...]) -> Mapping[str, Any]:
        """The naming keys of a file after its includes, its own last."""
        own = self._own(path, stamp)
        include = own.get("include")
        if include is None:
            return own
        merged: dict[str, Any] = {}
        for name in include if isinstance(include, list) else [include]:
            if not isinstance(name, str):
                return _read_in_full(path)  # says what is wrong, with its place
            target = (
                name if os.path.isabs(name) else os.path.normpath(os.path.join(os.path.dirname(path), name))
            )
            known = target in self._files
            if target == path or target in opened or not (known or os.path.isfile(target)):
                return _read_in_full(path)  # says what is wrong, with its place
            merged.update(self._merged(target, None, (*opened, path)))
        return {**merged, **own}

    def _own(self, path: str, stamp: tuple[int, int] | None) -> Mapping[str, Any]:
        known = self._files.get(path)
        if known is not None:
            return known
        is_template = stamp is None
        if stamp is None:
            status = os.stat(path)
            stamp = self._templates[path] = (status.st_size, status.st_mtime_ns)
        config = self._cache.get(path, *stamp)
        if config is None:
            config = self._scan(path, is_template=is_template)
            self._cache.put(path, *stamp, config)
        self._files[path] = config
        return config

    def _scan(self, path: str, *, is_template: bool) -> dict[str, Any]:
        """A template may name nothing; a task file that seems to name nothing is read in full, to say why."""
        try:
            with open(path, encoding="utf-8") as file:
                names = extract_naming_keys(file.read())
        except (OSError, UnicodeDecodeError):
            names = None
        naming = {"task", "group", "class", "include"}
        if names is None or (not is_template and not names.config.keys() & naming):
            full = _read_in_full(path)
            return {
                key: _plain(full[key])
                for key in ("task", "group", "tag", "class")
                if full.get(key) is not None
            }
        return dict(names.config)


@contextmanager
def _pause_gc() -> Iterator[None]:
    """No search for garbage among tens of thousands of small things that all stay: a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read_in_full(path: str) -> Mapping[str, Any]:
    from assay.tasks.files.yaml_reader import read_task_file

    return read_task_file(Path(path)).config


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if key in ("task", "group")}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str) else repr(value)


def entry_from_file(file: TaskFile, root: Path | None = None) -> IndexEntry | None:
    """What a file defines: a group when `task` is a list, a task when it is a name, else nothing."""
    return _entry(file.config, str(file.path), root)


def _entry(config: Mapping[str, Any], file: str, root: Path | None) -> IndexEntry | None:
    task, group = config.get("task"), config.get("group")
    if isinstance(task, list) or (group is not None and task is None and "class" not in config):
        name = group if isinstance(group, str) else None
        members = tuple(_member_name(member) for member in task or ())
        return IndexEntry(name=name, kind="group", file=file, root=root, members=members) if name else None
    if isinstance(task, str) and task:
        return IndexEntry(name=task, kind="task", file=file, root=root)
    return None


def _member_name(member: Any) -> str:
    if isinstance(member, Mapping):
        return str(member.get("group") or member.get("task") or "?")
    return str(member)


def _tags(config: Mapping[str, Any]) -> list[str]:
    names: list[str] = []
    for key in ("tag", "group"):
        value = config.get(key)
        names += [name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)]
    return names


@cache
def builtin_root() -> Path:
    """The tasks that ship with Assay."""
    return Path(__file__).resolve().parents[2] / "builtin_tasks"


def find_harness_roots() -> list[Path]:
    """Task folders of the harnesses that are installed; their code is not imported."""
    roots = []
    for package in _FOREIGN:
        spec = PathFinder.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            if (Path(folder) / "tasks").is_dir():
                roots.append(Path(folder) / "tasks")
    return roots


def find_task_roots(include_path: Iterable[str] = ()) -> list[Path]:
    """The roots a run looks into.

    Raises:
        InvalidOption: A folder that was named is not there.
    """
    roots = [builtin_root(), *find_harness_roots()]
    named = [(path, "ASSAY_TASKS") for path in os.environ.get("ASSAY_TASKS", "").split(os.pathsep) if path]
    named += [(path, "--include_path") for path in include_path]
    for path, source in named:
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise InvalidOption(f"the task folder `{path}` is not there", where=source)
        inside = [folder / package / "tasks" for package in _FOREIGN if (folder / package / "tasks").is_dir()]
        roots += inside or [folder]  # an unpacked wheel or a checkout holds its tasks deeper
    return roots
