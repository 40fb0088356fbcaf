"""Compute the confidence interval of a task or a group, also for few documents and for clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from assay.core.specs import TaskSpec
from assay.stats.aggregations import Aggregation, find_aggregation_name
from assay.stats.bootstrap import BOOTSTRAP_AGGREGATIONS
from assay.stats.cluster_errors import extract_scores
from assay.stats.confidence_intervals import Interval, is_binary, mean_interval
from assay.stats.exact_summation import to_float_array
from assay.stats.groups import GroupPart, compute_stratified_interval
from assay.stats.resampling import bootstrap_interval
from assay.stats.value_list import ValueList

__all__ = ["compute_group_interval", "compute_task_interval"]

_RESAMPLED = BOOTSTRAP_AGGREGATIONS | {"weighted_perplexity", "bits_per_byte"}
_RESAMPLES = 1000

IntervalAndMethod = tuple[tuple[float, float] | None, str]
"""Lower and upper bound, and the method; None if there is no interval."""


def compute_task_interval(
    spec: TaskSpec, aggregation: str | Aggregation, values: ValueList, value: Any
) -> IntervalAndMethod:
    """Compute the interval of a task's metric: of a mean from the scores, of a corpus metric by bootstrap.

    An aggregation of the task's own code counts as a mean if it returns the same value."""
    if not len(values) or not isinstance(value, (int, float)):
        return None, ""
    name = find_aggregation_name(aggregation)
    if name in _RESAMPLED:
        found = bootstrap_interval(name, values.items, resamples=_RESAMPLES)
        sound = found is not None and math.isfinite(found.half_width) and found.half_width > 0
        return _to_pair(found) if found is not None and sound else (None, "")
    clusters = None
    scores = to_float_array(values.items)
    if scores is None and spec.dialect.reads_score_key:
        listed, clusters = extract_scores(
            values.items, score_key=spec.score_key, cluster_key=spec.cluster_key
        )
        scores = to_float_array(listed) if len(listed) == len(values) else None
    if scores is None or not all(map(math.isfinite, (float(scores.min()), float(scores.max())))):
        return None, ""
    if len(scores) == 1 and not is_binary(scores):
        return None, ""
    if name != "mean" and not math.isclose(float(scores.mean()), value, rel_tol=1e-9, abs_tol=1e-12):
        return None, ""
    known = clusters if clusters is not None and any(one is not None for one in clusters) else None
    if known is not None and len(set(known)) == 1:
        return None, ""  # a single cluster says nothing about others
    return _to_pair(mean_interval(scores, known))


def compute_group_interval(parts: Sequence[GroupPart], *, weight_by_size: bool) -> IntervalAndMethod:
    """Compute the interval of a group's mean, with its tasks as strata."""
    found = compute_stratified_interval(parts, weight_by_size=weight_by_size)
    return (None, "") if found is None else _to_pair(found)


def _to_pair(interval: Interval) -> IntervalAndMethod:
    return (interval.low, interval.high), interval.method
