"""Scores with their intervals: a row for each task and group, a mark for each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay.viewer.charts.theme import ROW_PX, Figure, Theme, axis, frame, label, plain, rows_axis

__all__ = ["ScoreMark", "on_one_scale", "scores_figure"]

_SPREAD = 0.56
"""How much of a row its marks may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMark:
    """One number of one run."""

    name: str
    """The task or group, as people call it."""

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    """The interval; None where none is known."""

    run: str = ""
    """Whose number it is, where several runs are shown."""

    group: bool = False
    """Shown in bold."""

    depth: int = 0
    """How many groups it is in."""

    share: bool = True
    """Whether it lies between 0 and 1 by its nature."""

    bar: str = "95 % interval"
    """What lies between `low` and `high`."""

    higher_is_better: bool | None = None
    note: str = ""
    """More for whoever points at it: `90 of 100 documents`."""


def on_one_scale(marks: Iterable[ScoreMark]) -> list[list[ScoreMark]]:
    """Marks that one axis can hold, each list a figure: all shares together, any other metric by itself.

    >>> one = ScoreMark(name="a", metric="acc", value=0.5)
    >>> other = ScoreMark(name="b", metric="perplexity", value=21.0, share=False)
    >>> [len(marks) for marks in on_one_scale([one, other, one])]
    [2, 1]
    """
    together: dict[str, list[ScoreMark]] = {}
    for mark in marks:
        together.setdefault("" if mark.share else mark.metric, []).append(mark)
    return list(together.values())


def scores_figure(marks: Sequence[ScoreMark], theme: Theme, *, order: Sequence[str] = ()) -> Figure:
    """Dots with bars, the first row on top; runs in the order they first appear, or in one that several figures share, so
    that a run has the same colour in all of them."""
    rows = list(dict.fromkeys((mark.name, mark.metric, mark.group, mark.depth) for mark in marks))
    there = {mark.run for mark in marks}
    runs = [run for run in dict.fromkeys((*order, *(mark.run for mark in marks))) if run in there]
    colours = list(dict.fromkeys((*order, *runs)))
    metrics = {metric for _, metric, _, _ in rows}
    data = [
        _trace(
            [mark for mark in marks if mark.run == run],
            rows,
            colour=theme.series[colours.index(run) % len(theme.series)],
            offset=(at - (len(runs) - 1) / 2) * _SPREAD / len(runs),
        )
        for at, run in enumerate(runs)
    ]
    names = [_row_name(row, with_metric=len(metrics) > 1) for row in rows]
    share = all(mark.share for mark in marks)
    title = next(iter(metrics)) if len(metrics) == 1 else ("score" if share else "value")
    across = axis(theme, title, tickformat=".0%") if share else axis(theme, title)
    layout = {
        **frame(theme, height=_height(rows, len(runs), two_lines=len(metrics) > 1), legend=len(colours) > 1),
        "xaxis": {**across, **({"range": [-0.02, 1.02]} if share else {})},
        "yaxis": rows_axis(theme, names),
    }
    return {"data": data, "layout": layout}


Row = tuple[str, str, bool, int]


def _trace(marks: Sequence[ScoreMark], rows: Sequence[Row], *, colour: str, offset: float) -> Figure:
    places = {row: number for number, row in enumerate(rows)}
    ends = [
        (mark.value if mark.low is None else mark.low, mark.value if mark.high is None else mark.high)
        for mark in marks
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(marks[0].run),
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
        "hovertext": [_hover(mark) for mark in marks],
    }


def _height(rows: Sequence[Row], runs: int, *, two_lines: bool) -> int:
    """Room for two lines of name and for a mark of each run."""
    row = max(40 if two_lines else ROW_PX, 15 * runs + 8)
    return 82 + row * len(rows) + (28 if runs > 1 else 0)


def _row_name(row: Row, *, with_metric: bool) -> str:
    name, metric, group, depth = row
    shown = f"<b>{label(name)}</b>" if group else label(name)
    said = f"<br><span style='font-size:11px'>{label(metric, longest=26)}</span>" if with_metric else ""
    return f"{'  ' * depth}{shown}{said}"


def _hover(mark: ScoreMark) -> str:
    arrow = {True: " ↑", False: " ↓", None: ""}[mark.higher_is_better]
    lines = [f"<b>{plain(mark.name)}</b>", f"{plain(mark.metric)}{arrow}: {mark.value:.4f}"]
    if mark.low is not None and mark.high is not None:
        lines.append(f"{plain(mark.bar)} {mark.low:.4f} – {mark.high:.4f}")
    return "<br>".join(
        [*lines, *([plain(mark.note)] if mark.note else []), *([plain(mark.run)] if mark.run else [])]
    )
