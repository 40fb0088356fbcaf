"""The score of each checkpoint of a training run: a line with intervals, regressions and the best checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.viewer.charts.theme import Figure, Theme, build_axis, build_layout, escape_text

__all__ = ["CheckpointMark", "build_training_figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMark:
    """The score of one checkpoint."""

    name: str
    step: float
    value: float
    low: float | None = None
    high: float | None = None
    change: str = ""
    """The change since the previous checkpoint, for the tooltip."""

    alarm: bool = False
    best: bool = False


def build_training_figure(
    marks: Sequence[CheckpointMark], theme: Theme, *, metric: str, share: bool
) -> Figure:
    """Build a line over training steps with an interval bar for each checkpoint."""
    colours = [theme.worse if one.alarm else theme.better if one.best else theme.series[0] for one in marks]
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [one.step for one in marks],
            "y": [one.value for one in marks],
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [(one.value if one.high is None else one.high) - one.value for one in marks],
                "arrayminus": [one.value - (one.value if one.low is None else one.low) for one in marks],
                "color": theme.series[0],
                "thickness": 1.5,
                "width": 4,
            },
            "line": {"color": theme.series[0], "width": 1.5},
            "marker": {
                "size": [12 if one.best or one.alarm else 8 for one in marks],
                "color": colours,
                "symbol": ["x" if one.alarm else "star" if one.best else "circle" for one in marks],
            },
            "hoverinfo": "text",
            "hovertext": [_format_hover(one, metric) for one in marks],
        }
    ]
    layout = build_layout(theme, height=340)
    layout["margin"] = {**layout["margin"], "l": 60}
    layout["xaxis"] = build_axis(theme, "training step", nticks=8)
    layout["yaxis"] = build_axis(theme, metric, tickformat=".1%") if share else build_axis(theme, metric)
    return {"data": data, "layout": layout}


def _format_hover(one: CheckpointMark, metric: str) -> str:
    lines = [f"<b>{escape_text(one.name)}</b>", f"{escape_text(metric)}: {one.value:.4f}"]
    if one.low is not None and one.high is not None:
        lines.append(f"95 % interval {one.low:.4f} – {one.high:.4f}")
    lines += [escape_text(one.change)] if one.change else []
    lines += ["regression"] if one.alarm else []
    return "<br>".join([*lines, *(["best"] if one.best else [])])
