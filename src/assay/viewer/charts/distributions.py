"""Charts of the documents behind a score: means by category, and the distribution of scores."""

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

__all__ = ["CategoryMark", "HistogramBar", "build_categories_figure", "build_histogram_figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryMark:
    """The mean score of the documents of one category."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    documents: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramBar:
    """The number of documents with a score from `low` to `high`; `low == high`: with exactly that score."""

    low: float
    high: float
    documents: int


def build_categories_figure(
    marks: Sequence[CategoryMark], theme: Theme, *, metric: str = "score", share: bool = True
) -> Figure:
    """Build bars with confidence intervals, in the given order."""
    ends = [
        (mark.value if mark.low is None else mark.low, mark.value if mark.high is None else mark.high)
        for mark in marks
    ]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [mark.value for mark in marks],
            "y": list(range(len(marks))),
            "width": 0.6,
            "marker": {"color": f"{theme.series[0]}99", "line": {"width": 0}},
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [high - mark.value for mark, (_, high) in zip(marks, ends, strict=True)],
                "arrayminus": [mark.value - low for mark, (low, _) in zip(marks, ends, strict=True)],
                "color": theme.ink,
                "thickness": 1.4,
                "width": 4,
            },
            "hoverinfo": "text",
            "hovertext": [_format_hover(mark, metric) for mark in marks],
        }
    ]
    across = (
        build_axis(theme, metric, tickformat=".0%", range=[0, 1.02]) if share else build_axis(theme, metric)
    )
    layout = {
        **build_layout(theme, rows=len(marks)),
        "xaxis": across,
        "yaxis": build_row_axis(theme, [format_label(mark.name) for mark in marks]),
    }
    return {"data": data, "layout": layout}


def build_histogram_figure(bars: Sequence[HistogramBar], theme: Theme, *, metric: str = "score") -> Figure:
    """Build a histogram of scores; a metric with few values has one bar for each."""
    exact = all(bar.low == bar.high for bar in bars)
    whole = sum(bar.documents for bar in bars) or 1
    places = list(range(len(bars))) if exact else [(bar.low + bar.high) / 2 for bar in bars]
    widths = [0.6] * len(bars) if exact else [0.94 * (bar.high - bar.low) for bar in bars]
    data = [
        {
            "type": "bar",
            "x": places,
            "y": [bar.documents for bar in bars],
            "width": widths,
            "marker": {"color": theme.series[0], "line": {"width": 0}},
            "hoverinfo": "text",
            "hovertext": [
                f"{_format_range(bar)}: {bar.documents} documents ({bar.documents / whole:.1%})"
                for bar in bars
            ],
        }
    ]
    ticks = (
        {"tickmode": "array", "tickvals": places, "ticktext": [f"{bar.low:g}" for bar in bars]}
        if exact
        else {}
    )
    layout = {
        **build_layout(theme, height=220),
        "xaxis": build_axis(theme, metric, **ticks, showgrid=False),
        "yaxis": build_axis(theme, "documents", rangemode="tozero"),
    }
    return {"data": data, "layout": layout}


def _format_range(bar: HistogramBar) -> str:
    return f"{bar.low:g}" if bar.low == bar.high else f"{bar.low:g} to {bar.high:g}"


def _format_hover(mark: CategoryMark, metric: str) -> str:
    lines = [f"<b>{escape_text(mark.name)}</b>", f"{escape_text(metric)}: {mark.value:.4f}"]
    if mark.low is not None and mark.high is not None:
        lines.append(f"95 % interval {mark.low:.4f} – {mark.high:.4f}")
    if mark.documents is not None:
        lines.append(f"{mark.documents} documents")
    return "<br>".join(lines)
