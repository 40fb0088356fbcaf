"""Scores with confidence intervals: a row for each task and group, a mark for each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay.viewer.charts.theme import (
    ROW_PX,
    Figure,
    Theme,
    build_axis,
    build_layout,
    build_row_axis,
    escape_text,
    format_label,
)

__all__ = ["ScoreMark", "build_scores_figure", "group_by_scale"]

_ROW_FILL = 0.56
"""The share of a row's height that its marks fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMark:
    """One score of one run."""

    name: str
    """The task or group, or its alias."""

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    """The confidence interval; None if it is unknown."""

    run: str = ""
    """The run, if the chart shows several."""

    group: bool = False
    """Whether it is a group: drawn in bold."""

    depth: int = 0
    """How many groups contain it."""

    share: bool = True
    """Whether the metric's values lie between 0 and 1."""

    interval_label: str = "95 % interval"
    """What `low` and `high` are, for the tooltip."""

    higher_is_better: bool | None = None
    note: str = ""
    """More text for the tooltip: `90 of 100 documents`."""


def group_by_scale(marks: Iterable[ScoreMark]) -> list[list[ScoreMark]]:
    """Group marks that can share an axis: all values between 0 and 1 together, each other metric by itself.

    >>> one = ScoreMark(name="a", metric="acc", value=0.5)
    >>> other = ScoreMark(name="b", metric="perplexity", value=21.0, share=False)
    >>> [len(marks) for marks in group_by_scale([one, other, one])]
    [2, 1]
    """
    by_scale: dict[str, list[ScoreMark]] = {}
    for mark in marks:
        by_scale.setdefault("" if mark.share else mark.metric, []).append(mark)
    return list(by_scale.values())


def build_scores_figure(marks: Sequence[ScoreMark], theme: Theme, *, order: Sequence[str] = ()) -> Figure:
    """Build dots with interval bars, the first row on top.

    `order`: the order of the runs, which decides their colours; pass the same one to every figure of a page.
    """
    rows = list(dict.fromkeys((mark.name, mark.metric, mark.group, mark.depth) for mark in marks))
    there = {mark.run for mark in marks}
    runs = [run for run in dict.fromkeys((*order, *(mark.run for mark in marks))) if run in there]
    colours = list(dict.fromkeys((*order, *runs)))
    metrics = {metric for _, metric, _, _ in rows}
    data = [
        _build_trace(
            [mark for mark in marks if mark.run == run],
            rows,
            colour=theme.series[colours.index(run) % len(theme.series)],
            offset=(position - (len(runs) - 1) / 2) * _ROW_FILL / len(runs),
        )
        for position, run in enumerate(runs)
    ]
    names = [_format_row_name(row, with_metric=len(metrics) > 1) for row in rows]
    share = all(mark.share for mark in marks)
    title = next(iter(metrics)) if len(metrics) == 1 else ("score" if share else "value")
    across = build_axis(theme, title, tickformat=".0%") if share else build_axis(theme, title)
    layout = {
        **build_layout(
            theme,
            height=_compute_height(rows, len(runs), two_lines=len(metrics) > 1),
            legend=len(colours) > 1,
        ),
        "xaxis": {**across, **({"range": [-0.02, 1.02]} if share else {})},
        "yaxis": build_row_axis(theme, names),
    }
    return {"data": data, "layout": layout}


_RowKey = tuple[str, str, bool, int]


def _build_trace(
    marks: Sequence[ScoreMark], rows: Sequence[_RowKey], *, colour: str, offset: float
) -> Figure:
    places = {row: number for number, row in enumerate(rows)}
    ends = [
        (mark.value if mark.low is None else mark.low, mark.value if mark.high is None else mark.high)
        for mark in marks
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escape_text(marks[0].run),
        "x": [mark.value for mark in marks],
        "y": [places[mark.name, mark.metric, mark.group, mark.depth] + offset for mark in marks],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - mark.value for mark, (_, high) in zip(marks, ends, strict=True)],
            "arrayminus": [mark.value - low for mark, (low, _) in zip(marks, ends, strict=True)],
            "color": colour,
            "thickness": 2,
            "width": 5,
        },
        "marker": {
            "size": 10,
            "color": colour,
            "symbol": ["diamond" if mark.group else "circle" for mark in marks],
        },
        "hoverinfo": "text",
        "hovertext": [_format_hover(mark) for mark in marks],
    }


def _compute_height(rows: Sequence[_RowKey], runs: int, *, two_lines: bool) -> int:
    """Return a height with room for two lines of text and for a mark of each run."""
    row = max(40 if two_lines else ROW_PX, 15 * runs + 8)
    return 82 + row * len(rows) + (28 if runs > 1 else 0)


def _format_row_name(row: _RowKey, *, with_metric: bool) -> str:
    name, metric, group, depth = row
    shown = f"<b>{format_label(name)}</b>" if group else format_label(name)
    metric_line = (
        f"<br><span style='font-size:11px'>{format_label(metric, max_length=26)}</span>"
        if with_metric
        else ""
    )
    return f"{'  ' * depth}{shown}{metric_line}"


def _format_hover(mark: ScoreMark) -> str:
    arrow = {True: " ↑", False: " ↓", None: ""}[mark.higher_is_better]
    lines = [f"<b>{escape_text(mark.name)}</b>", f"{escape_text(mark.metric)}{arrow}: {mark.value:.4f}"]
    if mark.low is not None and mark.high is not None:
        lines.append(f"{escape_text(mark.interval_label)} {mark.low:.4f} – {mark.high:.4f}")
    return "<br>".join(
        [
            *lines,
            *([escape_text(mark.note)] if mark.note else []),
            *([escape_text(mark.run)] if mark.run else []),
        ]
    )
