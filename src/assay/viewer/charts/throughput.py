"""How fast answers came in, over the time somebody was working."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.viewer.charts.theme import Figure, Theme, axis, frame, plain

__all__ = ["Pace", "Pause", "throughput_figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A stretch in which nothing came, because the run was stopped: cut out of the time shown."""

    at_s: float
    """Working time before it."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Responses per stretch of working time."""

    step_s: float
    """The length of a stretch."""

    asked: Sequence[int]
    """Responses of the model in each stretch."""

    cached: Sequence[int] = ()
    """Responses that were known from before, in each stretch."""

    judged: Sequence[int] = ()
    """Responses of judges."""

    pauses: Sequence[Pause] = ()


def throughput_figure(pace: Pace, theme: Theme) -> Figure:
    """A step for each stretch, in responses per second; dotted lines where the run had stopped."""
    unit, size = _unit(pace.step_s * max(len(pace.asked), len(pace.cached), len(pace.judged)))
    sources = [
        (name, counts, theme.series[at])
        for at, (name, counts) in enumerate(
            (("model", pace.asked), ("cache", pace.cached), ("judges", pace.judged))
        )
        if any(counts)
    ]
    data = []
    for name, counts, colour in sources:
        times = [pace.step_s * (at + 0.5) / size for at in range(len(counts))]
        speeds = [count / pace.step_s for count in counts]
        data.append(
            {
                "type": "scatter",
                "mode": "lines" if len(counts) > 1 else "markers",
                "name": name,
                "x": times,
                "y": speeds,
                "line": {"shape": "hvh", "width": 1.6, "color": colour},
                "marker": {"color": colour, "size": 9},
                "fill": "tozeroy",
                "fillcolor": f"{colour}22",
                "hoverinfo": "text",
                "hovertext": [
                    f"{name}: {speed:.3g} responses per second<br>after {time:.3g} {unit}"
                    for speed, time in zip(speeds, times, strict=True)
                ],
            }
        )
    layout = {
        **frame(theme, height=240, legend=len(sources) > 1),
        "xaxis": axis(theme, f"{unit} of work", rangemode="tozero"),
        "yaxis": axis(theme, "responses per second", rangemode="tozero"),
        "shapes": [_line(pause.at_s / size, theme) for pause in pace.pauses],
        "annotations": [
            {
                "x": pause.at_s / size,
                "y": 1,
                "yref": "paper",
                "yanchor": "top",
                "xanchor": "left",
                "text": plain(f"stopped for {_length(pause.seconds)}"),
                "showarrow": False,
                "font": {"color": theme.faint, "size": 11},
            }
            for pause in pace.pauses[:3]
        ],
    }
    return {"data": data, "layout": layout}


def _line(place: float, theme: Theme) -> Figure:
    return {
        "type": "line",
        "x0": place,
        "x1": place,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": theme.zero, "width": 1, "dash": "dot"},
    }


def _unit(seconds: float) -> tuple[str, float]:
    """In what a length of time is counted, and how many seconds that has."""
    if seconds > 3 * 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if seconds > 180 else ("seconds", 1.0)


def _length(seconds: float) -> str:
    unit, size = _unit(seconds)
    return f"{seconds / size:.0f} {unit}"
