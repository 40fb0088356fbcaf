"""Draws a training curve as an SVG or PNG file, with a panel for each task."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

from assay.core.errors import InvalidOption
from assay.viewer.atomic_files import write_atomically
from assay.viewer.charts.vector_drawing import Dot, Drawing, Label, Line
from assay.viewer.training_curves.curve import TaskCurve, TrainingCurve
from assay.viewer.training_curves.formats import curve_to_csv, describe_best, format_step

__all__ = ["choose_ticks", "draw_curve", "write_curve"]

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _FOOT = 880, 320, 78, 24, 62, 46
_MAX_PANELS = 24
_LINE, _GREY, _RED, _GREEN, _GRID = "#1f6feb", "#57606a", "#cf222e", "#1a7f37", "#eaeef2"


def choose_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between two values, about `count`.

    >>> choose_ticks(0.31, 0.58), choose_ticks(100, 1000)
    ([0.35, 0.4, 0.45, 0.5, 0.55], [200.0, 400.0, 600.0, 800.0, 1000.0])
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    step = next(size * power for size in (1, 2, 5, 10) if (high - low) / (size * power) <= count + 0.5)
    first = math.ceil(round(low / step, 9))
    return [round(number * step, 12) for number in range(first, math.floor(round(high / step, 9)) + 1)]


def draw_curve(curve: TrainingCurve) -> Drawing:
    """Draw the score of each checkpoint with its interval; regressions are red, the best checkpoint is green."""
    shown = curve.tasks[:_MAX_PANELS]
    left_out = len(curve.tasks) - len(shown)
    drawing = Drawing(_WIDTH, _PANEL * max(1, len(shown)) + (30 if left_out else 0))
    if not shown:
        drawing.add(Label((16, 28), "No checkpoint is evaluated yet.", _GREY))
    for place, task in enumerate(shown):
        _draw_panel(drawing, task, _PANEL * place)
    if left_out:
        drawing.add(
            Label((16, _PANEL * len(shown) + 18), f"{left_out} more tasks are in the CSV file.", _GREY)
        )
    return drawing


def _draw_panel(drawing: Drawing, curve: TaskCurve, top: float) -> None:
    points = curve.points
    ends = [end for point in points for end in (point.low, point.value, point.high) if end is not None]
    low, high = min(ends), max(ends)
    room = (high - low) * 0.06 or abs(high) * 0.05 or 0.05
    low, high = low - room, high + room
    first, last = points[0].step, points[-1].step
    across = (_WIDTH - _LEFT - _RIGHT) / ((last - first) or 1.0)
    height = _PANEL - _TOP - _FOOT

    def x_position(step: float) -> float:
        return _LEFT + (step - first) * across if last > first else (_LEFT + _WIDTH - _RIGHT) / 2

    def y_position(value: float) -> float:
        return top + _TOP + height * (high - value) / (high - low)

    drawing.add(
        Label((16, top + 26), f"{curve.task}, {curve.metric}", size=16),
        Label((16, top + 46), describe_best(curve).removeprefix(f"{curve.task}: ")[:118], _GREY, 12),
    )
    for tick in choose_ticks(low, high):
        text = f"{100 * tick:g} %" if curve.share else f"{tick:g}"
        down = y_position(tick)
        drawing.add(
            Line((_LEFT, down), (_WIDTH - _RIGHT, down), _GRID), Label((16, down + 4), text, _GREY, 12)
        )
    for tick in choose_ticks(first, last, 8):
        place = (x_position(tick), top + _PANEL - 24)
        drawing.add(Label(place, format_step(tick), _GREY, 12, centred=True))
    drawing.add(Label((_WIDTH / 2, top + _PANEL - 6), "training step", _GREY, 12, centred=True))
    for before, after in pairwise(points):
        drawing.add(
            Line(
                (x_position(before.step), y_position(before.value)),
                (x_position(after.step), y_position(after.value)),
                _LINE,
                1.5,
            )
        )
    for point in points:
        colour = _RED if point.alarm else _GREEN if point is curve.best else _LINE
        middle = x_position(point.step)
        if point.low is not None and point.high is not None:
            upper, lower = y_position(point.high), y_position(point.low)
            drawing.add(
                Line((middle, upper), (middle, lower), colour, 1.5),
                Line((middle - 3, upper), (middle + 3, upper), colour, 1.5),
                Line((middle - 3, lower), (middle + 3, lower), colour, 1.5),
            )
        drawing.add(Dot((middle, y_position(point.value)), 4.5 if point is curve.best else 3.5, colour))


def write_curve(curve: TrainingCurve, path: Path) -> None:
    """Write the curve as `.svg`, `.png` or `.csv`; a reader never sees a half-written file.

    Raises:
        InvalidOption: The file name has another ending.
        OutputError: The file cannot be written.
    """
    if path.suffix == ".svg":
        write_atomically(path, draw_curve(curve).to_svg())
    elif path.suffix == ".png":
        write_atomically(path, draw_curve(curve).to_png())
    elif path.suffix == ".csv":
        write_atomically(path, curve_to_csv(curve))
    else:
        raise InvalidOption(
            f"unsupported format `{path.name}`", where="--curve", hint="use FILE.svg, FILE.png or FILE.csv"
        )
