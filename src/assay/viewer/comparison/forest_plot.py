"""The forest plot of a comparison, as text for a terminal or as an SVG or PNG file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from assay.core.errors import InvalidOption, OutputError
from assay.viewer.charts.vector_drawing import Dot, Drawing, Label, Line
from assay.viewer.comparison.groups import order_rows
from assay.viewer.comparison.records import Comparison, ComparisonRow

__all__ = ["draw_forest_plot", "find_scale_limit", "format_plot_line", "write_forest_plot"]

_WIDTH, _ROW, _LEFT, _PLOT, _TOP = 880, 30, 250, 400, 74
_COLOURS = {True: "#1a7f37", False: "#cf222e", None: "#57606a"}
_GREY = "#57606a"


def find_scale_limit(rows: Sequence[ComparisonRow]) -> float:
    """Return how far the scale extends to both sides of zero."""
    return max((abs(end) for row in rows if row.share for end in (row.low, row.high)), default=0.0) or 1.0


def format_plot_line(row: ComparisonRow, limit: float, width: int = 25) -> str:
    """Draw an interval as text around a zero line; empty for a metric with its own scale."""
    if not row.share:
        return ""
    middle = width // 2

    def place(value: float) -> int:
        return max(0, min(width - 1, middle + round(value / limit * middle)))

    cells = [" "] * width
    low, high = place(row.low), place(row.high)
    cells[low : high + 1] = "─" * (high - low + 1)
    cells[low] = "├" if high > low else "─"
    cells[high] = "┤" if high > low else "─"
    cells[middle] = "┼" if low < middle < high else "│"
    cells[place(row.difference)] = "●"
    return "".join(cells)


def draw_forest_plot(comparison: Comparison) -> Drawing:
    """Draw the plot. Metrics with other scales are listed below it."""
    everything = [*(row for _, row in order_rows(comparison)), *comparison.categories]
    rows = [row for row in everything if row.share]
    others = list(dict.fromkeys(f"{row.task} ({row.metric})" for row in everything if not row.share))
    if comparison.overall is not None:
        rows.append(comparison.overall)
    step, ticks = _choose_ticks(find_scale_limit(rows))
    reach = step * ticks * 1.05
    foot = _TOP + _ROW * len(rows)
    drawing = Drawing(_WIDTH, foot + (70 if others else 50))
    about = (
        f"difference in percentage points, {100 * comparison.level:g} % intervals; coloured: significant"
        f" ({comparison.correction})"
    )
    drawing.add(
        Label((16, 28), f"{comparison.second} compared with {comparison.first}", size=16),
        Label((16, 50), about, _GREY),
    )
    for tick in range(-ticks, ticks + 1):
        across, label = _x_position(tick * step, reach), f"{100 * tick * step:+g}" if tick else "0"
        drawing.add(
            Line((across, _TOP - 8), (across, foot + 6), "#8c959f" if tick == 0 else "#eaeef2"),
            Label((across, foot + 22), label, _GREY, centred=True),
        )
    if all(row.higher_is_better for row in rows):
        drawing.add(
            Label((_x_position(-reach / 2, reach), foot + 40), "worse", _GREY, centred=True),
            Label((_x_position(reach / 2, reach), foot + 40), "better", _GREY, centred=True),
        )
    several = {row.task for row in rows if [one.task for one in comparison.rows].count(row.task) > 1}
    for index, row in enumerate(rows):
        _draw_row(drawing, row, _TOP + _ROW * index + _ROW / 2, reach, with_metric=row.task in several)
    if others:
        drawing.add(Label((16, foot + 60), f"on other scales: {_shorten(', '.join(others), 110)}", _GREY))
    return drawing


def _draw_row(drawing: Drawing, row: ComparisonRow, down: float, reach: float, *, with_metric: bool) -> None:
    colour = _COLOURS[row.better]
    name = row.category or (f"{row.task} {row.metric}" if with_metric else row.task)
    numbers = f"{100 * row.difference:+.2f} [{100 * row.low:+.2f}, {100 * row.high:+.2f}]"
    low, high = _x_position(row.low, reach), _x_position(row.high, reach)
    drawing.add(
        Label((32 if row.category else 16, down + 4), _shorten(name, 32)),
        Line((low, down), (high, down), colour, 2),
        Line((low, down - 4), (low, down + 4), colour, 2),
        Line((high, down - 4), (high, down + 4), colour, 2),
        Dot((_x_position(row.difference, reach), down), 4.5, colour),
        Label((_LEFT + _PLOT + 16, down + 4), numbers, colour),
    )


def _x_position(value: float, reach: float) -> float:
    return _LEFT + _PLOT / 2 * (1 + value / reach)


def _choose_ticks(reach: float) -> tuple[float, int]:
    """Return a round step (1, 2 or 5 times a power of ten, in points) and how many steps cover either side.

    >>> _choose_ticks(0.297), _choose_ticks(1.0)
    ((0.1, 3), (0.5, 2))
    """
    power = 10.0 ** math.floor(math.log10(100 * reach))
    for step in (0.1 * power, 0.2 * power, 0.5 * power, power, 2 * power, 5 * power):
        count = math.ceil(round(100 * reach / step, 9))
        if count <= 3:
            return round(step / 100, 12), count
    return round(power / 10, 12), 1


def _shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def write_forest_plot(comparison: Comparison, path: Path) -> None:
    """Write the plot as `.svg` or `.png`.

    Raises:
        InvalidOption: The file name does not end in `.svg` or `.png`.
        OutputError: The file cannot be written.
    """
    if path.suffix not in (".svg", ".png"):
        raise InvalidOption(
            f"unsupported plot format `{path.name}`", where="--plot", hint="use FILE.svg or FILE.png"
        )
    drawing = draw_forest_plot(comparison)
    content = drawing.to_svg().encode() if path.suffix == ".svg" else drawing.to_png()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"cannot write the plot: {error.strerror}", where=str(path)) from None
