"""The differences of a comparison as forest plots, for reports and web pages."""

from __future__ import annotations

from assay.viewer.charts import Difference, Figure, Theme, build_forest_figure
from assay.viewer.comparison.comparison_table import format_p_value
from assay.viewer.comparison.records import Comparison, ComparisonRow

__all__ = ["build_differences_figure", "group_differences"]


def group_differences(comparison: Comparison) -> list[list[Difference]]:
    """Group the differences that share a scale: values between 0 and 1 together, each other metric by itself."""
    rows = [*comparison.rows, *([comparison.overall] if comparison.overall is not None else [])]
    shares = [_to_chart_difference(row, whole=row is comparison.overall) for row in rows if row.share]
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
