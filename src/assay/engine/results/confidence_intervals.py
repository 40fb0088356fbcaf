"""Compute the confidence interval of a task or a group, also for few documents and for clusters."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from assay.core.errors import AssayError
from assay.core.records.specs import TaskSpec
from assay.engine.planning.records import PlannedTask
from assay.engine.results.stop_metrics import find_score_range
from assay.stats.aggregations import find_aggregation_name
from assay.stats.groups import GroupPart, compute_stratified_interval
from assay.stats.intervals.cluster_errors import extract_scores
from assay.stats.intervals.confidence_intervals import Interval, encode_clusters, mean_interval
from assay.stats.intervals.corpus_intervals import CORPUS_AGGREGATIONS, corpus_interval
from assay.stats.numerics.exact_summation import to_float_array
from assay.stats.numerics.value_list import ValueList
from assay.store.journal.journal import Journal

__all__ = ["compute_group_interval", "compute_task_interval", "read_clusters"]


def read_clusters(spec: TaskSpec, journal: Journal) -> dict[int, Any] | None:
    """Return the cluster of each document, from the field that `cluster_key` names; None if there is none.

    Documents without the field are clusters of their own.
    """
    if not spec.cluster_key:
        return None
    found = dict(journal.read_field(spec.name, spec.cluster_key))
    return found if any(name is not None for name in found.values()) else None


def compute_task_interval(
    planned: PlannedTask,
    metric: str,
    values: ValueList,
    value: Any,
    clusters: Sequence[Any] | None,
) -> tuple[Interval, int | None] | None:
    """Compute the interval of a task's metric, and the number of clusters if it is clustered; None if there is no method.

    `clusters` are those of the documents, in the order of the values. Values that are mappings can name their cluster
    themselves. An aggregation of the task's own code counts as a mean if it returns the same value.
    """
    if not len(values) or not isinstance(value, (int, float)):
        return None
    aggregation, higher_is_better, _ = planned.scorer.find_report(metric)
    name = find_aggregation_name(aggregation)
    spec, scores = planned.spec, None
    if name not in CORPUS_AGGREGATIONS:
        scores = to_float_array(values.items)
        if scores is None and spec.dialect.reads_score_key:
            listed, named = extract_scores(
                values.items, score_key=spec.score_key, cluster_key=spec.cluster_key
            )
            scores = to_float_array(listed) if len(listed) == len(values) else None
            clusters = named if any(one is not None for one in named) else clusters
        if scores is None or not all(map(math.isfinite, (float(scores.min()), float(scores.max())))):
            return None
        if name != "mean" and not math.isclose(float(scores.mean()), value, rel_tol=1e-9, abs_tol=1e-12):
            return None
    codes, count = encode_clusters(_to_hashable(clusters)) if clusters is not None else (None, len(values))
    if count == len(values):
        codes = None
    elif count < 2:
        return None  # a single cluster says nothing about others
    if scores is None:
        found = corpus_interval(str(name), values.items, codes)
        return None if found is None else (found, None if codes is None else count)
    limits = find_score_range(planned, metric)
    if limits is None and higher_is_better is False and float(scores.min()) >= 0:
        limits = (0.0, math.inf)  # a loss between 0 and 1 can be larger in other documents
    try:
        found = mean_interval(scores, codes, limits=limits)
    except AssayError:  # a single document, or equal scores without a known range
        return None
    return found, None if codes is None else count


def _to_hashable(clusters: Sequence[Any]) -> list[Any]:
    return [one if isinstance(one, Hashable) else repr(one) for one in clusters]


def compute_group_interval(parts: Sequence[GroupPart], *, weight_by_size: bool) -> Interval | None:
    """Compute the interval of a group's mean, with its tasks as strata."""
    return compute_stratified_interval(parts, weight_by_size=weight_by_size)
