"""The differences of groups, combined from those of their tasks.

A group of many small tasks can differ beyond chance although none of its tasks does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.core.records.verdicts import Estimate
from assay.stats.comparisons.stratified import combine_strata
from assay.store.documents.score_tables import ScoreTableSource
from assay.viewer.comparison.multiplicity import build_stratum
from assay.viewer.comparison.records import Comparison, ComparisonRow

__all__ = ["compare_groups", "list_grouped_tasks", "order_rows"]

_Groups = Mapping[str, Mapping[str, Any]]


def compare_groups(
    first: ScoreTableSource, second: ScoreTableSource, rows: Sequence[ComparisonRow], *, level: float
) -> list[ComparisonRow]:
    """Return the difference of each group that both runs have, if all its tasks are compared in the group's metric.

    The tasks have the weights of the group's reported score: their numbers of documents, or equal ones.
    """
    groups, others = _read_groups(first), _read_groups(second)
    by_key = {(row.task, row.metric, row.pipeline): row for row in rows}
    tasks = [row.task for row in rows]
    estimates = first.read_estimates() if groups and others else []
    found: dict[str, ComparisonRow] = {}
    for estimate in estimates:
        name = estimate.task
        if name in found or name not in groups or name not in others:
            continue
        leaves = list(dict.fromkeys(_list_leaves(groups, name)))
        if set(leaves) != set(_list_leaves(others, name)) or not set(leaves) <= set(tasks):
            continue
        members = [by_key.get((leaf, estimate.metric, estimate.pipeline)) for leaf in leaves]
        compared = [row for row in members if row is not None and math.isfinite(row.low) and row.degrees > 0]
        weights = _find_weights(estimate, leaves, estimates)
        if len(compared) == len(leaves) > 1 and weights is not None:
            direct = tuple(str(member) for member in groups[name].get("members", ()))
            found[name] = _combine(name, direct, compared, weights, level)
    return list(found.values())


def _read_groups(source: ScoreTableSource) -> _Groups:
    run = getattr(source, "run", None)  # result files of other harnesses have no groups
    return {} if run is None else run.groups


def _list_leaves(groups: _Groups, name: str) -> Iterator[str]:
    if name not in groups:
        yield name
        return
    for member in groups[name].get("members", ()):
        yield from _list_leaves(groups, str(member))


def _find_weights(
    group: Estimate, leaves: Sequence[str], estimates: Sequence[Estimate]
) -> list[float] | None:
    """Return the weights with which the scores of the tasks give the reported score; None if neither kind does."""
    known = {
        one.task: one for one in estimates if (one.metric, one.pipeline) == (group.metric, group.pipeline)
    }
    if any(leaf not in known or isinstance(known[leaf].value, dict) for leaf in leaves):
        return None
    sizes = [float(known[leaf].scored) for leaf in leaves]
    for weights in (sizes, [1.0] * len(leaves)):
        total = sum(weights)
        if not total:
            continue
        pairs = zip(weights, leaves, strict=True)
        mean = sum(weight * float(known[leaf].value) for weight, leaf in pairs) / total
        if math.isclose(mean, float(group.value), rel_tol=1e-6, abs_tol=1e-9):
            return [weight / total for weight in weights]
    return None


def _combine(
    name: str,
    members: tuple[str, ...],
    rows: Sequence[ComparisonRow],
    weights: Sequence[float],
    level: float,
) -> ComparisonRow:
    share = all(row.share for row in rows)
    found = combine_strata(
        [build_stratum(row) for row in rows],
        weights=weights,
        level=level,
        limit=1.0 if share else math.inf,
    )
    counted = all(row.wins is not None for row in rows)
    return ComparisonRow(
        task=name,
        metric=rows[0].metric,
        pipeline=rows[0].pipeline,
        first=sum(weight * row.first for weight, row in zip(weights, rows, strict=True)),
        second=sum(weight * row.second for weight, row in zip(weights, rows, strict=True)),
        difference=found.value,
        stderr=found.stderr,
        degrees=found.degrees,
        low=found.low,
        high=found.high,
        interval_method="stratified t",
        p_value=found.p_value,
        adjusted_p=found.p_value,
        test="t",
        differs=False,
        better=None,
        detectable=None,
        documents=sum(row.documents for row in rows),
        wins=sum(row.wins or 0 for row in rows) if counted else None,
        ties=sum(row.ties or 0 for row in rows) if counted else None,
        losses=sum(row.losses or 0 for row in rows) if counted else None,
        higher_is_better=rows[0].higher_is_better,
        share=share,
        blocked=tuple(dict.fromkeys(kind for row in rows for kind in row.blocked)),
        members=members,
    )


def list_grouped_tasks(comparison: Comparison) -> set[str]:
    """Return the names of the tasks and groups that are inside a group."""
    return {member for group in comparison.groups for member in group.members}


def order_rows(comparison: Comparison) -> list[tuple[tuple[str, ...], ComparisonRow]]:
    """Return (groups around it, row) of every group and task: a group before its members."""
    groups = {group.task: group for group in comparison.groups}
    tasks: dict[str, list[ComparisonRow]] = {}
    for row in comparison.rows:
        tasks.setdefault(row.task, []).append(row)
    parents = {member: group.task for group in comparison.groups for member in group.members}
    found: list[tuple[tuple[str, ...], ComparisonRow]] = []
    seen: set[str] = set()

    def add(name: str, around: tuple[str, ...]) -> None:
        if name in seen:
            return
        seen.add(name)
        found.extend((around, row) for row in tasks.get(name, ()))
        if name in groups:
            found.append((around, groups[name]))
            for member in groups[name].members:
                add(member, (*around, name))

    for name in tasks:
        top = name
        while top in parents:
            top = parents[top]
        add(top, ())
    return found
