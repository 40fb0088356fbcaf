"""Scores of one task over time: a line for each model, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from assay.viewer.charts.theme import Figure, Theme, build_axis, build_layout, escape_text

__all__ = ["HistoryPoint", "build_history_figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """The score of one run."""

    model: str
    run: str
    started_s: float
    """The start of the run, in seconds since 1970."""

    value: float
    low: float | None = None
    high: float | None = None


def build_history_figure(points: Sequence[HistoryPoint], theme: Theme, *, metric: str, share: bool) -> Figure:
    """Build a line with interval bars for each model, in the order of time."""
    models = list(dict.fromkeys(point.model for point in points))
    data = []
    for place, model in enumerate(models):
        own = sorted((one for one in points if one.model == model), key=lambda one: one.started_s)
        colour = theme.series[place % len(theme.series)]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": escape_text(model),
                "x": [_format_time(one.started_s) for one in own],
                "y": [one.value for one in own],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(one.value if one.high is None else one.high) - one.value for one in own],
                    "arrayminus": [one.value - (one.value if one.low is None else one.low) for one in own],
                    "color": colour,
                    "thickness": 1.5,
                    "width": 4,
                },
                "line": {"color": colour, "width": 1.5},
                "marker": {"size": 9, "color": colour},
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{escape_text(one.model)}</b><br>{one.value:.4f}<br>{escape_text(one.run)}"
                    for one in own
                ],
            }
        )
    layout = build_layout(theme, height=340, legend=len(models) > 1)
    layout["margin"] = {**layout["margin"], "l": 56}
    layout["xaxis"] = {**build_axis(theme, "start of the run"), "type": "date", "nticks": 4, "tickangle": 0}
    layout["yaxis"] = build_axis(theme, metric, tickformat=".0%") if share else build_axis(theme, metric)
    return {"data": data, "layout": layout}


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
