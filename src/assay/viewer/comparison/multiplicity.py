"""Adjustment of p-values for the number of tests, and what follows: significance and detectable differences.

Comparing five models on twenty tasks makes a hundred tests. Without an adjustment, about five would be significant by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from assay.stats.comparisons.comparison import find_detectable_difference
from assay.stats.comparisons.multiplicity import adjust_p_values
from assay.stats.comparisons.stratified import Stratum, combine_strata, compute_flip_error
from assay.viewer.comparison.records import Comparison, ComparisonRow

__all__ = ["adjust_comparisons", "build_stratum"]


def adjust_comparisons(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Adjust the p-values of all rows together; the rows of categories and of groups are adjusted separately."""
    if not comparisons:
        return []
    correction, level = comparisons[0].correction, comparisons[0].level
    rows = iter(_adjust_rows([row for one in comparisons for row in one.rows], correction, level))
    parts = iter(_adjust_rows([row for one in comparisons for row in one.categories], correction, level))
    groups = iter(_adjust_rows([row for one in comparisons for row in one.groups], correction, level))
    found = []
    for one in comparisons:
        own = tuple(next(rows) for _ in one.rows)
        categories = tuple(next(parts) for _ in one.categories)
        whole = tuple(next(groups) for _ in one.groups)
        overall = _compute_overall(own, level)
        found.append(replace(one, rows=own, categories=categories, groups=whole, overall=overall))
    family = sum(len(one.rows) for one in comparisons)
    return [replace(one, family=family) for one in found]


def _adjust_rows(rows: Sequence[ComparisonRow], correction: str, level: float) -> list[ComparisonRow]:
    adjusted_p_values = adjust_p_values([row.p_value for row in rows], correction)
    tests = 1 if correction == "none" else len(rows)
    adjusted_rows = []
    for row, p_value in zip(rows, adjusted_p_values, strict=True):
        differs = p_value < 1 - level and not row.blocked
        better = (row.difference > 0) == row.higher_is_better if differs else None
        reach = find_detectable_difference(
            row.stderr,
            row.degrees,
            documents=row.documents,
            binary=row.test == "exact McNemar",
            level=level,
            tests=tests,
        )
        adjusted_rows.append(
            replace(row, adjusted_p=p_value, differs=differs, better=better, detectable=reach)
        )
    return adjusted_rows


def _compute_overall(rows: Sequence[ComparisonRow], level: float) -> ComparisonRow | None:
    """Return the unweighted mean difference over tasks (stratified); None unless all values lie between 0 and 1."""
    tasks: dict[str, ComparisonRow] = {}
    for row in rows:
        if row.share and row.higher_is_better and math.isfinite(row.low) and row.degrees > 0:
            tasks.setdefault(row.task, row)
    if len(tasks) < 2 or len(tasks) < len({row.task for row in rows}):
        return None
    task_rows = list(tasks.values())
    count = len(task_rows)
    found = combine_strata([build_stratum(row) for row in task_rows], level=level)
    blocked = tuple(dict.fromkeys(kind for row in task_rows for kind in row.blocked))
    differs = found.p_value < 1 - level and not blocked
    return ComparisonRow(
        task=f"all {count} tasks",
        metric="mean",
        pipeline="",
        first=sum(row.first for row in task_rows) / count,
        second=sum(row.second for row in task_rows) / count,
        difference=found.value,
        stderr=found.stderr,
        degrees=found.degrees,
        low=found.low,
        high=found.high,
        interval_method="stratified t",
        p_value=found.p_value,
        adjusted_p=found.p_value,
        test="t",
        differs=differs,
        better=found.value > 0 if differs else None,
        detectable=find_detectable_difference(found.stderr, found.degrees, level=level),
        documents=sum(row.documents for row in task_rows),
        wins=sum(row.wins or 0 for row in task_rows),
        ties=sum(row.ties or 0 for row in task_rows),
        losses=sum(row.losses or 0 for row in task_rows),
        blocked=blocked,
    )


def build_stratum(row: ComparisonRow) -> Stratum:
    """Return the difference of a task with the sample's standard error; that of the row if all documents agree."""
    units = row.documents if row.clusters is None else row.clusters
    error = 0.0
    if (
        row.test == "exact McNemar"
    ):  # the row's error is that of the adjusted interval, whose center is another
        error = compute_flip_error(row.wins or 0, row.losses or 0, row.documents)
    return Stratum(value=row.difference, stderr=error or row.stderr, degrees=units - 1)
