"""Replay of group records: every leaf task again, pooled, and compared with what the harness reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.core.specs import GroupSpec
from assay.core.verdicts import Estimate
from assay.engine.results.run_facts import shared_facts
from assay.engine.results.summary import estimate_group
from assay.tasks.index import TaskIndex
from assay.tasks.selection import Selection, select
from assay.testing.oracle.checks import Checks
from assay.testing.oracle.compare import difference
from assay.testing.oracle.lm_eval import Replayed, Splits, prepare, rendering_of, replay_task, seed
from assay.testing.oracle.shown import facts_of, request_key, results_of

__all__ = ["leaf_record", "replay_group"]


def leaf_record(task: str) -> str:
    """Which record holds a leaf's documents: `group::x`, defined inside a group, uses those of `x`.

    >>> leaf_record("flan::anli_r1")
    'anli_r1'
    """
    return task.rpartition("::")[2]


def replay_group(
    group: Mapping[str, Any],
    index: TaskIndex,
    leaves: Mapping[str, Mapping[str, Any]],
    splits: Callable[[str], Splits],
    number: int = 0,
) -> Checks:
    """Do a recorded group again and compare. `leaves` are the default records of its tasks, by name."""
    checks = Checks(task=f"group:{group['group']}", variant=group.get("variant", "default"), number=number)
    used = [leaves[name] for task in group["tasks"] if (name := leaf_record(task)) in leaves]
    if any(record.get("uses_global_rng") for record in used):
        checks.excluded = "has tasks that use a global random state"
    try:
        _compare(group, index, used, splits, checks)
    except Exception as error:  # noqa: BLE001 - helper code of any task runs here
        checks.spoil(f"{type(error).__name__}: {error}")
    return checks


def _compare(
    group: Mapping[str, Any],
    index: TaskIndex,
    leaves: list[Mapping[str, Any]],
    splits: Callable[[str], Splits],
    checks: Checks,
) -> None:
    selection = select([group["group"]], index)
    checks.requests = difference(sorted(selection.tasks), sorted(group["tasks"]), "tasks")
    if checks.requests:
        checks.spoil("tasks differ")
        return
    responses: dict[str, Any] = {}
    for record in leaves:
        responses |= record["responses"]
    responses |= group.get("extra_responses") or {}
    seed()
    planned = {
        name: prepare(spec, rendering_of(group), splits(leaf_record(name)))
        for name, spec in selection.tasks.items()
    }
    asked = {name: list(one.task.render()) for name, one in planned.items()}  # all, then the first is judged
    replayed = {
        name: replay_task(
            one,
            asked[name],
            lambda shown: responses.get(request_key(shown["type"], shown["args"]), ()),
            iterations=group.get("bootstrap_iters", 0),
        )
        for name, one in planned.items()
    }
    checks.metrics = difference(
        {name: _leaf_entry(one) for name, one in replayed.items()},
        {name: _recorded_entry(group["results"][name]) for name in group["tasks"]},
    )
    checks.results = _compare_groups(group, selection, replayed)


def _leaf_entry(replayed: Replayed) -> dict[str, Any]:
    facts = facts_of(replayed.planned)
    return {**{key: facts[key] for key in ("alias", "name", "sample_len")}, **results_of(replayed.estimates)}


def _recorded_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in entry.items() if "," in key or key in ("alias", "name", "sample_len")
    }


def _compare_groups(
    record: Mapping[str, Any], selection: Selection, replayed: Mapping[str, Replayed]
) -> str | None:
    ours: dict[str, Any] = {
        "results": {name: _group_entry(spec, selection, replayed) for name, spec in selection.groups.items()},
        "group_subtasks": {name: list(spec.members) for name, spec in selection.groups.items()},
        "n_shot": {}, "versions": {}, "higher_is_better": {}, "n_samples": {},
    }  # fmt: skip
    for name, one in replayed.items():
        facts = facts_of(one.planned)
        for key, fact in (
            ("versions", "version"),
            *((key, key) for key in ("n_shot", "higher_is_better", "n_samples")),
        ):
            ours[key][name] = facts[fact]
    for name, spec in selection.groups.items():
        ours["versions"][name] = str(spec.version)
        direct = [replayed[member].planned for member in spec.members if member in replayed]
        for key, shared in shared_facts(direct).items():
            if shared not in (None, {}):
                ours[key][name] = shared
    theirs = {key: record[key] for key in ours if key in record and key != "results"}
    theirs["results"] = {
        name: {key: value for key, value in record["results"][name].items() if value != " "}
        for name in selection.groups
        if name in record["results"]
    }
    return difference({key: ours[key] for key in theirs}, theirs)


def _group_entry(spec: GroupSpec, selection: Selection, replayed: Mapping[str, Replayed]) -> dict[str, Any]:
    """A group as lm_eval reports it: with numbers only where the group says which to pool."""
    leaves = selection.leaves(spec.name)
    entry: dict[str, Any] = {"alias": spec.alias or spec.name, "name": spec.name}
    if spec.metrics:
        estimates = estimate_group(spec, leaves, {leaf: replayed[leaf].estimates for leaf in leaves})
        entry["sample_len"] = sum(replayed[leaf].planned.documents for leaf in leaves)
        entry |= results_of(estimates)
        if estimates:
            entry["sample_count"] = {
                f"{one.metric},{one.pipeline}": sum(
                    replayed[leaf].planned.documents for leaf in leaves if _reports(replayed[leaf], one)
                )
                for one in estimates
            }
    return entry


def _reports(leaf: Replayed, pooled: Estimate) -> bool:
    return any(one.metric == pooled.metric and one.pipeline == pooled.pipeline for one in leaf.estimates)
