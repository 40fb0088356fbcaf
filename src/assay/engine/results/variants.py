"""Summarise prompt variants: the mean over documents and variants, the worst and the best variant, and how stable documents are.

Every variant is a task of the run; the task itself is reported as their mean. Responses are shared where prompts coincide,
because a fingerprint does not contain the name of the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.core.records.specs import GroupSpec
from assay.core.records.variants import BASE_VARIANT
from assay.core.records.verdicts import Estimate
from assay.engine.planning.records import Plan, PlannedTask
from assay.engine.results.confidence_intervals import read_clusters
from assay.engine.results.stop_metrics import find_score_range
from assay.stats.aggregations import find_aggregation_name
from assay.stats.intervals.crossed import (
    CrossedEstimate,
    compute_stability,
    estimate_crossed,
    score_consistency_rate,
)
from assay.stats.varied_groups import VariedPart
from assay.store.journal.journal import Journal
from assay.tasks.variants.variant_task import describe_variant

__all__ = ["VariantSummary", "list_units", "summarise_family", "summarise_variants"]

MAX_LISTED_DOCUMENTS = 100
"""Documents whose verdict changes that are listed in the results."""

Floats = NDArray[np.float64]
Column = dict[int, float]


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """The estimates of the varied tasks, and what the journal stores about them."""

    estimates: dict[str, list[Estimate]]
    facts: list[dict[str, Any]]
    parts: dict[tuple[str, str, str], VariedPart]
    """The scores behind each estimate that is a mean, by task, pipeline and metric; for groups."""


def list_units(plan: Plan, group: str) -> list[str]:
    """Return the tasks of a group, where a varied task counts once and not once per variant."""
    found: dict[str, None] = {}
    for member in plan.groups[group].members:
        inner = plan.groups.get(member)
        for name in [member] if inner is None or inner.is_family else list_units(plan, member):
            found[name] = None
    return list(found)


def summarise_variants(
    plan: Plan, journal: Journal, by_task: Mapping[str, Sequence[Estimate]]
) -> VariantSummary:
    """Summarise each varied task of a plan."""
    estimates: dict[str, list[Estimate]] = {}
    facts: list[dict[str, Any]] = []
    parts: dict[tuple[str, str, str], VariedPart] = {}
    for name, group in plan.groups.items():
        if group.is_family:
            estimates[name], found, varied = summarise_family(plan, group, journal, by_task)
            facts += found
            parts |= varied
    return VariantSummary(estimates, facts, parts)


def summarise_family(
    plan: Plan, group: GroupSpec, journal: Journal, by_task: Mapping[str, Sequence[Estimate]]
) -> tuple[list[Estimate], list[dict[str, Any]], dict[tuple[str, str, str], VariedPart]]:
    """Return the estimates of one varied task, the facts about each of them, and the scores behind them."""
    from assay.engine.results.variant_answers import read_answers  # few runs vary their prompts

    members = [plan.tasks[name] for name in group.members]
    scores = {planned.task.name: _read_scores(journal, planned) for planned in members}
    answers = {planned.task.name: read_answers(planned, journal) for planned in members}
    clusters = read_clusters(members[0].spec, journal)
    estimates, facts = [], []
    parts: dict[tuple[str, str, str], VariedPart] = {}
    names = tuple(planned.task.name.removeprefix(group.name) for planned in members)
    for first in by_task[members[0].task.name]:
        key = (first.pipeline, first.metric)
        values = [_find_value(by_task[planned.task.name], key) for planned in members]
        known = [float(value) for value in values if isinstance(value, (int, float))]
        if len(known) < len(members):
            continue  # a metric that a variant does not report
        columns = [scores[planned.task.name].get(key, {}) for planned in members]
        documents, table = _build_table(columns)
        crossed = _estimate(members[0], key[1], documents, table, clusters, known)
        entry = _describe(group.name, first, members, known, crossed)
        if crossed is not None:
            parts[group.name, *key] = VariedPart(names=names, estimate=crossed)
            told = [answers[planned.task.name].get(key, {}) for planned in members]
            entry |= _describe_stability(documents, table, told)
        facts.append(entry)
        estimates.append(_build_estimate(group.name, first, members, by_task, known, crossed, len(documents)))
    return estimates, facts, parts


def _find_value(estimates: Sequence[Estimate], key: tuple[str, str]) -> Any:
    return next((one.value for one in estimates if (one.pipeline, one.metric) == key), None)


def _read_scores(journal: Journal, planned: PlannedTask) -> dict[tuple[str, str], Column]:
    found: dict[tuple[str, str], Column] = {}
    for pipeline, metric, document, kind, value in journal.read_verdicts(planned.task.name):
        if kind == "score" and isinstance(value, (int, float)):
            found.setdefault((pipeline, metric), {})[document] = float(value)
    return found


def _build_table(columns: Sequence[Column]) -> tuple[list[int], Floats]:
    """Return the documents that every variant scored, and their scores."""
    documents = [one for one in columns[0] if all(one in column for column in columns)]
    return documents, np.array([[column[one] for column in columns] for one in documents], dtype=np.float64)


def _estimate(
    planned: PlannedTask,
    metric: str,
    documents: Sequence[int],
    table: Floats,
    clusters: Mapping[int, Any] | None,
    values: Sequence[float],
) -> CrossedEstimate | None:
    """Return the estimate of a mean of document scores; None for other metrics, whose variants have values only."""
    if not len(documents) or not np.isfinite(table).all():
        return None
    aggregation = find_aggregation_name(planned.scorer.find_report(metric).aggregation)
    complete = np.allclose(table.mean(axis=0), values, rtol=1e-9, atol=1e-12)
    if aggregation != "mean" and not complete:
        return None
    names = None if clusters is None else [clusters.get(document) for document in documents]
    try:
        return estimate_crossed(table, names, limits=find_score_range(planned, metric))
    except AssayError:
        return None


def _build_estimate(
    name: str,
    first: Estimate,
    members: Sequence[PlannedTask],
    by_task: Mapping[str, Sequence[Estimate]],
    values: Sequence[float],
    crossed: CrossedEstimate | None,
    documents: int,
) -> Estimate:
    same = [
        one
        for planned in members
        for one in by_task[planned.task.name]
        if (one.pipeline, one.metric) == (first.pipeline, first.metric)
    ]
    interval = None if crossed is None else crossed.interval
    return Estimate(
        task=name,
        metric=first.metric,
        pipeline=first.pipeline,
        value=sum(values) / len(values) if crossed is None else crossed.mean,
        stderr=None if crossed is None or documents < 2 else crossed.stderr,
        method="" if crossed is None or documents < 2 else "crossed",
        interval=None if interval is None else (interval.low, interval.high),
        interval_method="" if interval is None else interval.method,
        clusters=first.clusters,
        scored=documents if crossed is not None else min(one.scored for one in same),
        unscored=max(one.unscored for one in same),
        failed=max(one.failed for one in same),
        higher_is_better=first.higher_is_better,
    )


def _describe(
    name: str,
    first: Estimate,
    members: Sequence[PlannedTask],
    values: Sequence[float],
    crossed: CrossedEstimate | None,
) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    for planned, value in zip(members, values, strict=True):
        variant = planned.spec.variant
        listed.append(
            {
                "name": BASE_VARIANT if variant is None else variant.name,
                "task": planned.task.name,
                "value": value,
                "description": "" if variant is None else describe_variant(planned.task, variant),
            }
        )
    ordered = sorted(listed, key=lambda one: one["value"], reverse=first.higher_is_better is False)
    entry: dict[str, Any] = {
        "task": name,
        "pipeline": first.pipeline,
        "metric": first.metric,
        "mean": sum(values) / len(values) if crossed is None else crossed.mean,
        "worst": {key: ordered[0][key] for key in ("name", "value")},
        "best": {key: ordered[-1][key] for key in ("name", "value")},
        "variants": listed,
    }
    if crossed is not None:
        entry |= {
            "documents": crossed.documents,
            "stderr": crossed.stderr,
            "document_stderr": crossed.document_stderr,
            "variant_deviation": crossed.variant_deviation,
            "interval": None if crossed.interval is None else [crossed.interval.low, crossed.interval.high],
        }
    return entry


def _describe_stability(
    documents: Sequence[int], table: Floats, answers: Sequence[Mapping[int, Any]]
) -> dict[str, Any]:
    """Describe how often documents keep their verdict and their answer."""
    verdicts = compute_stability(table)
    found: dict[str, Any] = {
        "stability": float(verdicts.mean()),
        "always_the_same": int((verdicts == 1).sum()),
    }
    codes = _encode_answers(documents, answers)
    if codes is not None:
        stable = compute_stability(codes)
        found["answer_stability"] = float(stable.mean())
        found["consistency_rate"] = score_consistency_rate(codes)
    else:
        stable = verdicts
    order = np.lexsort((np.arange(len(documents)), stable, verdicts))
    found["unstable_documents"] = [
        {
            "document": documents[at],
            "scores": table[at].tolist(),
            "stability": float(verdicts[at]),
            **({} if codes is None else {"answer_stability": float(stable[at])}),
        }
        for at in order[:MAX_LISTED_DOCUMENTS].tolist()
        if verdicts[at] < 1 or stable[at] < 1
    ]
    return found


def _encode_answers(
    documents: Sequence[int], answers: Sequence[Mapping[int, Any]]
) -> NDArray[np.intp] | None:
    """Return a number per answer, equal for equal answers of a document; None if an answer is missing."""
    if any(document not in column for column in answers for document in documents):
        return None
    table = np.empty((len(documents), len(answers)), dtype=np.intp)
    for row, document in enumerate(documents):
        known: dict[Any, int] = {}
        for column, told in enumerate(answers):
            table[row, column] = known.setdefault(told[document], len(known))
    return table
