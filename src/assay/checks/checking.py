"""`check`: tasks and groups looked at from all sides, every finding of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.checks.choosing import Chosen, choose
from assay.checks.findings import Finding, Findings, Report, Subject
from assay.checks.group_metrics import check_group_metrics
from assay.checks.groups import GroupNode, GroupWalk, Job
from assay.checks.task import CheckOptions
from assay.checks.workers import check_all
from assay.tasks.index import Entry, TaskIndex

__all__ = ["CheckOptions", "check"]


def check(
    words: Sequence[str], index: TaskIndex, options: CheckOptions | None = None, *, processes: int = 1
) -> Report:
    """Check everything the words name, and everything inside the groups they name."""
    chosen = choose(words, index)
    walks = _walk_groups(chosen)
    jobs = {entry.name: Job(name=entry.name, source=entry.path) for entry in _tasks(chosen) if entry.path}
    for _, nodes in walks.values():
        for node in nodes:
            jobs |= {job.name: job for job in node.leaves if job.name not in jobs}
    outcomes = check_all(list(jobs.values()), options or CheckOptions(), processes)
    reports = {name: outcome.reports for name, outcome in outcomes.items()}
    twice = _defined_twice(chosen.index)
    subjects = [
        Subject(name=word, kind="word", findings=tuple(found)) for word, found in chosen.words.items()
    ]
    for name, (found, nodes) in walks.items():
        check_group_metrics(nodes, reports, found)
        path = chosen.entries[name].file
        subjects.append(Subject(name=name, kind="group", path=path, findings=(*found, *twice.get(name, ()))))
    for name, outcome in outcomes.items():
        findings = (*outcome.findings, *twice.get(name, ()))
        subjects.append(Subject(name=name, kind="task", path=jobs[name].path, findings=findings))
    return Report(subjects=tuple(subjects))


def _tasks(chosen: Chosen) -> Iterable[Entry]:
    return (entry for entry in chosen.entries.values() if entry.kind == "task")


def _walk_groups(chosen: Chosen) -> dict[str, tuple[Findings, list[GroupNode]]]:
    """Every chosen group and every group inside one; their own files' groups come in as chosen too."""
    walks: dict[str, tuple[Findings, list[GroupNode]]] = {}
    waiting = [entry for entry in chosen.entries.values() if entry.kind == "group"]
    while waiting:
        entry = waiting.pop(0)
        if entry.name in walks:
            continue
        findings = Findings()
        walk = GroupWalk(chosen.index, findings)
        walk.walk(entry)
        walks[entry.name] = (findings, walk.nodes)
        chosen.add(entry)
        waiting += walk.groups.values()
    return walks


def _defined_twice(index: TaskIndex) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for name, used, hidden in index.shadowed:
        known, other = index.label(used), index.label(hidden)
        apart = (
            bool(known and other) and known != other
        )  # two collections that both have it: nobody's mistake
        finding = Finding(
            severity="note" if apart else "warning",
            kind="defined-twice",
            what=f"`{name}` is defined twice: {used} counts, {hidden} does not",
            where=str(used),
            hint=f"`{other}/{name}` asks for the other one" if apart else "rename one of them",
        )
        found.setdefault(name, []).append(finding)
    return found
