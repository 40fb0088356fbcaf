"""What follows from p-values once it is known how many there are: which differences stand, and what would have been seen.

Whoever compares five models on twenty tasks asks a hundred questions. They count together, so that a difference found among
them is not the one in twenty that chance makes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from assay.stats.comparison import detectable_difference
from assay.stats.distributions import normal_cdf, normal_quantile
from assay.stats.multiple import adjusted
from assay.viewer.comparison.records import Comparison, Row

__all__ = ["settled"]


def settled(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with p-values that allow for all their rows together; categories are a family of their own."""
    if not comparisons:
        return []
    correction, level = comparisons[0].correction, comparisons[0].level
    rows = iter(_settled([row for one in comparisons for row in one.rows], correction, level))
    parts = iter(_settled([row for one in comparisons for row in one.categories], correction, level))
    found = []
    for one in comparisons:
        own = tuple(next(rows) for _ in one.rows)
        categories = tuple(next(parts) for _ in one.categories)
        found.append(replace(one, rows=own, categories=categories, overall=_overall(own, level)))
    family = sum(len(one.rows) for one in comparisons)
    return [replace(one, family=family) for one in found]


def _settled(rows: Sequence[Row], correction: str, level: float) -> list[Row]:
    raised = adjusted([row.p_value for row in rows], correction)
    tests = 1 if correction == "none" else len(rows)
    made = []
    for row, p_value in zip(rows, raised, strict=True):
        differs = p_value < 1 - level
        better = (row.difference > 0) == row.higher_is_better if differs else None
        reach = detectable_difference(row.stderr, row.degrees, level=level, tests=tests)
        made.append(replace(row, adjusted_p=p_value, differs=differs, better=better, detectable=reach))
    return made


def _overall(rows: Sequence[Row], level: float) -> Row | None:
    """The mean difference over tasks, each counting alike, where all are shares: tasks as strata."""
    tasks: dict[str, Row] = {}
    for row in rows:
        if row.share and row.higher_is_better and math.isfinite(row.low) and row.degrees > 0:
            tasks.setdefault(row.task, row)
    if len(tasks) < 2 or len(tasks) < len({row.task for row in rows}):
        return None
    several = list(tasks.values())
    count = len(several)
    value = sum(row.difference for row in several) / count
    error = math.sqrt(sum(row.stderr**2 for row in several)) / count
    half = normal_quantile((1 + level) / 2) * error
    p_value = 2 * normal_cdf(-abs(value) / error) if error > 0 else 1.0
    differs = p_value < 1 - level
    return Row(
        task=f"all {count} tasks",
        metric="mean",
        pipeline="",
        first=sum(row.first for row in several) / count,
        second=sum(row.second for row in several) / count,
        difference=value,
        stderr=error,
        low=value - half,
        high=value + half,
        interval_method="stratified",
        p_value=p_value,
        adjusted_p=p_value,
        test="z",
        differs=differs,
        better=value > 0 if differs else None,
        detectable=detectable_difference(error, math.inf, level=level),
        documents=sum(row.documents for row in several),
        wins=sum(row.wins or 0 for row in several),
        ties=sum(row.ties or 0 for row in several),
        losses=sum(row.losses or 0 for row in several),
    )
