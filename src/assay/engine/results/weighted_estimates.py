"""Estimate the score over all documents of a task from a weighted subset of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.core.records.subsets import SIMPLE, DocumentSubset
from assay.core.records.verdicts import Estimate
from assay.engine.planning.records import PlannedTask
from assay.engine.results.stop_metrics import find_score_range
from assay.stats.aggregations import find_aggregation_name
from assay.stats.intervals.cluster_errors import extract_scores
from assay.stats.numerics.exact_summation import to_float_array
from assay.stats.numerics.value_list import ValueList
from assay.stats.subsets.estimates import estimate_weighted_mean

__all__ = ["weight_estimate"]


def weight_estimate(
    planned: PlannedTask,
    subset: DocumentSubset,
    estimate: Estimate,
    values: ValueList | None,
    strata: Sequence[int],
) -> Estimate:
    """Return the estimate with the weighted mean, its standard error and its interval.

    `strata` are the strata of the documents, in the order of the values. A metric that is not a mean of document scores cannot
    be weighted: it has no value, unless all documents have the same weight.
    """
    if values is None or not len(values) or not isinstance(estimate.value, (int, float)):
        return replace(estimate, population=subset.documents)
    scores = _read_scores(planned, estimate, values)
    if scores is None:
        if subset.method == SIMPLE:
            return replace(estimate, population=subset.documents)
        return replace(
            estimate,
            value=None,
            stderr=None,
            method="",
            interval=None,
            interval_method="",
            clusters=None,
            population=subset.documents,
            why="a metric that is not a mean of document scores cannot be estimated from a weighted subset",
        )
    higher_is_better = planned.scorer.find_report(estimate.metric).higher_is_better
    limits = find_score_range(planned, estimate.metric)
    if limits is None and higher_is_better is False and float(scores.min()) >= 0:
        limits = (0.0, math.inf)  # a loss between 0 and 1 can be larger in other documents
    try:
        found = estimate_weighted_mean(scores, strata, subset.sizes, limits=limits)
    except AssayError:  # a single document
        return replace(estimate, interval=None, interval_method="", population=subset.documents)
    return replace(
        estimate,
        value=found.value,
        stderr=found.stderr,
        method="weighted",
        interval=(found.interval.low, found.interval.high),
        interval_method=f"weighted, {subset.method}",
        clusters=None,
        plain_stderr=None,
        clustered_stderr=None,
        population=subset.documents,
    )


def _read_scores(planned: PlannedTask, estimate: Estimate, values: ValueList) -> NDArray[np.float64] | None:
    """Return the document scores whose mean is the estimate; None if it is no mean."""
    spec = planned.spec
    scores = to_float_array(values.items)
    if scores is None and spec.dialect.reads_score_key:
        listed, _ = extract_scores(values.items, score_key=spec.score_key, cluster_key=spec.cluster_key)
        scores = to_float_array(listed) if len(listed) == len(values) else None
    if scores is None or not np.isfinite(scores).all():
        return None
    aggregation = planned.scorer.find_report(estimate.metric).aggregation
    is_mean = find_aggregation_name(aggregation) == "mean" or math.isclose(
        float(scores.mean()), estimate.value, rel_tol=1e-9, abs_tol=1e-12
    )
    return scores if is_mean else None
