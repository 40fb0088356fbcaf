"""The forest plot: every difference with its interval on one scale, in a terminal or as a picture."""

from __future__ import annotations

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
    """The plot as a drawing."""
    rows = [row for row in (*comparison.rows, *comparison.categories) if row.share]
    if comparison.overall is not None:
        rows.append(comparison.overall)
    reach = reach_of(rows) * 1.05
    height = _TOP + _ROW * len(rows) + 46
    middle = _LEFT + _PLOT / 2
    drawing = Drawing(_WIDTH, height)
    about = (
        f"difference in points, {100 * comparison.level:g} % intervals; coloured: chance alone is ruled out"
        f" ({comparison.correction})"
    )
    drawing.add(
        Words((16, 28), f"{comparison.second} against {comparison.first}", size=16),
        Words((16, 50), about, _GREY),
        Line((middle, _TOP - 8), (middle, height - 40), "#afb8c1"),
    )
    for at, row in enumerate(rows):
        down, colour = _TOP + _ROW * at + _ROW / 2, _COLOURS[row.better]
        name, indent = (row.category, 32) if row.category else (row.task, 16)
        numbers = f"{100 * row.difference:+.2f} [{100 * row.low:+.2f}, {100 * row.high:+.2f}]"
        low, high, value = (middle + end / reach * _PLOT / 2 for end in (row.low, row.high, row.difference))
        drawing.add(
            Words((indent, down + 4), name if len(name) <= 32 else f"{name[:31]}…"),
            Line((low, down), (high, down), colour, 2),
            Dot((value, down), 4.5, colour),
            Words((_LEFT + _PLOT + 16, down + 4), numbers, colour),
        )
    for share in (-1, -0.5, 0, 0.5, 1):
        label = f"{100 * share * reach / 1.05:+.1f}" if share else "0"
        drawing.add(Words((middle + share / 1.05 * _PLOT / 2, height - 18), label, _GREY, centred=True))
    return drawing


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
