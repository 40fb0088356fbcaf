"""The index of tasks, groups and tags by name.

The task roots are, in order: the built-in tasks, the task folders of `lm_eval` and `lmms_eval` if these packages are
installed (found without importing them), `ASSAY_TASKS`, and every `--include_path`. A later root takes precedence over
an earlier one; `assay/NAME`, `lm_eval/NAME` and `lmms_eval/NAME` select a root. The index reads only the naming keys of
task files.
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
from assay.tasks.files.file_stamps import FileStamp, list_yaml_files
from assay.tasks.files.index_cache import NamingCache, RootSnapshot

if TYPE_CHECKING:  # importing the YAML reader takes half the time of listing tasks
    from assay.tasks.files.yaml_reader import TaskFile

__all__ = [
    "IndexEntry",
    "TaskIndex",
    "builtin_root",
    "entry_from_file",
    "find_harness_roots",
    "find_task_roots",
    "pause_gc",
]

Kind = Literal["task", "group", "tag"]
_HARNESSES = ("lmms_eval", "lm_eval")
"""The later one takes precedence: lmms_eval contains copies of lm_eval's text tasks."""


class IndexEntry(NamedTuple):
    """A task, group or tag. A tuple, because every start creates thirteen thousand of them."""

    name: str
    kind: Kind
    file: str = ""
    """The task file; empty for tags."""

    root: Path | None = None
    members: tuple[str, ...] = ()
    """The tasks of a tag, sorted, or the named direct members of a group."""

    @property
    def path(self) -> Path | None:
        return Path(self.file) if self.file else None


@dataclass(slots=True)
class TaskIndex:
    """Every task, group and tag under the task roots."""

    roots: tuple[Path, ...] = ()
    entries: dict[str, IndexEntry] = field(default_factory=dict)
    shadowed: list[tuple[str, Path, Path]] = field(default_factory=list)
    """Names defined twice: (name, the file that is used, the file that is not)."""

    broken: list[tuple[Path, AssayError]] = field(default_factory=list)
    """Files that could not be read. The error is raised when a task of that name is selected."""

    _tag_members: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _hidden: dict[Path, dict[str, IndexEntry]] = field(default_factory=dict, repr=False)
    """By root, the entries that a later root replaces."""

    @classmethod
    def build(cls, roots: Iterable[Path]) -> TaskIndex:
        """Read the naming keys of every `*.yaml` file under the roots. Unchanged files come from the cache."""
        index = cls(roots=tuple(roots))
        with pause_gc():
            for root in index.roots:
                _RootReader(index, root).read()
            index._add_tags()
        return index

    def names(self, *kinds: Kind) -> list[str]:
        """Return the names of the given kinds (default: all), sorted."""
        return sorted(name for name, entry in self.entries.items() if not kinds or entry.kind in kinds)

    def add(self, entry: IndexEntry, tags: Iterable[str]) -> None:
        """Add an entry. Within a root the first file takes precedence, between roots the later root."""
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
                self._tag_members.setdefault(tag, set()).add(entry.name)

    @property
    def labels(self) -> dict[str, Path]:
        """The well-known roots by label: `assay`, `lm_eval`, `lmms_eval`."""
        known = {"assay": builtin_root()}
        for root in self.roots:
            if root.name == "tasks" and root.parent.name in _HARNESSES:
                known[root.parent.name] = root
        return {label: root for label, root in known.items() if root in self.roots}

    def find_label(self, file: Path) -> str:
        """Return the label of the well-known root that contains a file, or an empty string."""
        place = str(file)
        return next((label for label, root in self.labels.items() if place.startswith(f"{root}{os.sep}")), "")

    def view_from(self, root: Path | None) -> TaskIndex:
        """Return the index in which the names of one root take precedence."""
        hidden = self._hidden.get(root) if root is not None else None
        if not hidden:
            return self
        return replace(self, entries={**self.entries, **hidden}, _hidden={})

    def with_neighbours(self, file: Path) -> TaskIndex:
        """Return the index in which the task files beside a file, and one folder below, take precedence."""
        from assay.tasks.files.yaml_reader import read_task_file

        beside = TaskIndex()
        for pattern in ("*.yaml", "*.yml", "*/*.yaml", "*/*.yml"):
            for path in sorted(file.parent.glob(pattern)):
                try:
                    config = read_task_file(path).config
                except AssayError:  # a template, or a file that has nothing to do with the group
                    continue
                entry = _entry(config, str(path), None)
                if entry is not None and entry.name not in beside.entries:
                    beside.add(entry, _tags(config))
        beside._add_tags()
        return replace(self, entries={**self.entries, **beside.entries})

    def find_alternative(self, entry: IndexEntry) -> str:
        """Return the entry of the same name in another well-known root as `assay/NAME`, or an empty string."""
        for label, root in self.labels.items():
            if root != entry.root and entry.name in self._hidden.get(root, {}):
                return f"{label}/{entry.name}"
        return ""

    def _add_tags(self) -> None:
        for tag, members in self._tag_members.items():
            known = self.entries.get(tag)
            # a group file without members, as `evalita-mp_ner_tasks_adg` of lm_eval 0.4.8, leaves the name to the tag
            if known is None or (known.kind == "group" and not known.members):
                self.entries[tag] = IndexEntry(name=tag, kind="tag", members=tuple(sorted(members)))


class _RootReader:
    """Reads one task root into an index."""

    def __init__(self, index: TaskIndex, root: Path) -> None:
        self._index = index
        self._root = root
        self._files: dict[str, Mapping[str, Any] | None] = {}
        self._templates: dict[str, tuple[int, int]] = {}

    def read(self) -> None:
        """Read the snapshot if no file changed, otherwise read file by file."""
        files = list_yaml_files(self._root)
        snapshot = RootSnapshot(self._root, files)
        rows = snapshot.load()
        if rows is None:
            before = len(self._index.broken)
            rows = self._read_files(files)
            if len(self._index.broken) == before:  # broken files are reported every time
                snapshot.save(rows, self._templates)
        for name, kind, file, members, tags in rows:
            self._index.add(IndexEntry(name, kind, file, self._root, tuple(members)), tags)

    def _read_files(self, files: Sequence[FileStamp]) -> list[list[Any]]:
        self._cache = NamingCache(self._root)
        rows: list[list[Any]] = []
        for path, size, changed_ns in files:
            try:
                config = self._read_merged(path, (size, changed_ns), ())
            except AssayError as error:
                self._index.broken.append((Path(path), error))
                continue
            entry = _entry(config, path, self._root)
            if entry is not None:
                rows.append([entry.name, entry.kind, entry.file, list(entry.members), _tags(config)])
        self._cache.save()
        return rows

    def _read_merged(
        self, path: str, stamp: tuple[int, int] | None, opened: tuple[str, ...]
    ) -> Mapping[str, Any]:
        """Read the naming keys of a file merged with its includes."""
        own = self._read_own(path, stamp)
        include = own.get("include")
        if include is None:
            return own
        merged: dict[str, Any] = {}
        for name in include if isinstance(include, list) else [include]:
            if not isinstance(name, str):
                return _read_in_full(path)  # raises an error with the line
            target = (
                name if os.path.isabs(name) else os.path.normpath(os.path.join(os.path.dirname(path), name))
            )
            known = target in self._files
            if target == path or target in opened or not (known or os.path.isfile(target)):
                return _read_in_full(path)  # raises an error with the line
            merged.update(self._read_merged(target, None, (*opened, path)))
        return {**merged, **own}

    def _read_own(self, path: str, stamp: tuple[int, int] | None) -> Mapping[str, Any]:
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
        """Extract naming keys. A task file without any is read in full, which raises an error or finds them."""
        from assay.tasks.files.naming_keys import extract_naming_keys  # not needed if all files are cached

        try:
            with open(path, encoding="utf-8-sig") as file:
                names = extract_naming_keys(file.read())
        except (OSError, UnicodeDecodeError):
            names = None
        naming = {"task", "group", "class", "include"}
        if names is None or (not is_template and not names.keys() & naming):
            full = _read_in_full(path)
            return {
                key: _to_plain(full[key])
                for key in ("task", "group", "tag", "class", "aggregate_metric_list")
                if full.get(key) is not None
            }
        return names


@contextmanager
def pause_gc() -> Iterator[None]:
    """Disable garbage collection: tens of thousands of small objects stay alive, and scanning them takes a quarter
    of the time."""
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


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items() if key in ("task", "group")}
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    return value if isinstance(value, str) else repr(value)


def entry_from_file(file: TaskFile, root: Path | None = None) -> IndexEntry | None:
    """Return the entry that a file defines: a group if `task` is a list, a task if it is a name, otherwise None.

    `task: NAME` beside `group` and `aggregate_metric_list` is a group with one member: in a task, `group` is a tag.
    """
    return _entry(file.config, str(file.path), root)


def _entry(config: Mapping[str, Any], file: str, root: Path | None) -> IndexEntry | None:
    task, group = config.get("task"), config.get("group")
    if isinstance(task, str) and isinstance(group, str) and "aggregate_metric_list" in config:
        task = [task]
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
    """Return the folder of the built-in tasks."""
    return Path(__file__).resolve().parents[2] / "builtin_tasks"


def find_harness_roots() -> list[Path]:
    """Return the task folders of the installed harnesses without importing them."""
    roots = []
    for package in _HARNESSES:
        spec = PathFinder.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            if (Path(folder) / "tasks").is_dir():
                roots.append(Path(folder) / "tasks")
    return roots


def find_task_roots(include_path: Iterable[str] = ()) -> list[Path]:
    """Return the task roots of a run. Python files of `--include_path` define models and are skipped.

    Raises:
        InvalidOption: A folder does not exist.
    """
    roots = [builtin_root(), *find_harness_roots()]
    named = [(path, "ASSAY_TASKS") for path in os.environ.get("ASSAY_TASKS", "").split(os.pathsep) if path]
    named += [(path, "--include_path") for path in include_path if not path.endswith(".py")]  # files: models
    for path, source in named:
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise InvalidOption(f"task folder not found: `{path}`", where=source)
        inside = [
            folder / package / "tasks" for package in _HARNESSES if (folder / package / "tasks").is_dir()
        ]
        if folder.name in _HARNESSES and (folder / "tasks").is_dir():
            inside = [folder / "tasks"]  # the package folder itself
        roots += inside or [folder]  # in an unpacked wheel or a checkout
    return roots
