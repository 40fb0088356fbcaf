"""The forest plot: every difference with its interval on one scale, in a terminal or as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from assay.core.errors import BadOption, BadOutput
from assay.viewer.comparison.records import Comparison, Row
from assay.viewer.drawing import Dot, Drawing, Line, Words

__all__ = ["forest", "plot_line", "reach_of", "write_picture"]

_WIDTH, _ROW, _LEFT, _PLOT, _TOP = 880, 30, 250, 400, 74
_COLOURS = {True: "#1a7f37", False: "#cf222e", None: "#57606a"}
_GREY = "#57606a"


def reach_of(rows: Sequence[Row]) -> float:
    """How far the scale goes to both sides of zero."""
    return max((abs(end) for row in rows if row.share for end in (row.low, row.high)), default=0.0) or 1.0


def plot_line(row: Row, reach: float, width: int = 25) -> str:
    """An interval as text around a zero line; empty for a number that is on a scale of its own."""
    if not row.share:
        return ""
    middle = width // 2

    def place(value: float) -> int:
        return max(0, min(width - 1, middle + round(value / reach * middle)))

    cells = [" "] * width
    low, high = place(row.low), place(row.high)
    cells[low : high + 1] = "─" * (high - low + 1)
    cells[low] = "├" if high > low else "─"
    cells[high] = "┤" if high > low else "─"
    cells[middle] = "┼" if low < middle < high else "│"
    cells[place(row.difference)] = "●"
    return "".join(cells)


def forest(comparison: Comparison) -> Drawing:
    """The plot as a drawing. Numbers that are no shares have scales of their own, and are named below."""
    everything = [*comparison.rows, *comparison.categories]
    rows = [row for row in everything if row.share]
    others = list(dict.fromkeys(f"{row.task} ({row.metric})" for row in everything if not row.share))
    if comparison.overall is not None:
        rows.append(comparison.overall)
    step, ticks = _ticks(reach_of(rows))
    reach = step * ticks * 1.05
    foot = _TOP + _ROW * len(rows)
    drawing = Drawing(_WIDTH, foot + (70 if others else 50))
    about = (
        f"difference in points, {100 * comparison.level:g} % intervals; coloured: chance alone is ruled out"
        f" ({comparison.correction})"
    )
    drawing.add(
        Words((16, 28), f"{comparison.second} against {comparison.first}", size=16),
        Words((16, 50), about, _GREY),
    )
    for tick in range(-ticks, ticks + 1):
        across, label = _across(tick * step, reach), f"{100 * tick * step:+g}" if tick else "0"
        drawing.add(
            Line((across, _TOP - 8), (across, foot + 6), "#8c959f" if tick == 0 else "#eaeef2"),
            Words((across, foot + 22), label, _GREY, centred=True),
        )
    if all(row.higher_is_better for row in rows):
        drawing.add(
            Words((_across(-reach / 2, reach), foot + 40), "worse", _GREY, centred=True),
            Words((_across(reach / 2, reach), foot + 40), "better", _GREY, centred=True),
        )
    several = {row.task for row in rows if [one.task for one in comparison.rows].count(row.task) > 1}
    for at, row in enumerate(rows):
        _draw_row(drawing, row, _TOP + _ROW * at + _ROW / 2, reach, with_metric=row.task in several)
    if others:
        drawing.add(Words((16, foot + 60), f"on other scales: {_short(', '.join(others), 110)}", _GREY))
    return drawing


def _draw_row(drawing: Drawing, row: Row, down: float, reach: float, *, with_metric: bool) -> None:
    colour = _COLOURS[row.better]
    name = row.category or (f"{row.task} {row.metric}" if with_metric else row.task)
    numbers = f"{100 * row.difference:+.2f} [{100 * row.low:+.2f}, {100 * row.high:+.2f}]"
    low, high = _across(row.low, reach), _across(row.high, reach)
    drawing.add(
        Words((32 if row.category else 16, down + 4), _short(name, 32)),
        Line((low, down), (high, down), colour, 2),
        Line((low, down - 4), (low, down + 4), colour, 2),
        Line((high, down - 4), (high, down + 4), colour, 2),
        Dot((_across(row.difference, reach), down), 4.5, colour),
        Words((_LEFT + _PLOT + 16, down + 4), numbers, colour),
    )


def _across(value: float, reach: float) -> float:
    return _LEFT + _PLOT / 2 * (1 + value / reach)


def _ticks(reach: float) -> tuple[float, int]:
    """A round step (1, 2 or 5 times a power of ten, in points) and how many of them reach far enough to either side.

    >>> _ticks(0.297), _ticks(1.0)
    ((0.1, 3), (0.5, 2))
    """
    power = 10.0 ** math.floor(math.log10(100 * reach))
    for step in (0.1 * power, 0.2 * power, 0.5 * power, power, 2 * power, 5 * power):
        count = math.ceil(round(100 * reach / step, 9))
        if count <= 3:
            return round(step / 100, 12), count
    return round(power / 10, 12), 1


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def write_picture(comparison: Comparison, path: Path) -> None:
    """Write the plot as `.svg` or `.png`.

    Raises:
        BadOption: The name ends otherwise.
        BadOutput: The file cannot be written.
    """
    if path.suffix not in (".svg", ".png"):
        raise BadOption(
            f"a picture cannot be called `{path.name}`", where="--plot", hint="FILE.svg or FILE.png"
        )
    drawing = forest(comparison)
    content = drawing.svg().encode() if path.suffix == ".svg" else drawing.png()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise BadOutput(f"cannot write the picture: {error.strerror}", where=str(path)) from None
