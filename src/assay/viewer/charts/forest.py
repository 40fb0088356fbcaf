"""The forest plot: differences with their intervals around a line at zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.viewer.charts.theme import Figure, Theme, axis, frame, label, plain, rows_axis

__all__ = ["Difference", "forest_figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much one run scores above another in one row."""

    name: str
    value: float
    low: float
    high: float
    better: bool | None = None
    """Whether chance alone is ruled out, and for which side; None: no difference was seen."""

    whole: bool = False
    """All tasks together: shown in bold, as a diamond."""

    share: bool = True
    """Whether it is a difference of shares, shown in points."""

    note: str = ""
    """More for whoever points at it: the p-value, the number of documents."""


def forest_figure(
    differences: Sequence[Difference], theme: Theme, *, title: str = "", level: float = 0.95
) -> Figure:
    """A row for each difference; coloured where chance alone is ruled out, grey elsewhere."""
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
            "y": [at],
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
                "size": 12 if one.whole else 10,
                "color": colour,
                "symbol": "diamond" if one.whole else "circle",
            },
            "hoverinfo": "text",
            "hovertext": [_hover(one, scale, level)],
            "showlegend": False,
        }
        for at, (one, colour) in enumerate(zip(differences, colours, strict=True))
    ]
    names = [f"<b>{label(one.name)}</b>" if one.whole else label(one.name) for one in differences]
    unit = "difference in points" if scale == 100 else "difference"
    layout = {
        **frame(theme, rows=len(differences)),
        "xaxis": axis(theme, title or unit, range=[-1.08 * scale * reach, 1.08 * scale * reach]),
        "yaxis": rows_axis(theme, names),
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


def _hover(one: Difference, scale: int, level: float) -> str:
    digits = 2 if scale == 100 else 4
    lines = [
        f"<b>{plain(one.name)}</b>",
        f"{scale * one.value:+.{digits}f}{' points' if scale == 100 else ''}",
        f"{100 * level:g} % interval {scale * one.low:+.{digits}f} to {scale * one.high:+.{digits}f}",
        {True: "better", False: "worse", None: "no difference seen"}[one.better],
    ]
    return "<br>".join([*lines, *([plain(one.note)] if one.note else [])])
