"""A score against another number of each document: a sample of documents, and means by bins with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.stats.histograms import Scale
from assay.stats.trends import TrendBin
from assay.viewer.charts.amounts import build_scaled_axis
from assay.viewer.charts.theme import Figure, Theme, build_axis, build_layout, escape_text

__all__ = ["build_trend_figure"]

_JITTER = 0.035


def build_trend_figure(
    points: NDArray[np.float64],
    bins: Sequence[TrendBin],
    theme: Theme,
    *,
    title: str,
    metric: str,
    scale: Scale,
    share: bool = True,
) -> Figure:
    """Build a scatter plot of documents, with the means of bins above it.

    `points`: rows (document, number, score). Scores of 0 and 1 are spread a little, so that documents do not hide each other.
    """
    numbers, scores = points[1], points[2]
    binary = bool(len(scores)) and bool(((scores == 0) | (scores == 1)).all())
    shift = np.random.default_rng(0).uniform(-_JITTER, _JITTER, len(scores)) if binary else 0.0
    documents: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "document",
        "x": np.round(scale.to_axis(numbers), 4).tolist(),
        "y": np.round(scores + shift, 4).tolist(),
        "marker": {"size": 5, "color": theme.faint, "opacity": 0.35},
        "customdata": [[int(number), across, score] for number, across, score in points.T.tolist()],
        "hovertemplate": (
            f"document %{{customdata[0]}}<br>{escape_text(title)}: %{{customdata[1]}}<br>"
            f"{escape_text(metric)}: %{{customdata[2]}}<extra></extra>"
        ),
    }
    middles = scale.to_axis([one.middle for one in bins]).tolist()
    colour = theme.series[0]
    means: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "mean, 95 % interval",
        "x": middles,
        "y": [one.mean for one in bins],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [0.0 if one.mean_high is None else one.mean_high - one.mean for one in bins],
            "arrayminus": [0.0 if one.mean_low is None else one.mean - one.mean_low for one in bins],
            "color": colour,
            "thickness": 1.8,
            "width": 5,
        },
        "line": {"color": colour, "width": 2},
        "marker": {"size": 9, "color": colour},
        "hoverinfo": "text",
        "hovertext": [
            f"{one.low:g} to {one.high:g}: {escape_text(metric)} {one.mean:.4f}"
            + ("" if one.mean_low is None else f" ({one.mean_low:.4f} – {one.mean_high:.4f})")
            + f"<br>{one.documents:,} documents"
            for one in bins
        ],
    }
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    layout = build_layout(theme, height=340, legend=True)
    layout["margin"] = {**layout["margin"], "l": 60}
    layout["xaxis"] = build_scaled_axis(theme, title, scale, low, high, lambda value: f"{value:g}")
    layout["yaxis"] = (
        build_axis(theme, metric, range=[-0.06, 1.06], tickformat=".0%")
        if share
        else build_axis(theme, metric)
    )
    return {"data": [documents, means], "layout": layout}
