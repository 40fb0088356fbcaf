"""The differences of a comparison as forest plots, for reports and web pages."""

from __future__ import annotations

from assay.viewer.charts import Difference, Figure, Theme, build_forest_figure
from assay.viewer.comparison.comparison_table import format_p_value
from assay.viewer.comparison.groups import list_grouped_tasks, order_rows
from assay.viewer.comparison.records import Comparison, ComparisonRow

_MAX_ROWS = 16
"""The number of rows above which a chart has no tasks inside of groups."""

__all__ = ["build_differences_figure", "group_differences"]


def group_differences(comparison: Comparison) -> list[list[Difference]]:
    """Group the differences that share a scale: values between 0 and 1 together, each other metric by itself.

    Of many tasks, those inside of groups are left out; the table has them.
    """
    listed = [row for _, row in order_rows(comparison)]
    if comparison.groups and len(listed) > _MAX_ROWS:
        inside = list_grouped_tasks(comparison)
        listed = [row for row in listed if row.members or row.task not in inside]
    rows = [*listed, *([comparison.overall] if comparison.overall is not None else [])]
    shares = [
        _to_chart_difference(row, whole=row is comparison.overall or bool(row.members))
        for row in rows
        if row.share
    ]
    return [*([shares] if shares else []), *([_to_chart_difference(row)] for row in rows if not row.share)]


def _to_chart_difference(row: ComparisonRow, *, whole: bool = False) -> Difference:
    counted = "" if row.wins is None else f", {row.wins} better, {row.losses} worse"
    return Difference(
        name=row.category or row.task,
        value=row.difference,
        low=row.low,
        high=row.high,
        better=row.better,
        overall=whole,
        share=row.share,
        note=f"{row.metric}, {row.documents} documents{counted}, p {format_p_value(row.adjusted_p)}",
    )


def build_differences_figure(differences: list[Difference], level: float, theme: Theme) -> Figure:
    """Build a forest plot of differences that share a scale."""
    metric = differences[0].note.partition(",")[0]
    title = "difference in percentage points" if differences[0].share else metric
    return build_forest_figure(differences, theme, title=title, level=level)
