"""The interval of a task's or a group's number, where it is a mean: for few documents and for clusters, where twice the
standard error is not one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from assay.core.specs import TaskSpec
from assay.stats.aggregations import Aggregation, aggregation_name
from assay.stats.bootstrap import RESAMPLED
from assay.stats.cluster_errors import scores_in
from assay.stats.confidence_intervals import Interval, is_binary, mean_interval
from assay.stats.exact_summation import plain_floats
from assay.stats.groups import Part, stratified_interval
from assay.stats.resampling import bootstrap_interval
from assay.stats.value_list import Values

__all__ = ["compute_group_interval", "compute_task_interval"]

_RESAMPLED = RESAMPLED | {"weighted_perplexity", "bits_per_byte"}
_RESAMPLES = 1000

IntervalAndMethod = tuple[tuple[float, float] | None, str]
"""The ends and the method; None where there is no interval."""


def compute_task_interval(
    spec: TaskSpec, aggregation: str | Aggregation, values: Values, value: Any
) -> IntervalAndMethod:
    """The interval of a mean of documents' scores, also where the task's own code took it and came to the same; of a
    corpus metric from resamples of the documents."""
    if not len(values) or not isinstance(value, (int, float)):
        return None, ""
    name = aggregation_name(aggregation)
    if name in _RESAMPLED:
        found = bootstrap_interval(name, values.items, resamples=_RESAMPLES)
        sound = found is not None and math.isfinite(found.half_width) and found.half_width > 0
        return _to_pair(found) if found is not None and sound else (None, "")
    clusters = None
    scores = plain_floats(values.items)
    if scores is None and spec.dialect.reads_score_key:
        listed, clusters = scores_in(values.items, score_key=spec.score_key, cluster_key=spec.cluster_key)
        scores = plain_floats(listed) if len(listed) == len(values) else None
    if scores is None or not all(map(math.isfinite, (float(scores.min()), float(scores.max())))):
        return None, ""
    if len(scores) == 1 and not is_binary(scores):
        return None, ""
    if name != "mean" and not math.isclose(float(scores.mean()), value, rel_tol=1e-9, abs_tol=1e-12):
        return None, ""
    known = clusters if clusters is not None and any(one is not None for one in clusters) else None
    if known is not None and len(set(known)) == 1:
        return None, ""  # all documents are about one thing: nobody can tell what others would give
    return _to_pair(mean_interval(scores, known))


def compute_group_interval(parts: Sequence[Part], *, weight_by_size: bool) -> IntervalAndMethod:
    """The interval of a group's mean, its tasks being strata."""
    found = stratified_interval(parts, weight_by_size=weight_by_size)
    return (None, "") if found is None else _to_pair(found)


def _to_pair(interval: Interval) -> IntervalAndMethod:
    return (interval.low, interval.high), interval.method
