"""Replay group records of lm_eval: repeat every leaf task, pool the scores and compare with the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.core.records.specs import GroupSpec
from assay.core.records.verdicts import Estimate
from assay.engine.results.run_facts import describe_group
from assay.engine.results.summary import estimate_group
from assay.tasks.files.index import TaskIndex
from assay.tasks.files.selection import Selection, select_tasks
from tools.oracle.checks import RecordChecks
from tools.oracle.comparison import find_difference
from tools.oracle.lm_eval_format import collect_facts, format_results
from tools.oracle.lm_eval_tasks import (
    Splits,
    TaskReplay,
    prepare_task,
    rendering_from_record,
    replay_task,
    seed_generators,
)
from tools.oracle.lm_eval_values import request_key

__all__ = ["leaf_record_name", "replay_group"]


def leaf_record_name(task: str) -> str:
    """Return the name of the record that has a leaf's documents: `group::x`, defined inside a group, uses those of `x`.

    >>> leaf_record_name("flan::anli_r1")
    'anli_r1'
    """
    return task.rpartition("::")[2]


def replay_group(
    group: Mapping[str, Any],
    index: TaskIndex,
    leaves: Mapping[str, Mapping[str, Any]],
    splits: Callable[[str], Splits],
    number: int = 0,
) -> RecordChecks:
    """Repeat a recorded group and compare. `leaves` are the default records of its tasks, by name."""
    checks = RecordChecks(
        task=f"group:{group['group']}", variant=group.get("variant", "default"), number=number
    )
    used_leaves = [leaves[name] for task in group["tasks"] if (name := leaf_record_name(task)) in leaves]
    if any(record.get("uses_global_rng") for record in used_leaves):
        checks.excluded = "contains tasks that use a global random state"
    try:
        _compare(group, index, used_leaves, splits, checks)
    except Exception as error:  # noqa: BLE001 - helper code of any task runs here
        checks.fail_remaining(f"{type(error).__name__}: {error}")
    return checks


def _compare(
    group: Mapping[str, Any],
    index: TaskIndex,
    leaves: list[Mapping[str, Any]],
    splits: Callable[[str], Splits],
    checks: RecordChecks,
) -> None:
    selection = select_tasks([group["group"]], index)
    checks.requests = find_difference(sorted(selection.tasks), sorted(group["tasks"]), "tasks")
    if checks.requests:
        checks.fail_remaining("tasks differ")
        return
    responses: dict[str, Any] = {}
    for record in leaves:
        responses |= record["responses"]
    responses |= group.get("extra_responses") or {}
    seed_generators()
    planned = {
        name: prepare_task(spec, rendering_from_record(group), splits(leaf_record_name(name)))
        for name, spec in selection.tasks.items()
    }
    rendered = {
        name: list(one.task.render()) for name, one in planned.items()
    }  # render all tasks before the first is judged, as lm_eval does
    replayed = {
        name: replay_task(
            one,
            rendered[name],
            lambda request: responses.get(request_key(request["type"], request["args"]), ()),
            iterations=group.get("bootstrap_iters", 0),
        )
        for name, one in planned.items()
    }
    checks.metrics = find_difference(
        {name: _format_leaf(one) for name, one in replayed.items()},
        {name: _select_leaf_keys(group["results"][name]) for name in group["tasks"]},
    )
    checks.results = _compare_groups(group, selection, replayed)


def _format_leaf(replayed: TaskReplay) -> dict[str, Any]:
    facts = collect_facts(replayed.planned)
    return {
        **{key: facts[key] for key in ("alias", "name", "sample_len")},
        **format_results(replayed.estimates),
    }


def _select_leaf_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in entry.items() if "," in key or key in ("alias", "name", "sample_len")
    }


def _compare_groups(
    record: Mapping[str, Any], selection: Selection, replayed: Mapping[str, TaskReplay]
) -> str | None:
    ours: dict[str, Any] = {
        "results": {name: _format_group(spec, selection, replayed) for name, spec in selection.groups.items()},
        "group_subtasks": {name: list(spec.members) for name, spec in selection.groups.items()},
        "n_shot": {}, "versions": {}, "higher_is_better": {}, "n_samples": {},
    }  # fmt: skip
    for name, one in replayed.items():
        facts = collect_facts(one.planned)
        for key, fact in (
            ("versions", "version"),
            *((key, key) for key in ("n_shot", "higher_is_better", "n_samples")),
        ):
            ours[key][name] = facts[fact]
    for name, spec in selection.groups.items():
        ours["versions"][name] = str(spec.version)
        direct = [replayed[member].planned for member in spec.members if member in replayed]
        for key, shared in describe_group(direct).items():
            if shared not in (None, {}):
                ours[key][name] = shared
    theirs = {key: record[key] for key in ours if key in record and key != "results"}
    theirs["results"] = {
        name: {key: value for key, value in record["results"][name].items() if value != " "}
        for name in selection.groups
        if name in record["results"]
    }
    return find_difference({key: ours[key] for key in theirs}, theirs)


def _format_group(
    spec: GroupSpec, selection: Selection, replayed: Mapping[str, TaskReplay]
) -> dict[str, Any]:
    """Return a group's entry as lm_eval reports it: with scores only if the group lists metrics to pool."""
    leaves = selection.leaves(spec.name)
    entry: dict[str, Any] = {"alias": spec.alias or spec.name, "name": spec.name}
    if spec.metrics:
        estimates = estimate_group(spec, leaves, {leaf: replayed[leaf].estimates for leaf in leaves})
        entry["sample_len"] = sum(replayed[leaf].planned.documents for leaf in leaves)
        entry |= format_results(estimates)
        if estimates:
            entry["sample_count"] = {
                f"{one.metric},{one.pipeline}": sum(
                    replayed[leaf].planned.documents for leaf in leaves if _has_metric(replayed[leaf], one)
                )
                for one in estimates
            }
    return entry


def _has_metric(leaf: TaskReplay, pooled: Estimate) -> bool:
    return any(one.metric == pooled.metric and one.pipeline == pooled.pipeline for one in leaf.estimates)
