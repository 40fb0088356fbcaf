"""Distributions of scores, lengths, tokens, times and costs: bars with lines at percentiles; and costs by task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.stats.histograms import Bin, Histogram, Scale
from assay.viewer.charts.theme import (
    Figure,
    Theme,
    build_axis,
    build_layout,
    build_row_axis,
    escape_text,
    format_label,
)

__all__ = ["CostBar", "build_costs_figure", "build_distribution_figure", "build_scaled_axis"]

Format = Callable[[float], str]

_MAX_LABELLED_BARS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBar:
    """The cost of a task or judge."""

    name: str
    dollars: float
    note: str = ""


def build_distribution_figure(
    histogram: Histogram,
    theme: Theme,
    *,
    title: str,
    counted: str = "documents",
    format_value: Format = lambda value: f"{value:g}",
    percentiles: bool = True,
) -> Figure:
    """Build a histogram. `percentiles`: mark the median and the 90th and 99th percentile."""
    exact, scale = histogram.exact, histogram.scale
    if exact:
        places = [float(at) for at in range(len(histogram.bins))]
        widths = [0.6] * len(places)
    else:
        lows = scale.to_axis([one.low for one in histogram.bins]).tolist()
        highs = scale.to_axis([one.high for one in histogram.bins]).tolist()
        places = [(low + high) / 2 for low, high in zip(lows, highs, strict=True)]
        widths = [0.96 * (high - low) for low, high in zip(lows, highs, strict=True)]
    whole = max(1, histogram.count)
    bars: dict[str, Any] = {
        "type": "bar",
        "x": places,
        "y": [one.count for one in histogram.bins],
        "width": widths,
        "marker": {"color": theme.series[0], "line": {"width": 0}},
        "hoverinfo": "text",
        "hovertext": [
            f"{_format_range(one, format_value)}: {one.count:,} {counted} ({one.count / whole:.1%})"
            for one in histogram.bins
        ],
    }
    if len(places) <= _MAX_LABELLED_BARS:
        bars |= {
            "text": [f"{one.count:,} ({one.count / whole:.1%})" for one in histogram.bins],
            "textposition": "outside",
            "cliponaxis": False,
            "textfont": {"color": theme.ink},
        }
    if exact:
        ticks = {
            "tickmode": "array",
            "tickvals": places,
            "ticktext": [escape_text(format_value(one.low)) for one in histogram.bins],
        }
        across = build_axis(theme, title, **ticks, showgrid=False)
    else:
        across = build_scaled_axis(theme, title, scale, histogram.low, histogram.high, format_value)
        across["showgrid"] = False
    layout = {
        **build_layout(theme, height=280),
        "xaxis": across,
        "yaxis": build_axis(theme, counted, rangemode="tozero"),
    }
    layout["margin"] = {**layout["margin"], "t": 42 if percentiles and not exact else 24, "l": 56}
    if percentiles and not exact:
        lines, labels = _mark_percentiles(histogram, theme, format_value)
        layout |= {"shapes": lines, "annotations": labels}
    return {"data": [bars], "layout": layout}


def _mark_percentiles(
    histogram: Histogram, theme: Theme, format_value: Format
) -> tuple[list[Figure], list[Figure]]:
    names = {0.5: "median", 0.9: "p90", 0.99: "p99"}
    start, end = histogram.scale.to_axis([histogram.low, histogram.high]).tolist()
    lines, labels = [], []
    for level, (share, value) in enumerate(histogram.quantiles):
        place = float(histogram.scale.to_axis(value))
        lines.append(
            {
                "type": "line",
                "x0": place,
                "x1": place,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.ink, "width": 1.2, "dash": "dot"},
            }
        )
        is_right = end > start and (place - start) / (end - start) > 0.6
        labels.append(
            {
                "x": place,
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "yshift": 1 + 12 * level,
                "xanchor": "right" if is_right else "left",
                "text": escape_text(f"{names[share]} {format_value(value)}"),
                "showarrow": False,
                "font": {"color": theme.ink, "size": 11},
            }
        )
    return lines, labels


def build_scaled_axis(
    theme: Theme, title: str, scale: Scale, low: float, high: float, format_value: Format
) -> Figure:
    """Return an axis for positions on a scale; a logarithmic one has labels of the original values."""
    if scale.kind == "linear":  # plotly writes small numbers with a prefix such as µ, which no cost has
        return build_axis(theme, title, **({"exponentformat": "none"} if high < 0.01 else {}))
    values = _list_log_ticks(low, high, zero=scale.offset > 0)
    return build_axis(
        theme,
        f"{title} (logarithmic)",
        tickmode="array",
        tickvals=scale.to_axis(values).tolist(),
        ticktext=[escape_text(format_value(value)) for value in values],
    )


def _list_log_ticks(low: float, high: float, *, zero: bool) -> list[float]:
    """Return powers of ten between two values; also 2 and 5 times them if there are few."""
    first = math.floor(math.log10(low)) if low > 0 else 0
    last = math.ceil(math.log10(high)) if high > 0 else 1
    factors = (1.0,) if last - first > 3 else (1.0, 3.0) if last - first > 1 else (1.0, 2.0, 5.0)
    found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    found = [value for value in found if low * 0.8 <= value <= high * 1.2]
    return [0.0, *found] if zero and low < 1 else found


def build_costs_figure(bars: Sequence[CostBar], theme: Theme) -> Figure:
    """Build a bar of dollars for each task and judge."""
    from assay.viewer.number_format import format_dollars

    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [bar.dollars for bar in bars],
            "y": list(range(len(bars))),
            "width": 0.6,
            "marker": {"color": theme.series[0], "line": {"width": 0}},
            "text": [format_dollars(bar.dollars) for bar in bars],
            "textposition": "outside",
            "cliponaxis": False,
            "textfont": {"color": theme.ink},
            "hoverinfo": "text",
            "hovertext": [
                f"<b>{escape_text(bar.name)}</b><br>{format_dollars(bar.dollars)}<br>{escape_text(bar.note)}"
                for bar in bars
            ],
        }
    ]
    high = max((bar.dollars for bar in bars), default=0.0) or 1.0
    layout = {
        **build_layout(theme, rows=len(bars)),
        "xaxis": build_axis(theme, "cost in US dollars", range=[0, 1.2 * high], tickprefix="$"),
        "yaxis": build_row_axis(theme, [format_label(bar.name) for bar in bars]),
    }
    return {"data": data, "layout": layout}


def _format_range(one: Bin, format_value: Format) -> str:
    if one.low == one.high:
        return format_value(one.low)
    return f"{format_value(one.low)} to {format_value(one.high)}"
