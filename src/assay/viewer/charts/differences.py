"""The forest plot: differences and their confidence intervals around a line at zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.viewer.charts.theme import (
    Figure,
    Theme,
    build_axis,
    build_layout,
    build_row_axis,
    escape_text,
    format_label,
)

__all__ = ["Difference", "build_forest_figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between two runs in one row."""

    name: str
    value: float
    low: float
    high: float
    better: bool | None = None
    """Whether the second run is significantly better (True) or worse (False); None: no significant difference."""

    overall: bool = False
    """Whether it is the difference over all tasks: drawn in bold, as a diamond."""

    share: bool = True
    """Whether it is a difference of values between 0 and 1, shown in percentage points."""

    note: str = ""
    """More text for the tooltip: the p-value, the number of documents."""


def build_forest_figure(
    differences: Sequence[Difference], theme: Theme, *, title: str = "", level: float = 0.95
) -> Figure:
    """Build a row for each difference; significant ones are coloured, others grey."""
    scale = 100 if differences and all(one.share for one in differences) else 1
    colours = [{True: theme.better, False: theme.worse, None: theme.faint}[one.better] for one in differences]
    reach = (
        max((abs(end) for one in differences for end in (one.low, one.high, one.value)), default=1.0) or 1.0
    )
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [scale * one.value],
            "y": [index],
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [scale * (one.high - one.value)],
                "arrayminus": [scale * (one.value - one.low)],
                "color": colour,
                "thickness": 2,
                "width": 5,
            },
            "marker": {
                "size": 12 if one.overall else 10,
                "color": colour,
                "symbol": "diamond" if one.overall else "circle",
            },
            "hoverinfo": "text",
            "hovertext": [_format_hover(one, scale, level)],
            "showlegend": False,
        }
        for index, (one, colour) in enumerate(zip(differences, colours, strict=True))
    ]
    names = [
        f"<b>{format_label(one.name)}</b>" if one.overall else format_label(one.name) for one in differences
    ]
    unit = "difference in points" if scale == 100 else "difference"
    layout = {
        **build_layout(theme, rows=len(differences)),
        "xaxis": build_axis(theme, title or unit, range=[-1.08 * scale * reach, 1.08 * scale * reach]),
        "yaxis": build_row_axis(theme, names),
        "shapes": [
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": 0,
                "x1": 0,
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.zero, "width": 1.5, "dash": "dot"},
                "layer": "below",
            }
        ],
    }
    return {"data": data, "layout": layout}


def _format_hover(one: Difference, scale: int, level: float) -> str:
    digits = 2 if scale == 100 else 4
    lines = [
        f"<b>{escape_text(one.name)}</b>",
        f"{scale * one.value:+.{digits}f}{' points' if scale == 100 else ''}",
        f"{100 * level:g} % interval {scale * one.low:+.{digits}f} to {scale * one.high:+.{digits}f}",
        {True: "better", False: "worse", None: "no significant difference"}[one.better],
    ]
    return "<br>".join([*lines, *([escape_text(one.note)] if one.note else [])])
