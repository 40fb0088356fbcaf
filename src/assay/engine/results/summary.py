"""`summarise`: turn verdicts into estimates of tasks and groups. Reads the journal, so that a resumed run and an uninterrupted
one give identical numbers."""

from __future__ import annotations

import inspect
import traceback
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay.core.options.run_spec import RunSpec
from assay.core.records.specs import GroupMetric, GroupSpec, TaskSpec
from assay.core.records.verdicts import Estimate
from assay.engine.judging.repeats import summarise_run_repeats
from assay.engine.planning.decontamination import SUFFIX, find_contaminated_documents
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.results.agent_summary import summarise_agents
from assay.engine.results.confidence_intervals import (
    compute_group_interval,
    compute_task_interval,
    read_clusters,
)
from assay.engine.results.score_bounds import add_bounds, pool_bounds
from assay.engine.results.variants import list_units, summarise_variants
from assay.stats.aggregations import accepts_any_sequence, aggregate
from assay.stats.groups import GroupPart, pool_parts
from assay.stats.intervals.cluster_errors import (
    compute_lmms_eval_cluster_error,
    compute_plain_error,
    extract_scores,
)
from assay.stats.intervals.standard_errors import Draws, compute_standard_error
from assay.stats.numerics.value_list import ValueList
from assay.stats.varied_groups import VariedPart, add_variant_error, ignore_variants, widen_by_variants
from assay.store.journal.journal import Journal
from assay.user_code.timeouts import current_timer

__all__ = ["estimate_group", "estimate_task", "summarise"]


AGGREGATION_TIME_FACTOR = 10
"""An aggregation sees all documents, so its time limit is this many times that of one document."""


def summarise(plan: Plan, journal: Journal) -> list[Estimate]:
    """Return every estimate of a run: tasks in plan order, then groups."""
    with current_timer().override_limit(AGGREGATION_TIME_FACTOR * plan.spec.helper_timeout):
        return _estimate_all(plan, journal)


def _estimate_all(plan: Plan, journal: Journal) -> list[Estimate]:
    estimates: list[Estimate] = []
    by_task: dict[str, list[Estimate]] = {}
    corpus = plan.spec.decontamination_ngrams_path
    contaminated = find_contaminated_documents(plan, Path(corpus)) if corpus else {}
    if contaminated:
        journal.set_facts({"contaminated": contaminated}).result()
    if agents := summarise_agents(plan, journal):
        journal.set_facts({"agents": agents}).result()
        from assay.engine.results.agent_pins import record_agent_pins

        record_agent_pins(plan, journal)
    if repeats := summarise_run_repeats(plan, journal):
        journal.set_facts({"repeats": repeats}).result()
    for name, planned in plan.tasks.items():
        failed = journal.count_outcomes(name).get("failed", 0)
        by_task[name] = estimate_task(
            planned,
            journal.read_verdicts(name),
            failed=failed,
            clusters=read_clusters(planned.spec, journal),
            iterations=plan.spec.bootstrap_iters,
            draws=plan.spec.bootstrap_draws,
            arguments=build_run_arguments(plan.spec, plan.folder),
            declared=not plan.spec.predict_only,
        )
        by_task[name] = add_bounds(planned, by_task[name], journal)
        if name in contaminated:
            by_task[name] += _estimate_uncontaminated(plan, planned, journal, contaminated[name])
        estimates += by_task[name]
    variants = summarise_variants(plan, journal, by_task)
    if variants.facts:
        journal.set_facts({"variants": variants.facts}).result()
    for group, spec in plan.groups.items():
        if spec.is_family:
            estimates += variants.estimates[group]
        else:
            estimates += estimate_group(
                spec, list_units(plan, group), {**by_task, **variants.estimates}, variants.parts
            )
    return estimates


def _estimate_uncontaminated(
    plan: Plan, planned: PlannedTask, journal: Journal, contaminated: Mapping[int, str]
) -> list[Estimate]:
    """Estimate the metrics over the documents that are not in the corpus."""
    name = planned.task.name
    kept = (row for row in journal.read_verdicts(name) if row[2] not in contaminated)
    failures = journal.read_outcomes(name, only="failed")
    failed = sum(document not in contaminated for document, *_ in failures)
    clean = estimate_task(
        planned,
        kept,
        failed=failed,
        clusters=read_clusters(planned.spec, journal),
        iterations=plan.spec.bootstrap_iters,
        draws=plan.spec.bootstrap_draws,
        arguments=build_run_arguments(plan.spec, plan.folder),
    )
    return [replace(estimate, metric=f"{estimate.metric}{SUFFIX}") for estimate in clean]


def estimate_task(
    planned: PlannedTask,
    verdicts: Iterable[tuple[str, str, int, str, Any]],
    *,
    failed: int = 0,
    clusters: Mapping[int, Any] | None = None,
    iterations: int,
    draws: Draws = "lm_eval",
    arguments: Any = None,
    declared: bool = False,
) -> list[Estimate]:
    """Estimate the metrics of a task from (pipeline, metric, document, kind, value) rows in document order.

    `clusters` are the clusters of documents, for intervals. `arguments` are the options of the run, for aggregations with a
    parameter `args`. With `declared`, a metric that the task lists but no document returned has an estimate without a value.
    """
    name = planned.task.name
    strata = None if planned.subset is None else planned.subset.strata
    drawn: dict[tuple[str, str], list[int]] = {}
    values: dict[tuple[str, str], ValueList] = {}
    members: dict[tuple[str, str], list[Any]] = {}
    unscored: dict[tuple[str, str], int] = {}
    for pipeline, metric, document, kind, value in verdicts:
        key = (pipeline, metric)
        if kind == "unscored":
            unscored[key] = unscored.get(key, 0) + 1
        else:
            column = values.get(key)
            if column is None:
                column = values[key] = ValueList()
            column.append(value)
            if strata is not None:
                drawn.setdefault(key, []).append(strata[document])
            if clusters is not None:
                members.setdefault(key, []).append(clusters.get(document))
    lost = max(unscored.values(), default=0)
    for key in values:  # an undeclared metric: assume it misses as many documents as the others
        if key[1] not in planned.scorer.metrics:
            unscored.setdefault(key, lost)
    order = {metric: at for at, metric in enumerate(planned.scorer.metrics)}
    pipelines = {pipeline.name: at for at, pipeline in enumerate(planned.scorer.pipelines)}
    keys = sorted(
        {key for key in (*values, *unscored) if planned.scorer.is_reported(key[1])},
        key=lambda key: (pipelines.get(key[0], 99), order.get(key[1], len(order)), key[1]),
    )
    if not keys and failed:  # nothing was answered: show the denominator
        keys = [(pipeline, metric) for pipeline in pipelines for metric in order]
    elif declared and not (keys and planned.spec.process_results is not None and not planned.spec.metrics):
        # task code without a `metric_list` replaces the default metrics
        found = {metric for _, metric in keys}
        keys += [
            (next(iter(pipelines)), metric)
            for metric in order
            if metric not in found and not (found and planned.scorer.may_return_mapping(metric))
        ]
    estimates = [
        _estimate(
            name,
            planned,
            key,
            values.get(key, ValueList()),
            members.get(key),
            unscored.get(key, 0),
            failed,
            iterations,
            draws,
            arguments,
        )
        for key in keys
    ]
    if planned.subset is None:
        return estimates
    from assay.engine.results.weighted_estimates import weight_estimate

    return [
        weight_estimate(planned, planned.subset, estimate, values.get(key), drawn.get(key, ()))
        for key, estimate in zip(keys, estimates, strict=True)
    ]


def _estimate(
    name: str,
    planned: PlannedTask,
    key: tuple[str, str],
    values: ValueList,
    clusters: Sequence[Any] | None,
    unscored: int,
    failed: int,
    iterations: int,
    draws: Draws,
    arguments: Any,
) -> Estimate:
    pipeline, metric = key
    aggregation, higher_is_better, _ = planned.scorer.find_report(metric)
    value: Any = None
    stderr, method, why = None, "", "" if values else "no document was scored"
    if not values and not unscored and not failed:
        why = "no document returned this metric"
    plain, clustered = _compute_document_errors(planned.spec, values)
    if values:
        try:
            listed = values.items if accepts_any_sequence(aggregation) else values.as_list()
            with current_timer():
                value = aggregate(_bind_run_arguments(aggregation, arguments), listed)
                stderr, method = compute_standard_error(
                    aggregation, listed, metric=metric, iterations=iterations, draws=draws
                )
        except Exception:  # noqa: BLE001 - user code: an aggregation of the task
            why = traceback.format_exc(limit=-2)
    found = compute_task_interval(planned, metric, values, value, clusters) if iterations > 0 else None
    interval, count = (None, None) if found is None else found
    return Estimate(
        task=name,
        metric=metric,
        pipeline=pipeline,
        value=value,
        stderr=stderr,
        method=method,
        interval=None if interval is None else (interval.low, interval.high),
        interval_method="" if interval is None else interval.method,
        clusters=count,
        plain_stderr=plain,
        clustered_stderr=clustered,
        why=why,
        scored=len(values),
        unscored=unscored,
        failed=failed,
        higher_is_better=higher_is_better,
    )


def _bind_run_arguments(aggregation: Any, arguments: Any) -> Any:
    """Bind the run's options to aggregations with a parameter `args`, as lmms-eval does: they write submission files."""
    if not callable(aggregation) or not _accepts_run_arguments(aggregation):
        return aggregation
    return partial(aggregation, args=arguments)


def _accepts_run_arguments(aggregation: Any) -> bool:
    try:
        return "args" in inspect.signature(aggregation).parameters
    except (TypeError, ValueError):  # written in C: no signature
        return False


def _compute_document_errors(spec: TaskSpec, values: ValueList) -> tuple[float | None, float | None]:
    """Compute the plain and clustered standard errors that lmms-eval reports."""
    if not spec.dialect.reads_score_key:
        return None, None
    scores, clusters = extract_scores(
        values.as_list(), score_key=spec.score_key, cluster_key=spec.cluster_key
    )
    try:
        return compute_plain_error(scores), compute_lmms_eval_cluster_error(scores, clusters)
    except (TypeError, ValueError):  # the score key may hold anything
        return None, None


def build_run_arguments(spec: RunSpec, folder: Path) -> Namespace:
    """Return the options of a run as lmms-eval's aggregations expect them; they write files into the run's folder."""
    return Namespace(
        **{item.name: getattr(spec, item.name) for item in fields(spec)} | {"output_path": str(folder)}
    )


def estimate_group(
    group: GroupSpec,
    leaves: Sequence[str],
    by_task: Mapping[str, list[Estimate]],
    varied: Mapping[tuple[str, str, str], VariedPart] = MappingProxyType({}),
) -> list[Estimate]:
    """Estimate the metrics of a group from its tasks, not from the groups inside it.

    The weight of a task is the document count of its best covered metric, as in lm-eval; if it has a weighted subset, that of
    all its documents. If a metric is listed twice, the last
    entry counts. `varied` has the scores of tasks with several prompts, by task, pipeline and metric.
    """
    sizes = {leaf: max((one.population or one.scored for one in by_task[leaf]), default=0) for leaf in leaves}
    estimates: dict[tuple[str, str], Estimate] = {}
    for wanted in group.metrics:
        numbers = [
            estimate
            for leaf in leaves
            for estimate in by_task[leaf]
            if isinstance(estimate.value, (int, float))
        ]
        for members in _select_members(group, wanted, numbers):
            parts = [varied.get((one.task, one.pipeline, one.metric)) for one in members]
            estimate = _estimate_group(group, wanted, members, [sizes[one.task] for one in members], parts)
            estimates[estimate.metric, estimate.pipeline] = estimate
    return list(estimates.values())


def _estimate_group(
    group: GroupSpec,
    wanted: GroupMetric,
    members: list[Estimate],
    sizes: list[int],
    varied: Sequence[VariedPart | None],
) -> Estimate:
    shares = [
        ignore_variants(
            GroupPart(
                value=one.value,
                stderr=one.stderr,
                size=size,
                interval=one.interval,
                method=one.interval_method,
                units=one.clusters or one.scored,
            ),
            part,
        )
        for one, size, part in zip(members, sizes, varied, strict=True)
    ]
    total = sum(sizes)
    weights = [size / total if wanted.weight_by_size and total else 1 / len(sizes) for size in sizes]
    weighted = list(zip(weights, varied, strict=True))
    has_variants = any(part is not None for part in varied)
    pooled_error = True if group.dialect.always_pools_errors else None
    pooled = pool_parts(shares, weight_by_size=wanted.weight_by_size, pooled_error=pooled_error)
    if has_variants:
        pooled = replace(pooled, stderr=add_variant_error(pooled.stderr, weighted))
    estimate = _build_pooled_estimate(group.name, pooled, members)
    if not callable(wanted.aggregation):
        interval = compute_group_interval(shares, weight_by_size=wanted.weight_by_size)
        if interval is not None and has_variants:
            interval = widen_by_variants(interval, pooled.value, weighted)
        if interval is not None:
            estimate = replace(
                estimate, interval=(interval.low, interval.high), interval_method=interval.method
            )
        return replace(estimate, bounds=pool_bounds(members, sizes, weight_by_size=wanted.weight_by_size))
    value: Any = None
    why = ""
    try:
        with current_timer():
            value = wanted.aggregation([one.value for one in members], sizes, wanted.weight_by_size)
    except Exception:  # noqa: BLE001 - user code: an aggregation of the group
        why = traceback.format_exc(limit=-2)
    return replace(estimate, value=value, stderr=None, method="", why=why)


def _select_members(
    group: GroupSpec, wanted: GroupMetric, numbers: Sequence[Estimate]
) -> Iterator[list[Estimate]]:
    """Yield the estimates to pool. lmms-eval takes every metric and filter whose name contains the text."""
    if group.dialect.matches_metric_substrings:
        meant = [one for one in numbers if wanted.metric in f"{one.metric},{one.pipeline}"]
        keys = dict.fromkeys((one.metric, one.pipeline) for one in meant)
    else:
        meant = [one for one in numbers if one.metric == wanted.metric]
        found = sorted({one.pipeline for one in meant})
        pipelines = found if wanted.filter_list is None else wanted.filter_list
        keys = dict.fromkeys((wanted.metric, pipeline) for pipeline in pipelines)
    for key in keys:
        members = [one for one in meant if (one.metric, one.pipeline) == key]
        if members:
            yield members


def _build_pooled_estimate(group: str, pooled: GroupPart, members: list[Estimate]) -> Estimate:
    return Estimate(
        task=group,
        metric=members[0].metric,
        pipeline=members[0].pipeline,
        value=pooled.value,
        stderr=pooled.stderr,
        method="pooled" if pooled.stderr is not None else "",
        population=(
            sum(member.population or member.scored for member in members)
            if any(member.population for member in members)
            else None
        ),
        scored=sum(member.scored for member in members),
        unscored=sum(member.unscored for member in members),
        failed=sum(member.failed for member in members),
        higher_is_better=members[0].higher_is_better,
    )
