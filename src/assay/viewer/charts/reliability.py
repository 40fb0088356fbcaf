"""The reliability diagram: accuracy by confidence with intervals, the line of a calibrated model, and documents per bin."""

from __future__ import annotations

from assay.stats.reliability import Reliability
from assay.viewer.charts.theme import Figure, Theme, build_axis, build_layout

__all__ = ["build_reliability_figure"]


def build_reliability_figure(found: Reliability, theme: Theme) -> Figure:
    """Build the diagram above a histogram of the confidences; both have the same horizontal axis."""
    colour = theme.series[0]
    bins = found.bins
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "name": "perfect calibration",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"color": theme.zero, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }
    accuracy = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "accuracy, 95 % interval",
        "x": [one.confidence for one in bins],
        "y": [one.accuracy for one in bins],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [one.accuracy_high - one.accuracy for one in bins],
            "arrayminus": [one.accuracy - one.accuracy_low for one in bins],
            "color": colour,
            "thickness": 1.8,
            "width": 5,
        },
        "line": {"color": colour, "width": 2},
        "marker": {"size": 9, "color": colour},
        "hoverinfo": "text",
        "hovertext": [
            f"confidence {one.confidence:.1%}: accuracy {one.accuracy:.1%}"
            f" ({one.accuracy_low:.1%} – {one.accuracy_high:.1%})<br>{one.documents:,} documents"
            for one in bins
        ],
    }
    counts = {
        "type": "bar",
        "x": [(one.low + one.high) / 2 for one in bins],
        "y": [one.documents for one in bins],
        "width": [0.94 * (one.high - one.low) for one in bins],
        "marker": {"color": f"{theme.series[0]}99", "line": {"width": 0}},
        "yaxis": "y2",
        "showlegend": False,
        "hoverinfo": "text",
        "hovertext": [
            f"confidence {one.low:.0%} to {one.high:.0%}: {one.documents:,} documents" for one in bins
        ],
    }
    layout = build_layout(theme, height=460, legend=True)
    layout["margin"] = {**layout["margin"], "l": 60}
    layout["xaxis"] = build_axis(
        theme, "confidence in the most likely choice", range=[-0.02, 1.02], tickformat=".0%", anchor="y2"
    )
    layout["yaxis"] = build_axis(theme, "accuracy", range=[-0.03, 1.03], tickformat=".0%", domain=[0.34, 1])
    layout["yaxis2"] = build_axis(theme, "documents", rangemode="tozero", domain=[0, 0.24], nticks=4)
    return {"data": [diagonal, accuracy, counts], "layout": layout}
