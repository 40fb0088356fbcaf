"""The pictures of RESULTS.md, drawn as `assay compare` draws its own: ratios on a logarithmic scale, and shares of limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from measurements import Measurement

from assay.viewer.charts.vector_drawing import Dot, Drawing, Label, Line

WIDTH, LEFT, PLOT, ROW, TOP = 1060, 490, 440, 26, 64
GREEN, RED, GREY, PALE = "#1a7f37", "#cf222e", "#57606a", "#eaeef2"
COLOURS = {True: GREEN, False: RED, None: "#0969da"}


def ratios_plot(rows: Sequence[tuple[str, Measurement]]) -> str:
    """How many times better than the peer; nothing if there are no two of them."""
    found = [(name, one, one.ratio) for name, one in rows if one.ratio]
    if len(found) < 2:
        return ""
    goals = [least_of(one) for _, one, _ in found]
    low = min(0.5, *(ratio for _, _, ratio in found))
    high = max(2.0, *(ratio for _, _, ratio in found), *(goal for goal in goals if goal))
    first, last = math.floor(math.log10(low) * 2) / 2, math.ceil(math.log10(high) * 2) / 2

    def across(value: float) -> float:
        return LEFT + PLOT * (math.log10(value) - first) / (last - first)

    ticks = [tick for power in range(-3, 7) for tick in (10.0**power, 3 * 10.0**power) if low / 2 <= tick]
    ticks = [tick for tick in ticks if first <= math.log10(tick) <= last]
    drawing, foot = frame(
        len(found),
        "times better than the peer",
        "green: goal met, red: not met, blue: no goal; the stroke is the goal",
    )
    for tick in ticks:
        scale_line(drawing, across(tick), foot, f"{tick:g}x", strong=tick == 1)
    for at, (name, one, ratio) in enumerate(found):
        down, colour = TOP + ROW * at + ROW / 2, COLOURS[one.met]
        drawing.add(
            Label((16, down + 4), short(name, 76), size=12),
            Line((across(1), down), (across(ratio), down), colour, 3),
            Dot((across(ratio), down), 5, colour),
            Label(
                (LEFT + PLOT + 16, down + 4),
                f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x",
                colour,
                12,
            ),
        )
        if goal := goals[at]:
            drawing.add(Line((across(goal), down - 8), (across(goal), down + 8), "#1f2328", 2))
    return drawing.to_svg()


def limits_plot(rows: Sequence[tuple[str, Measurement]]) -> str:
    """How much of what is allowed was needed, or how much of what is wanted was reached."""
    found = [(name, one, share) for name, one in rows if (share := share_of_goal(one)) is not None]
    if len(found) < 2:
        return ""
    reach = max(1.25, *(share for _, _, share in found))

    def across(share: float) -> float:
        return LEFT + PLOT * share / reach

    drawing, foot = frame(
        len(found),
        "share of the goal",
        "`at most`: to the left of the line is good; `at least`: to the right of it",
    )
    for tick in (0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0):
        if tick <= reach and (reach < 2 or tick in (0, 0.5, 1.0, 2.0, 3.0)):
            scale_line(drawing, across(tick), foot, f"{tick:.0%}", strong=tick == 1)
    for at, (name, one, share) in enumerate(found):
        down, colour = TOP + ROW * at + ROW / 2, COLOURS[one.met]
        assert one.goal is not None
        limit = (
            f"at least {one.goal.least:,g}" if one.goal.least is not None else f"at most {one.goal.most:,g}"
        )
        drawing.add(
            Label((16, down + 4), f"{short(name, 54)} ({limit} {one.unit})", size=12),
            Line((across(0), down), (across(share), down), colour, 10),
            Label((LEFT + PLOT + 16, down + 4), f"{one.ours:,.3g} {one.unit}", colour, 12),
        )
    return drawing.to_svg()


def least_of(one: Measurement) -> float | None:
    return one.goal.least if one.goal is not None and one.goal.of == "ratio" else None


def share_of_goal(one: Measurement) -> float | None:
    if one.goal is None or one.goal.of != "ours":
        return None
    limit = one.goal.least if one.goal.least is not None else one.goal.most
    return one.ours / limit if limit else None


def frame(rows: int, title: str, about: str) -> tuple[Drawing, float]:
    foot = TOP + ROW * rows
    drawing = Drawing(WIDTH, foot + 34)
    drawing.add(Label((16, 26), title, size=16), Label((16, 46), about, GREY, 12))
    return drawing, foot


def scale_line(drawing: Drawing, across: float, foot: float, text: str, *, strong: bool) -> None:
    drawing.add(
        Line((across, TOP - 6), (across, foot + 4), "#8c959f" if strong else PALE),
        Label((across, foot + 20), text, GREY, 12, centred=True),
    )


def short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
