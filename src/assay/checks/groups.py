"""Check groups: their members exist, they contain no cycle, and their aggregate metrics are reported by a member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assay.checks.findings import Findings
from assay.core.errors import AssayError, UnknownName
from assay.core.records.specs import GroupMetric
from assay.stats.aggregations import AGGREGATIONS
from assay.tasks.files.dialects import detect_dialect
from assay.tasks.files.index import IndexEntry, TaskIndex
from assay.tasks.files.registered_tasks import find_registered_task, find_registry_folder
from assay.tasks.files.selection import is_prompt_pattern, is_task_definition, list_prompt_tasks
from assay.tasks.files.task_loader import TASK_KEYS, parse_group_metrics
from assay.tasks.files.yaml_reader import TaskFile, merge_includes, read_task_file

__all__ = ["CheckJob", "GroupNode", "GroupWalker", "ReportedMetrics", "check_group_metrics"]

_GROUP_KEYS = frozenset(
    ("group", "group_alias", "task", "aggregate_metric_list", "metadata", "tag", "include")
)
_DISPLAY_KEYS = frozenset(("task", "task_alias", "group_alias"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJob:
    """A task to check, with the overrides of the group that contains it."""

    name: str
    source: Path | TaskFile
    overrides: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None
    """The name of the task if `name` also contains the group."""

    @property
    def path(self) -> str:
        return str(self.source.path if isinstance(self.source, TaskFile) else self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNode:
    """A group of a file, or an inline group, with all tasks below it."""

    name: str
    file: TaskFile
    config: Mapping[str, Any]
    place: str
    leaves: tuple[CheckJob, ...]


class GroupWalker:
    """Walks one group down to its tasks and records findings."""

    def __init__(self, index: TaskIndex, findings: Findings) -> None:
        self.nodes: list[GroupNode] = []
        self.groups: dict[str, IndexEntry] = {}
        """Nested groups with their own file, which are checked separately."""

        self._index = index
        self._own_findings = findings
        self._open_groups: list[str] = []
        self._nested_depth = 0
        """How many groups with their own file are open; their findings belong to their own report."""

    def walk(self, entry: IndexEntry) -> list[CheckJob]:
        """Return the tasks of a group."""
        assert entry.path is not None
        try:
            file = read_task_file(entry.path)
        except AssayError as error:
            self._findings.add_exception("yaml", error)
            return []
        return self._walk_group(entry.name, file.config, file, {}, "task")

    @property
    def _findings(self) -> Findings:
        return Findings() if self._nested_depth else self._own_findings

    def _walk_group(
        self, name: str, config: Mapping[str, Any], file: TaskFile, overrides: Mapping[str, Any], place: str
    ) -> list[CheckJob]:
        where = f"{file.places.get(place, file.path)}, {place}"
        if name in self._open_groups:
            chain = " > ".join((*self._open_groups, name))
            self._own_findings.error("cycle", f"the group `{name}` contains itself: {chain}", where)
            return []
        self._open_groups.append(name)
        inherited = {key: value for key, value in config.items() if key not in _GROUP_KEYS}
        for key in [key for key in inherited if key not in TASK_KEYS]:
            self._report_unknown_key(str(key), file)
            del inherited[key]
        members = config.get("task")
        listed = [members] if isinstance(members, (str, Mapping)) else members or []
        if not listed:
            self._findings.warning("group", f"the group `{name}` has no members", where)
        leaves: list[CheckJob] = []
        for index, member in enumerate(listed if isinstance(listed, list) else []):
            leaves += self._walk_member(member, name, file, {**inherited, **overrides}, f"{place}[{index}]")
        self._open_groups.pop()
        if not self._nested_depth:
            node = GroupNode(name=name, file=file, config=config, place=place, leaves=tuple(leaves))
            self.nodes.append(node)
        return leaves

    def _report_unknown_key(self, key: str, file: TaskFile) -> None:
        close = get_close_matches(str(key), sorted(_GROUP_KEYS | TASK_KEYS), n=1)
        where = f"{file.places.get(str(key), file.path)}, {key}"
        guess = f"did you mean `{close[0]}`?" if close else ""
        self._findings.error("key", f"unknown key `{key}` in a group", where, guess)

    def _walk_member(
        self, member: Any, parent: str, file: TaskFile, overrides: Mapping[str, Any], place: str
    ) -> list[CheckJob]:
        if isinstance(member, str):
            return self._walk_named_member(member, parent, file, overrides, place, None)
        if isinstance(member, Mapping) and is_prompt_pattern(member.get("use_prompt")):
            return self._walk_prompts(member, file, overrides)
        if not isinstance(member, Mapping) or not (member.get("group") or member.get("task")):
            where = f"{file.places.get(place, file.path)}, {place}"
            what = f"a member of the group `{parent}` must be a name or a mapping with `task` or `group`"
            self._findings.error("group", what, where)
            return []
        dialect = detect_dialect(file.path, file.config)
        if "group" not in member:
            if "include" in member and str(member["task"]) in self._index.entries:
                try:
                    member = merge_includes(TaskFile(file.path, member, file.places)).config
                except AssayError as error:
                    self._findings.add_exception("yaml", error)
                    return []
            both = {**member, **overrides} if dialect.prefers_group_keys else {**overrides, **member}
            return self._walk_named_member(str(member["task"]), parent, file, both, place, member)
        name = str(member["group"])
        entry = self._index.entries.get(name)
        if entry is None:
            outer = {} if dialect.separates_inline_groups else overrides
            return self._walk_group(f"{parent}::{name}", member, file, outer, f"{place}.task")
        inner = {key: value for key, value in member.items() if key not in ("group", *_GROUP_KEYS)}
        return self._walk_entry(entry, parent, {**overrides, **inner})

    def _walk_prompts(
        self, member: Mapping[str, Any], file: TaskFile, overrides: Mapping[str, Any]
    ) -> list[CheckJob]:
        try:
            tasks = list_prompt_tasks(member, file, overrides)
        except AssayError as error:
            self._findings.add_exception("template", error)
            return []
        return [CheckJob(name=str(task.config["task"]), source=task) for task in tasks]

    def _walk_named_member(
        self,
        name: str,
        parent: str,
        file: TaskFile,
        overrides: Mapping[str, Any],
        place: str,
        inline: Mapping[str, Any] | None,
    ) -> list[CheckJob]:
        entry = self._index.entries.get(name)
        effective = {key: value for key, value in overrides.items() if key not in _DISPLAY_KEYS}
        if entry is not None:
            return self._walk_entry(entry, parent, effective)
        where = f"{file.places.get(place, file.path)}, {place}"
        if inline is None and (registry := find_registry_folder(file.path)) is not None:
            registered = find_registered_task(name, [registry])
            if registered is None:
                what = f"the group `{parent}` is evaluated without `{name}`, which no file defines"
                self._findings.warning("member", what, where)
                return []
            return [CheckJob(name=name, source=registered, overrides=effective)]
        if not is_task_definition(inline or {}, overrides):
            error = UnknownName.of("task", name, self._index.names(), where=where)
            self._findings.add_exception("member", error)
            return []
        config = {**overrides, "task": f"{parent}::{name}"}
        try:
            merged = merge_includes(TaskFile(file.path, config, file.places))
        except AssayError as problem:
            self._findings.add_exception("yaml", problem)
            return []
        return [CheckJob(name=f"{parent}::{name}", source=merged)]

    def _walk_entry(self, entry: IndexEntry, parent: str, overrides: Mapping[str, Any]) -> list[CheckJob]:
        if entry.kind == "tag":
            return [
                job
                for name in entry.members
                for job in self._walk_entry(self._index.entries[name], parent, overrides)
            ]
        assert entry.path is not None
        if entry.kind == "task":
            if not overrides:
                return [CheckJob(name=entry.name, source=entry.path)]
            name = f"{parent} > {entry.name}"
            return [CheckJob(name=name, source=entry.path, overrides=overrides, task=entry.name)]
        self.groups[entry.name] = entry
        self._nested_depth += 1
        try:
            file = read_task_file(entry.path)
            return self._walk_group(entry.name, file.config, file, overrides, "task")
        except AssayError:
            return []
        finally:
            self._nested_depth -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMetrics:
    """The metrics and pipelines a task reports, for the groups that contain it."""

    metrics: frozenset[str]
    pipelines: frozenset[str]
    output_type: str
    may_report_others: bool
    """Whether task code may report metrics that the task file does not name."""


def check_group_metrics(
    nodes: Sequence[GroupNode], reports: Mapping[str, ReportedMetrics | None], findings: Findings
) -> None:
    """Check every `aggregate_metric_list` of a group against the metrics its tasks report."""
    for node in nodes:
        key = "aggregate_metric_list" if node.place == "task" else node.place
        where = f"{node.file.places.get(key, node.file.path)}, {key}"
        given = node.config.get("aggregate_metric_list")
        try:
            metrics = parse_group_metrics(given, where=where)
        except AssayError as error:
            findings.add_exception("key", error)
            continue
        _check_weights(given, where, findings)
        members = [reports.get(job.name) for job in node.leaves]
        reported = [one for one in members if one is not None]
        for metric in metrics:
            if isinstance(metric.aggregation, str) and metric.aggregation not in AGGREGATIONS:
                names = AGGREGATIONS.names()
                unknown = UnknownName.of("aggregation", metric.aggregation, names, where=where)
                findings.add_exception("scoring", unknown)
            if reported and len(reported) == len(members):  # an unreadable task may report anything
                _check_reported(node.name, metric, reported, where, findings)
                named = {job.name: one for job, one in zip(node.leaves, reported, strict=True)}
                _check_partly_reported(node.name, metric, named, where, findings)


def _check_weights(given: Any, where: str, findings: Findings) -> None:
    for entry in given if isinstance(given, list) else [given] if given else []:
        weight = entry.get("weight_by_size", True)
        if not isinstance(weight, bool):
            what = f"`weight_by_size` must be true or false, not {weight!r}; it is treated as {bool(weight)}".lower()
            findings.warning("key", what, where)


def _check_partly_reported(
    group: str,
    metric: GroupMetric,
    reported: Mapping[str, ReportedMetrics],
    where: str,
    findings: Findings,
) -> None:
    """Report a metric that only some tasks of a group report: the score of the group leaves the others out.

    Tasks of other output types than those that report the metric are not expected to report it.
    """
    kinds = {one.output_type for one in reported.values() if metric.metric in one.metrics}
    missing = [
        name
        for name, one in reported.items()
        if not one.may_report_others and metric.metric not in one.metrics and one.output_type in kinds
    ]
    if missing and len(missing) < len(reported):
        findings.warning(
            "group-metric",
            f"`{metric.metric}` of `{group}` is missing in {len(missing)} of {len(reported)} tasks: {_list_some(missing)}",
            where,
            "the score of the group does not include them",
        )


def _list_some(names: Sequence[str]) -> str:
    others = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + others


def _check_reported(
    group: str, metric: GroupMetric, reported: Sequence[ReportedMetrics], where: str, findings: Findings
) -> None:
    if not any(one.may_report_others or metric.metric in one.metrics for one in reported):
        names = sorted({name for one in reported for name in one.metrics})
        close = get_close_matches(metric.metric, names, n=1)
        findings.warning(
            "group-metric",
            f"no member of `{group}` reports `{metric.metric}`",
            where,
            f"{f'did you mean `{close[0]}`? ' if close else ''}they report: {', '.join(names[:12])}",
        )
    pipelines = {name for one in reported for name in one.pipelines}
    for name in metric.filter_list or ():
        if name not in pipelines:
            findings.warning(
                "group-metric",
                f"no member of `{group}` has a filter pipeline `{name}`",
                where,
                f"they have: {', '.join(sorted(pipelines)[:12])}",
            )
