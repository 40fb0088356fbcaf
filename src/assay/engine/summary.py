"""`summarise`: verdicts to estimates, for tasks and groups. Reads the journal, so a resumed run and an
uninterrupted one take the same path and give the same bits."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core.specs import GroupSpec
from assay.core.verdicts import Estimate
from assay.engine.decontamination import SUFFIX, contaminated_documents
from assay.engine.doubts import pooled_bounds, with_bounds
from assay.engine.plan import Plan, PlannedTask
from assay.stats.aggregations import aggregate, is_ours
from assay.stats.groups import Part, pool
from assay.stats.uncertainty import standard_error
from assay.stats.values import Values
from assay.store.journal import Journal

__all__ = ["estimate_group", "estimate_task", "summarise"]


def summarise(plan: Plan, journal: Journal) -> list[Estimate]:
    """Every estimate of a run: tasks in plan order, then groups."""
    estimates: list[Estimate] = []
    by_task: dict[str, list[Estimate]] = {}
    corpus = plan.spec.decontamination_ngrams_path
    contaminated = contaminated_documents(plan, Path(corpus)) if corpus else {}
    if contaminated:
        journal.set_facts({"contaminated": contaminated}).result()
    for name, planned in plan.tasks.items():
        failed = journal.outcomes(name).get("failed", 0)
        by_task[name] = estimate_task(
            planned, journal.verdicts(name), failed=failed, iterations=plan.spec.bootstrap_iters
        )
        by_task[name] = with_bounds(planned, by_task[name], journal)
        if name in contaminated:
            by_task[name] += _without(planned, journal, contaminated[name], plan.spec.bootstrap_iters)
        estimates += by_task[name]
    for group, spec in plan.groups.items():
        estimates += estimate_group(spec, plan.leaves(group), by_task)
    return estimates


def _without(
    planned: PlannedTask, journal: Journal, contaminated: Mapping[int, str], iterations: int
) -> list[Estimate]:
    """The same numbers over the documents that were not found in the corpus."""
    name = planned.task.name
    kept = (row for row in journal.verdicts(name) if row[2] not in contaminated)
    failures = journal.query("SELECT document FROM outcomes WHERE task = ? AND outcome = 'failed'", (name,))
    failed = sum(document not in contaminated for (document,) in failures)
    clean = estimate_task(planned, kept, failed=failed, iterations=iterations)
    return [replace(estimate, metric=f"{estimate.metric}{SUFFIX}") for estimate in clean]


def estimate_task(
    planned: PlannedTask,
    verdicts: Iterable[tuple[str, str, int, str, Any]],
    *,
    failed: int = 0,
    iterations: int,
) -> list[Estimate]:
    """The numbers of one task from (pipeline, metric, document, kind, value) rows in document order."""
    name = planned.task.name
    values: dict[tuple[str, str], Values] = {}
    unscored: dict[tuple[str, str], int] = {}
    for pipeline, metric, _, kind, value in verdicts:
        key = (pipeline, metric)
        if kind == "unscored":
            unscored[key] = unscored.get(key, 0) + 1
        else:
            column = values.get(key)
            if column is None:
                column = values[key] = Values()
            column.append(value)
    lost = max(unscored.values(), default=0)
    for key in values:  # a metric the task does not announce cannot be missed by name, only by number
        if key[1] not in planned.scorer.metrics:
            unscored.setdefault(key, lost)
    order = {metric: at for at, metric in enumerate(planned.scorer.metrics)}
    pipelines = {pipeline.name: at for at, pipeline in enumerate(planned.scorer.pipelines)}
    keys = sorted(
        {*values, *unscored},
        key=lambda key: (pipelines.get(key[0], 99), order.get(key[1], len(order)), key[1]),
    )
    if not keys and failed:  # nothing was answered: the denominator is shown all the same
        keys = [(pipeline, metric) for pipeline in pipelines for metric in order]
    return [
        _estimate(name, planned, key, values.get(key, Values()), unscored.get(key, 0), failed, iterations)
        for key in keys
    ]


def _estimate(
    name: str,
    planned: PlannedTask,
    key: tuple[str, str],
    values: Values,
    unscored: int,
    failed: int,
    iterations: int,
) -> Estimate:
    pipeline, metric = key
    aggregation, higher_is_better, _ = planned.scorer.use_of(metric)
    value: Any = None
    stderr, method, why = None, "", "" if values else "no document was scored"
    if values:
        try:
            listed = values.items if is_ours(aggregation) else values.as_list()
            value = aggregate(aggregation, listed)
            stderr, method = standard_error(aggregation, listed, metric=metric, iterations=iterations)
        except Exception:  # noqa: BLE001 - helper border: an aggregation may be the task's own
            why = traceback.format_exc(limit=-2)
    return Estimate(
        task=name,
        metric=metric,
        pipeline=pipeline,
        value=value,
        stderr=stderr,
        method=method,
        why=why,
        scored=len(values),
        unscored=unscored,
        failed=failed,
        higher_is_better=higher_is_better,
    )


def estimate_group(
    group: GroupSpec, leaves: Sequence[str], by_task: Mapping[str, list[Estimate]]
) -> list[Estimate]:
    """The numbers of a group from those of its tasks, never from those of groups inside it.

    A task weighs as many documents as its best covered metric has, as in lm-eval: a metric that speaks of some
    documents only weighs no less for it.
    """
    sizes = {leaf: max((one.scored for one in by_task[leaf]), default=0) for leaf in leaves}
    estimates = []
    for wanted in group.metrics:
        parts = [
            estimate
            for leaf in leaves
            for estimate in by_task[leaf]
            if estimate.metric == wanted.metric and isinstance(estimate.value, (int, float))
        ]
        found = sorted({part.pipeline for part in parts})
        for pipeline in found if wanted.filter_list is None else wanted.filter_list:
            members = [part for part in parts if part.pipeline == pipeline]
            if members:
                shares = [Part(value=one.value, stderr=one.stderr, size=sizes[one.task]) for one in members]
                pooled = pool(shares, weight_by_size=wanted.weight_by_size)
                bounds = pooled_bounds(
                    members, [share.size for share in shares], weight_by_size=wanted.weight_by_size
                )
                estimates.append(replace(_pooled(group.name, pooled, members), bounds=bounds))
    return estimates


def _pooled(group: str, pooled: Part, members: list[Estimate]) -> Estimate:
    return Estimate(
        task=group,
        metric=members[0].metric,
        pipeline=members[0].pipeline,
        value=pooled.value,
        stderr=pooled.stderr,
        method="pooled" if pooled.stderr is not None else "",
        scored=sum(member.scored for member in members),
        unscored=sum(member.unscored for member in members),
        failed=sum(member.failed for member in members),
        higher_is_better=members[0].higher_is_better,
    )
