"""Check tasks and groups and collect every finding: the entry point of `assay check`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.checks.findings import Finding, Findings, Report, Subject
from assay.checks.groups import CheckJob, GroupNode, GroupWalker, check_group_metrics
from assay.checks.selection import CheckSelection, select_subjects
from assay.checks.task_checker import CheckOptions
from assay.checks.worker_pool import check_jobs
from assay.tasks.files.index import IndexEntry, TaskIndex

__all__ = ["CheckOptions", "check_tasks"]


def check_tasks(
    words: Sequence[str], index: TaskIndex, options: CheckOptions | None = None, *, processes: int = 1
) -> Report:
    """Check everything the words select, including the members of selected groups."""
    selection = select_subjects(words, index)
    walks = _walk_groups(selection)
    jobs = {
        entry.name: CheckJob(name=entry.name, source=entry.path)
        for entry in _iter_tasks(selection)
        if entry.path
    }
    jobs |= {
        key: CheckJob(name=key, source=entry.path, task=entry.name)
        for key, entry in selection.others.items()
        if entry.path
    }
    for _, nodes in walks.values():
        for node in nodes:
            jobs |= {job.name: job for job in node.leaves if job.name not in jobs}
    results = check_jobs(list(jobs.values()), options or CheckOptions(), processes)
    reports = {name: result.reported_metrics for name, result in results.items()}
    duplicates = _find_duplicate_names(selection.index)
    subjects = [
        Subject(name=word, kind="word", findings=tuple(found)) for word, found in selection.rejected.items()
    ]
    for name, (found, nodes) in walks.items():
        check_group_metrics(nodes, reports, found)
        path = selection.entries[name].file
        subjects.append(
            Subject(name=name, kind="group", path=path, findings=(*found, *duplicates.get(name, ())))
        )
    for name, result in results.items():
        findings = (*result.findings, *duplicates.get(name, ()))
        subjects.append(
            Subject(
                name=name,
                kind="task",
                path=jobs[name].path,
                findings=findings,
                looked_at=result.looked_at,
                total=result.total,
            )
        )
    return Report(subjects=tuple(subjects))


def _iter_tasks(selection: CheckSelection) -> Iterable[IndexEntry]:
    return (entry for entry in selection.entries.values() if entry.kind == "task")


def _walk_groups(selection: CheckSelection) -> dict[str, tuple[Findings, list[GroupNode]]]:
    """Walk every selected group and the groups inside it; nested groups are added to the selection."""
    walks: dict[str, tuple[Findings, list[GroupNode]]] = {}
    pending = [entry for entry in selection.entries.values() if entry.kind == "group"]
    while pending:
        entry = pending.pop(0)
        if entry.name in walks:
            continue
        findings = Findings()
        walk = GroupWalker(selection.index, findings)
        walk.walk(entry)
        walks[entry.name] = (findings, walk.nodes)
        selection.add(entry)
        pending += walk.groups.values()
    return walks


def _find_duplicate_names(index: TaskIndex) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for name, used, hidden in index.shadowed:
        known, other = index.find_label(used), index.find_label(hidden)
        # two task collections may both define a name: that is not a mistake
        is_known_overlap = bool(known and other) and known != other
        finding = Finding(
            severity="note" if is_known_overlap else "warning",
            kind="defined-twice",
            what=f"`{name}` is defined twice: {used} is used, {hidden} is ignored",
            where=str(used),
            hint=f"`{other}/{name}` selects the other one" if is_known_overlap else "rename one of them",
        )
        found.setdefault(name, []).append(finding)
    return found
