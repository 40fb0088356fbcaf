"""Scores of two runs against each other: a point for each task, or for each document that both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.viewer.charts.theme import Figure, Theme, build_axis, build_layout, escape_text

__all__ = ["PairCount", "TaskPair", "build_document_scatter_figure", "build_task_scatter_figure"]

_MAX_BUBBLES = 36
_MAX_BUBBLE_PX = 84


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPair:
    """The scores of a task in two runs with their 95 % intervals."""

    name: str
    metric: str
    first: float
    second: float
    first_low: float | None = None
    first_high: float | None = None
    second_low: float | None = None
    second_high: float | None = None
    higher_is_better: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCount:
    """The number of documents with a pair of scores."""

    first: float
    second: float
    documents: int
    example: int = -1
    """The number of a document with these scores."""


def build_task_scatter_figure(
    pairs: Sequence[TaskPair], theme: Theme, *, first: str, second: str, share: bool = True
) -> Figure:
    """Build a point with intervals for each task; above the diagonal the second run is higher."""
    data: list[dict[str, Any]] = []
    for name, colour, symbol, chosen in _split_sides(pairs, theme):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [one.first for one in chosen],
                "y": [one.second for one in chosen],
                "error_x": _build_error(
                    [(one.first, one.first_low, one.first_high) for one in chosen], colour
                ),
                "error_y": _build_error(
                    [(one.second, one.second_low, one.second_high) for one in chosen], colour
                ),
                "marker": {"size": 10, "color": colour, "symbol": symbol},
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{escape_text(one.name)}</b> {escape_text(one.metric)}<br>"
                    f"{escape_text(first)}: {one.first:.4f}<br>{escape_text(second)}: {one.second:.4f}"
                    for one in chosen
                ],
            }
        )
    ends = [
        end
        for one in pairs
        for end in (
            one.first,
            one.second,
            one.first_low,
            one.first_high,
            one.second_low,
            one.second_high,
        )
        if end is not None
    ]
    low, high = (0.0, 1.0) if share else (min(ends, default=0.0), max(ends, default=1.0))
    return {
        "data": [_build_diagonal(low, high, theme), *data],
        "layout": _build_square_layout(theme, first, second, low, high, share=share),
    }


def _split_sides(pairs: Sequence[TaskPair], theme: Theme) -> list[tuple[str, str, str, list[TaskPair]]]:
    """Return (name, colour, symbol, pairs) of the tasks in which the second run is better, worse or equal."""
    sides: dict[str, list[TaskPair]] = {"better": [], "worse": [], "equal": []}
    for one in pairs:
        difference = (one.second - one.first) * (1 if one.higher_is_better else -1)
        sides["better" if difference > 0 else "worse" if difference < 0 else "equal"].append(one)
    styles = {
        "better": (theme.series[0], "triangle-up"),
        "worse": (theme.series[1], "triangle-down"),
        "equal": (theme.faint, "circle"),
    }
    return [(f"{name} ({len(chosen)})", *styles[name], chosen) for name, chosen in sides.items() if chosen]


def _build_error(values: Sequence[tuple[float, float | None, float | None]], colour: str) -> Figure:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if high is None else high - value for value, _, high in values],
        "arrayminus": [0.0 if low is None else value - low for value, low, _ in values],
        "color": f"{colour}88",
        "thickness": 1.2,
        "width": 3,
    }


def build_document_scatter_figure(
    counts: Sequence[PairCount],
    theme: Theme,
    *,
    first: str,
    second: str,
    metric: str,
    higher_is_better: bool = True,
    share: bool = True,
) -> Figure:
    """Build a bubble for each pair of scores, as large as its number of documents; small points if there are many pairs."""
    bubbles = len(counts) <= _MAX_BUBBLES
    most = max((one.documents for one in counts), default=1)
    data: list[dict[str, Any]] = []
    for name, colour, symbol, sign in (
        ("better", theme.series[0], "triangle-up", 1),
        ("worse", theme.series[1], "triangle-down", -1),
        ("equal", theme.faint, "circle", 0),
    ):
        chosen = [
            one
            for one in counts
            if _get_sign(one.second - one.first) * (1 if higher_is_better else -1) == sign
        ]
        if not chosen:
            continue
        total = sum(one.documents for one in chosen)
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers+text" if bubbles else "markers",
            "name": f"{name} ({total:,})",
            "x": [one.first for one in chosen],
            "y": [one.second for one in chosen],
            "marker": {"color": colour, "symbol": "circle" if bubbles else symbol, "size": 6, "opacity": 0.5},
            "hoverinfo": "text",
            "hovertext": [
                f"{escape_text(first)}: {one.first:g}<br>{escape_text(second)}: {one.second:g}<br>"
                + (f"document {one.example}" if one.documents == 1 else f"{one.documents:,} documents")
                for one in chosen
            ],
        }
        if bubbles:
            trace["marker"] |= {
                "size": [max(8.0, _MAX_BUBBLE_PX * (one.documents / most) ** 0.5) for one in chosen],
                "opacity": 0.35,
                "line": {"color": colour, "width": 1.5},
            }
            trace |= {
                "text": [f"{one.documents:,}" for one in chosen],
                "textposition": "middle center",
                "textfont": {"color": theme.ink, "size": 13},
                "cliponaxis": False,
            }
        data.append(trace)
    values = [value for one in counts for value in (one.first, one.second)]
    low, high = (0.0, 1.0) if share else (min(values, default=0.0), max(values, default=1.0))
    layout = _build_square_layout(
        theme,
        f"{first}: {metric}",
        f"{second}: {metric}",
        low,
        high,
        share=share,
        spread=0.22 if bubbles else 0.04,
    )
    return {"data": [_build_diagonal(low, high, theme), *data], "layout": layout}


def _get_sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _build_diagonal(low: float, high: float, theme: Theme) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [low, high],
        "y": [low, high],
        "line": {"color": theme.zero, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _build_square_layout(
    theme: Theme, first: str, second: str, low: float, high: float, *, share: bool, spread: float = 0.04
) -> Figure:
    margin = spread * ((high - low) or 1.0)
    limits = [low - margin, high + margin]
    layout = build_layout(theme, height=460, legend=True)
    layout["margin"] = {**layout["margin"], "l": 64}
    more = {"tickformat": ".0%", "tickvals": [0, 0.2, 0.4, 0.6, 0.8, 1]} if share else {}
    layout["xaxis"] = build_axis(theme, first, range=limits, **more)
    layout["yaxis"] = build_axis(theme, second, range=limits, **more)
    return layout
