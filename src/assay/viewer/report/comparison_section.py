"""The comparison section of a report: each further run compared with the first, as a forest plot and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.store.documents.score_tables import ScoreTableSource
from assay.viewer.charts import Figure, Theme
from assay.viewer.comparison.comparison_table import (
    collect_remarks,
    describe_difference,
    format_detectable,
    format_difference,
    format_p_value,
)
from assay.viewer.comparison.conclusion import state_conclusion
from assay.viewer.comparison.difference_charts import build_differences_figure, group_differences
from assay.viewer.comparison.groups import order_rows
from assay.viewer.comparison.records import CompareOptions, Comparison, ComparisonRow
from assay.viewer.comparison.run_comparison import compare_sources
from assay.viewer.number_format import format_float

__all__ = ["build_comparison_sections"]

AddFigure = Callable[[str, Callable[[Theme], Figure]], str]


def build_comparison_sections(
    add_figure: AddFigure, sources: Sequence[ScoreTableSource], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Build a section for each further run; a warning replaces the table if the runs have nothing in common."""
    parts = []
    for index, (source, label) in enumerate(zip(sources[1:], labels[1:], strict=True), 1):
        part: dict[str, Any] = {
            "first": labels[0],
            "second": label,
            "charts": [],
            "rows": [],
            "notes": [],
            "level": 95,
            "conclusion": "",
        }
        try:
            found = compare_sources(sources[0], source, CompareOptions())
        except AssayError as error:
            part["notes"] = [("warning", error.what)]
        else:
            part |= _build_section(add_figure, found, index)
            part["conclusion"] = state_conclusion(found, first=labels[0], second=label)
        parts.append(part)
    return parts


def _build_section(add_figure: AddFigure, comparison: Comparison, index: int) -> dict[str, Any]:
    charts = []
    for number, group in enumerate(group_differences(comparison)):
        charts.append(
            add_figure(f"forest-{index}-{number}", partial(build_differences_figure, group, comparison.level))
        )
    overall = [comparison.overall] if comparison.overall is not None else []
    rows = [*(row for _, row in order_rows(comparison)), *overall]
    return {
        "level": f"{100 * comparison.level:g}",
        "charts": charts,
        "rows": [_build_row(row, whole=row is comparison.overall or bool(row.members)) for row in rows],
        "notes": list(collect_remarks(comparison)),
    }


def _build_row(row: ComparisonRow, *, whole: bool) -> dict[str, Any]:
    return {
        "task": row.task,
        "metric": row.metric if row.pipeline in ("none", "") else f"{row.metric} ({row.pipeline})",
        "first": format_float(row.first),
        "second": format_float(row.second),
        "difference": format_difference(row.difference, row),
        "interval": f"{format_difference(row.low, row)} to {format_difference(row.high, row)}",
        "p": format_p_value(row.adjusted_p),
        "wins": "" if row.wins is None else f"{row.wins}/{row.ties}/{row.losses}",
        "verdict": describe_difference(row),
        "kind": {True: "better", False: "worse", None: ""}[row.better],
        "detectable": format_detectable(row),
        "whole": whole,
    }
