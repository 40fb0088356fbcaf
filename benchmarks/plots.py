"""Draw the plots of RESULTS.md: ratios on a logarithmic scale, and shares of goals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from measurements import Measurement

from assay.viewer.charts.vector_drawing import Dot, Drawing, Label, Line

WIDTH, LEFT, PLOT, ROW, TOP = 1060, 490, 440, 26, 64
GREEN, RED, GREY, PALE = "#1a7f37", "#cf222e", "#57606a", "#eaeef2"
COLORS = {True: GREEN, False: RED, None: "#0969da"}


def draw_ratios(rows: Sequence[tuple[str, Measurement]]) -> str:
    """Draw the ratios to the peers; return an empty string for fewer than two."""
    found = [(name, one, one.ratio) for name, one in rows if one.ratio]
    if len(found) < 2:
        return ""
    goals = [get_goal_ratio(one) for _, one, _ in found]
    low = min(0.5, *(ratio for _, _, ratio in found))
    high = max(2.0, *(ratio for _, _, ratio in found), *(goal for goal in goals if goal))
    first, last = math.floor(math.log10(low) * 2) / 2, math.ceil(math.log10(high) * 2) / 2

    def scale_x(value: float) -> float:
        return LEFT + PLOT * (math.log10(value) - first) / (last - first)

    ticks = [tick for power in range(-3, 7) for tick in (10.0**power, 3 * 10.0**power) if low / 2 <= tick]
    ticks = [tick for tick in ticks if first <= math.log10(tick) <= last]
    drawing, foot = start_drawing(
        len(found),
        "ratio to the peer (higher is better)",
        "green: goal met, red: not met, blue: no goal; the vertical mark is the goal",
    )
    for tick in ticks:
        add_scale_line(drawing, scale_x(tick), foot, f"{tick:g}x", strong=tick == 1)
    for index, (name, one, ratio) in enumerate(found):
        y, color = TOP + ROW * index + ROW / 2, COLORS[one.met]
        drawing.add(
            Label((16, y + 4), shorten(name, 76), size=12),
            Line((scale_x(1), y), (scale_x(ratio), y), color, 3),
            Dot((scale_x(ratio), y), 5, color),
            Label(
                (LEFT + PLOT + 16, y + 4),
                f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x",
                color,
                12,
            ),
        )
        if goal := goals[index]:
            drawing.add(Line((scale_x(goal), y - 8), (scale_x(goal), y + 8), "#1f2328", 2))
    return drawing.to_svg()


def draw_limits(rows: Sequence[tuple[str, Measurement]]) -> str:
    """Draw each measurement as a share of its goal; return an empty string for fewer than two."""
    found = [(name, one, share) for name, one in rows if (share := compute_goal_share(one)) is not None]
    if len(found) < 2:
        return ""
    max_share = max(1.25, *(share for _, _, share in found))

    def scale_x(share: float) -> float:
        return LEFT + PLOT * share / max_share

    drawing, foot = start_drawing(
        len(found),
        "share of the goal",
        "`at most`: left of the line is good; `at least`: right of the line is good",
    )
    for tick in (0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0):
        if tick <= max_share and (max_share < 2 or tick in (0, 0.5, 1.0, 2.0, 3.0)):
            add_scale_line(drawing, scale_x(tick), foot, f"{tick:.0%}", strong=tick == 1)
    for index, (name, one, share) in enumerate(found):
        y, color = TOP + ROW * index + ROW / 2, COLORS[one.met]
        assert one.goal is not None
        limit = (
            f"at least {one.goal.least:,g}" if one.goal.least is not None else f"at most {one.goal.most:,g}"
        )
        drawing.add(
            Label((16, y + 4), f"{shorten(name, 54)} ({limit} {one.unit})", size=12),
            Line((scale_x(0), y), (scale_x(share), y), color, 10),
            Label((LEFT + PLOT + 16, y + 4), f"{one.ours:,.3g} {one.unit}", color, 12),
        )
    return drawing.to_svg()


def get_goal_ratio(one: Measurement) -> float | None:
    return one.goal.least if one.goal is not None and one.goal.of == "ratio" else None


def compute_goal_share(one: Measurement) -> float | None:
    if one.goal is None or one.goal.of != "ours":
        return None
    limit = one.goal.least if one.goal.least is not None else one.goal.most
    return one.ours / limit if limit else None


def start_drawing(rows: int, title: str, about: str) -> tuple[Drawing, float]:
    foot = TOP + ROW * rows
    drawing = Drawing(WIDTH, foot + 34)
    drawing.add(Label((16, 26), title, size=16), Label((16, 46), about, GREY, 12))
    return drawing, foot


def add_scale_line(drawing: Drawing, x: float, foot: float, text: str, *, strong: bool) -> None:
    drawing.add(
        Line((x, TOP - 6), (x, foot + 4), "#8c959f" if strong else PALE),
        Label((x, foot + 20), text, GREY, 12, centred=True),
    )


def shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"
