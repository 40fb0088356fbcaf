"""The comparison in a report: every further run against the first, as a forest plot and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.core.errors import AssayError
from assay.store.sheets import SheetSource
from assay.viewer.charts import Difference, Figure, Theme, forest_figure
from assay.viewer.comparison.comparing import compare_sources
from assay.viewer.comparison.records import CompareOptions, Comparison, Row
from assay.viewer.comparison.showing import detectable_of, p_text, remarks, signed, verdict_of
from assay.viewer.tables import digits

__all__ = ["comparison_parts", "differences"]

Draw = Callable[[str, Callable[[Theme], Figure]], str]


def comparison_parts(
    draw: Draw, sources: Sequence[SheetSource], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """What each further run is like against the first; a word where they have nothing in common."""
    parts = []
    for at, (source, label) in enumerate(zip(sources[1:], labels[1:], strict=True), 1):
        part: dict[str, Any] = {
            "first": labels[0],
            "second": label,
            "charts": [],
            "rows": [],
            "notes": [],
            "level": 95,
        }
        try:
            found = compare_sources(sources[0], source, CompareOptions())
        except AssayError as error:
            part["notes"] = [("warning", error.what)]
        else:
            part |= _part(draw, found, at)
        parts.append(part)
    return parts


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


def _part(draw: Draw, comparison: Comparison, at: int) -> dict[str, Any]:
    charts = []
    for number, together in enumerate(differences(comparison)):
        title = (
            "difference in points: to the right is higher"
            if together[0].share
            else together[0].note.partition(",")[0]
        )

        def make(theme: Theme, together: list[Difference] = together, title: str = title) -> Figure:
            return forest_figure(together, theme, title=title, level=comparison.level)

        charts.append(draw(f"forest-{at}-{number}", make))
    rows = [*comparison.rows, *([comparison.overall] if comparison.overall is not None else [])]
    return {
        "level": f"{100 * comparison.level:g}",
        "charts": charts,
        "rows": [_line(row, whole=row is comparison.overall) for row in rows],
        "notes": list(remarks(comparison)),
    }


def _line(row: Row, *, whole: bool) -> dict[str, Any]:
    return {
        "task": row.task,
        "metric": row.metric if row.pipeline in ("none", "") else f"{row.metric} ({row.pipeline})",
        "first": digits(row.first),
        "second": digits(row.second),
        "difference": signed(row.difference, row),
        "interval": f"{signed(row.low, row)} to {signed(row.high, row)}",
        "p": p_text(row.adjusted_p),
        "wins": "" if row.wins is None else f"{row.wins}/{row.ties}/{row.losses}",
        "verdict": verdict_of(row),
        "kind": {True: "better", False: "worse", None: ""}[row.better],
        "detectable": detectable_of(row),
        "whole": whole,
    }
