"""Groups: members that exist, and no circles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assay.checks.findings import Findings
from assay.core.errors import AssayError, UnknownName
from assay.tasks.index import Entry, TaskIndex
from assay.tasks.load import TASK_KEYS
from assay.tasks.yaml_reader import TaskFile, read_task_file

__all__ = ["GroupNode", "GroupWalk", "Job"]

_GROUP_KEYS = frozenset(
    ("group", "group_alias", "task", "aggregate_metric_list", "metadata", "tag", "include")
)
_HARMLESS = frozenset(("task", "task_alias", "group_alias"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A task to check: as its file has it, or as a group wants it."""

    name: str
    source: Path | TaskFile
    overrides: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None
    """The name of the task where `name` also says which group wants it."""

    @property
    def path(self) -> str:
        return str(self.source.path if isinstance(self.source, TaskFile) else self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNode:
    """A group of a file, or one written inside it, with every task below."""

    name: str
    file: TaskFile
    config: Mapping[str, Any]
    place: str
    leaves: tuple[Job, ...]


class GroupWalk:
    """Walks one group down to its tasks, noting what is wrong on the way."""

    def __init__(self, index: TaskIndex, findings: Findings) -> None:
        self.nodes: list[GroupNode] = []
        self.groups: dict[str, Entry] = {}
        """Groups inside that have a file of their own, and so a report of their own."""

        self._index = index
        self._own = findings
        self._open: list[str] = []
        self._inside = 0
        """How many groups with a file of their own are open: they say themselves what is wrong with them."""

    def walk(self, entry: Entry) -> list[Job]:
        """The tasks of a group."""
        assert entry.path is not None
        try:
            file = read_task_file(entry.path)
        except AssayError as error:
            self._findings.raised("yaml", error)
            return []
        return self._group(entry.name, file.config, file, {}, "task")

    @property
    def _findings(self) -> Findings:
        return Findings() if self._inside else self._own

    def _group(
        self, name: str, config: Mapping[str, Any], file: TaskFile, overrides: Mapping[str, Any], place: str
    ) -> list[Job]:
        where = f"{file.places.get(place, file.path)}, {place}"
        if name in self._open:
            chain = " > ".join((*self._open, name))
            self._own.error("cycle", f"the group `{name}` contains itself: {chain}", where)
            return []
        self._open.append(name)
        passed_on = {key: value for key, value in config.items() if key not in _GROUP_KEYS}
        for key in [key for key in passed_on if key not in TASK_KEYS]:
            self._unknown_key(str(key), file)
            del passed_on[key]
        members = config.get("task")
        listed = [members] if isinstance(members, (str, Mapping)) else members or []
        if not listed:
            self._findings.warning("group", f"the group `{name}` has no members", where)
        leaves: list[Job] = []
        for at, member in enumerate(listed if isinstance(listed, list) else []):
            leaves += self._member(member, name, file, {**passed_on, **overrides}, f"{place}[{at}]")
        self._open.pop()
        if not self._inside:
            node = GroupNode(name=name, file=file, config=config, place=place, leaves=tuple(leaves))
            self.nodes.append(node)
        return leaves

    def _unknown_key(self, key: str, file: TaskFile) -> None:
        close = get_close_matches(str(key), sorted(_GROUP_KEYS | TASK_KEYS), n=1)
        where = f"{file.places.get(str(key), file.path)}, {key}"
        guess = f"did you mean `{close[0]}`?" if close else ""
        self._findings.error("key", f"neither a group nor a task has a key `{key}`", where, guess)

    def _member(
        self, member: Any, parent: str, file: TaskFile, overrides: Mapping[str, Any], place: str
    ) -> list[Job]:
        if isinstance(member, str):
            return self._named(member, parent, file, overrides, place, None)
        if not isinstance(member, Mapping) or not (member.get("group") or member.get("task")):
            where = f"{file.places.get(place, file.path)}, {place}"
            what = f"a member of the group `{parent}` must be a name, or have `task` or `group`"
            self._findings.error("group", what, where)
            return []
        if "group" not in member:
            return self._named(str(member["task"]), parent, file, {**overrides, **member}, place, member)
        name = str(member["group"])
        entry = self._index.entries.get(name)
        if entry is None:
            return self._group(f"{parent}::{name}", member, file, overrides, f"{place}.task")
        inner = {key: value for key, value in member.items() if key not in ("group", *_GROUP_KEYS)}
        return self._registered(entry, parent, {**overrides, **inner})

    def _named(
        self,
        name: str,
        parent: str,
        file: TaskFile,
        overrides: Mapping[str, Any],
        place: str,
        inline: Mapping[str, Any] | None,
    ) -> list[Job]:
        entry = self._index.entries.get(name)
        kept = {key: value for key, value in overrides.items() if key not in _HARMLESS}
        if entry is not None:
            return self._registered(entry, parent, kept)
        if inline is None or len(inline) < 3:
            where = f"{file.places.get(place, file.path)}, {place}"
            error = UnknownName.of("task", name, self._index.names(), where=where)
            self._findings.raised("member", error)
            return []
        if "include" in inline:
            where = f"{file.places.get('task', file.path)}, task"
            self._findings.error("group", "tasks written inside a group cannot `include` a file", where)
            return []
        config = {**overrides, "task": f"{parent}::{name}"}
        return [Job(name=f"{parent}::{name}", source=TaskFile(file.path, config, file.places))]

    def _registered(self, entry: Entry, parent: str, overrides: Mapping[str, Any]) -> list[Job]:
        if entry.kind == "tag":
            return [
                job
                for name in entry.members
                for job in self._registered(self._index.entries[name], parent, overrides)
            ]
        assert entry.path is not None
        if entry.kind == "task":
            if not overrides:
                return [Job(name=entry.name, source=entry.path)]
            name = f"{parent} > {entry.name}"
            return [Job(name=name, source=entry.path, overrides=overrides, task=entry.name)]
        self.groups[entry.name] = entry
        self._inside += 1
        try:
            file = read_task_file(entry.path)
            return self._group(entry.name, file.config, file, overrides, "task")
        except AssayError:
            return []
        finally:
            self._inside -= 1
