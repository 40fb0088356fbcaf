"""Responses per second over the working time of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.viewer.charts.theme import Figure, Theme, build_axis, build_layout, escape_text

__all__ = ["Pause", "Throughput", "build_throughput_figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time in which the run was stopped; it is cut out of the time axis."""

    at_s: float
    """The working time before the pause."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Responses per time step of working time."""

    step_s: float
    """The length of a time step."""

    model: Sequence[int]
    """Responses of the model in each time step."""

    cache: Sequence[int] = ()
    """Responses from the cache in each time step."""

    judges: Sequence[int] = ()
    """Responses of judges in each time step."""

    pauses: Sequence[Pause] = ()


def build_throughput_figure(throughput: Throughput, theme: Theme) -> Figure:
    """Build a step chart in responses per second, with dotted lines at pauses."""
    unit, size = _choose_unit(
        throughput.step_s * max(len(throughput.model), len(throughput.cache), len(throughput.judges))
    )
    sources = [
        (name, counts, theme.series[index])
        for index, (name, counts) in enumerate(
            (("model", throughput.model), ("cache", throughput.cache), ("judges", throughput.judges))
        )
        if any(counts)
    ]
    data = []
    for name, counts, colour in sources:
        times = [throughput.step_s * (index + 0.5) / size for index in range(len(counts))]
        speeds = [count / throughput.step_s for count in counts]
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
        **build_layout(theme, height=240, legend=len(sources) > 1),
        "xaxis": build_axis(theme, f"working time ({unit})", rangemode="tozero"),
        "yaxis": build_axis(theme, "responses per second", rangemode="tozero"),
        "shapes": [_build_line(pause.at_s / size, theme) for pause in throughput.pauses],
        "annotations": [
            {
                "x": pause.at_s / size,
                "y": 1,
                "yref": "paper",
                "yanchor": "top",
                "xanchor": "left",
                "text": escape_text(f"stopped for {_format_length(pause.seconds)}"),
                "showarrow": False,
                "font": {"color": theme.faint, "size": 11},
            }
            for pause in throughput.pauses[:3]
        ],
    }
    return {"data": data, "layout": layout}


def _build_line(place: float, theme: Theme) -> Figure:
    return {
        "type": "line",
        "x0": place,
        "x1": place,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": theme.zero, "width": 1, "dash": "dot"},
    }


def _choose_unit(seconds: float) -> tuple[str, float]:
    """Return the unit for a duration, and its length in seconds."""
    if seconds > 3 * 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if seconds > 180 else ("seconds", 1.0)


def _format_length(seconds: float) -> str:
    unit, size = _choose_unit(seconds)
    return f"{seconds / size:.0f} {unit}"
