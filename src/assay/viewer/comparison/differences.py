"""The differences between two runs as charts show them, in reports and on pages alike."""

from __future__ import annotations

from assay.viewer.charts import Difference, Figure, Theme, forest_figure
from assay.viewer.comparison.records import Comparison, Row
from assay.viewer.comparison.showing import p_text

__all__ = ["differences", "differences_figure"]


def differences(comparison: Comparison) -> list[list[Difference]]:
    """The differences for charts: those of shares on one scale, any other metric by itself."""
    rows = [*comparison.rows, *([comparison.overall] if comparison.overall is not None else [])]
    shares = [_difference(row, whole=row is comparison.overall) for row in rows if row.share]
    return [*([shares] if shares else []), *([_difference(row)] for row in rows if not row.share)]


def _difference(row: Row, *, whole: bool = False) -> Difference:
    counted = "" if row.wins is None else f", {row.wins} won, {row.losses} lost"
    return Difference(
        name=row.category or row.task,
        value=row.difference,
        low=row.low,
        high=row.high,
        better=row.better,
        whole=whole,
        share=row.share,
        note=f"{row.metric}, {row.documents} documents{counted}, p {p_text(row.adjusted_p)}",
    )


def differences_figure(together: list[Difference], level: float, theme: Theme) -> Figure:
    """A forest plot of differences that have one scale."""
    metric = together[0].note.partition(",")[0]
    title = "difference in points: to the right is higher" if together[0].share else metric
    return forest_figure(together, theme, title=title, level=level)
