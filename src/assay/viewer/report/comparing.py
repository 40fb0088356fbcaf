"""The comparison in a report: every further run against the first, as a forest plot and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.store.sheets import SheetSource
from assay.viewer.charts import Figure, Theme
from assay.viewer.comparison.comparing import compare_sources
from assay.viewer.comparison.differences import differences, differences_figure
from assay.viewer.comparison.records import CompareOptions, Comparison, Row
from assay.viewer.comparison.showing import detectable_of, p_text, remarks, signed, verdict_of
from assay.viewer.tables import digits

__all__ = ["comparison_parts"]

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


def _part(draw: Draw, comparison: Comparison, at: int) -> dict[str, Any]:
    charts = []
    for number, together in enumerate(differences(comparison)):
        charts.append(draw(f"forest-{at}-{number}", partial(differences_figure, together, comparison.level)))
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
