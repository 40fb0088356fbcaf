"""Estimates of imported runs: those that the files report, completed from the scores of the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.core.errors import AssayError
from assay.core.records.verdicts import Estimate
from assay.stats.intervals.confidence_intervals import encode_clusters, mean_interval
from assay.stats.numerics.exact_summation import to_float_array
from assay.store.runs.imported_runs import ImportedRun, TaskScores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["complete_estimates"]

_TOLERANCE = 1e-9


def complete_estimates(run: ImportedRun, scores: Mapping[str, TaskScores]) -> list[Estimate]:
    """Return the reported estimates with intervals for means, and the means of the scores of tasks that report none."""
    reported = {estimate.task for estimate in run.estimates}
    return [
        *(_add_interval(estimate, scores.get(estimate.task)) for estimate in run.estimates),
        *(
            estimate
            for task, table in scores.items()
            for estimate in _estimate_means(task, table, run.tasks[task].higher_is_better)
            if task not in reported or estimate.metric in run.tasks[task].computed
        ),
    ]


def _estimate_means(task: str, table: TaskScores, directions: Mapping[str, bool]) -> list[Estimate]:
    found = []
    for (pipeline, metric), column in table.columns.items():
        values = _to_scores(column)
        if values is None or not len(values):
            continue
        single = Estimate(
            task=task,
            metric=metric,
            pipeline=pipeline,
            value=float(values.mean()),
            stderr=float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None,
            method="mean",
            scored=len(values),
            unscored=len(column) - len(values),
            higher_is_better=directions.get(metric),
        )
        found.append(_add_interval(single, table))
    return found


def _add_interval(estimate: Estimate, table: TaskScores | None) -> Estimate:
    column = None if table is None else table.columns.get((estimate.pipeline, estimate.metric))
    scores = None if column is None else _to_scores(column)
    if table is None or column is None or scores is None or not len(scores):
        return estimate
    missing = len(column) - len(scores)
    failed = min(missing, table.failed)
    scored = replace(estimate, scored=len(scores), unscored=missing - failed, failed=failed)
    if len(scores) < 2 or abs(float(scores.mean()) - estimate.value) > _TOLERANCE:
        return scored  # not the mean of these scores
    if scored.stderr is None:
        scored = replace(scored, stderr=float(scores.std(ddof=1) / len(scores) ** 0.5), method="mean")
    names = None
    if any(name is not None for name in table.clusters):
        names = [name for name, value in zip(table.clusters, column, strict=True) if value is not None]
    try:
        found = mean_interval(scores, names)
    except AssayError:  # one cluster, or equal scores without a known range
        return scored
    count = encode_clusters(names)[1] if names is not None else len(scores)
    return replace(
        scored,
        interval=(found.low, found.high),
        interval_method=found.method,
        clusters=count if count < len(scores) else None,
    )


def _to_scores(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Return the scores that exist; None if a value is not a number."""
    return to_float_array([value for value in values if value is not None])
