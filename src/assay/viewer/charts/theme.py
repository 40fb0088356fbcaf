"""What all charts share: colours for light and dark pages, the frame around a plot, text that stays text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from assay.core.printable import printable

__all__ = [
    "CONFIG",
    "DARK",
    "LIGHT",
    "OUTCOME_COLOURS",
    "ROW_PX",
    "Figure",
    "Theme",
    "axis",
    "frame",
    "label",
    "plain",
    "rows_axis",
    "themed",
]

Figure = dict[str, Any]
"""What plotly draws: `data` and `layout`, JSON throughout."""

CONFIG = {"displayModeBar": False, "responsive": True, "scrollZoom": False, "doubleClick": False}
"""How a figure is shown: it follows the page's width, and has no buttons of its own."""

ROW_PX = 34
_AROUND_PX = 74
_LONGEST = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colours of a page."""

    name: str
    ink: str
    faint: str
    """Of what should be seen second: axis numbers, notes."""

    grid: str
    zero: str
    panel: str
    """Behind what appears under the pointer."""

    better: str
    worse: str
    series: Sequence[str]
    """One for each run, apart in hue and in lightness."""


LIGHT = Theme(
    name="light",
    ink="#1f2328",
    faint="#59636e",
    grid="#e4e8ed",
    zero="#818b98",
    panel="#ffffff",
    better="#1a7f37",
    worse="#cf222e",
    series=("#1f6feb", "#d9730d", "#0f8a7e", "#8250df", "#bf3989", "#7a6a00", "#57606a", "#0a5a9c"),
)
DARK = Theme(
    name="dark",
    ink="#e6edf3",
    faint="#9198a1",
    grid="#2b3138",
    zero="#656c76",
    panel="#161b22",
    better="#3fb950",
    worse="#f85149",
    series=("#58a6ff", "#f0983e", "#3ec9ba", "#b392f0", "#f778ba", "#d4b72c", "#9198a1", "#79c0ff"),
)

OUTCOME_COLOURS = {
    "scored": "#2f81c7",
    "unparsed": "#e3b341",
    "truncated": "#e8853d",
    "empty": "#a8917a",
    "refused": "#9a6bd6",
    "unscored": "#c76ba5",
    "judge-failed": "#b5533c",
    "failed": "#d1373f",
    "skipped": "#9aa4af",
    "open": "#c9d1d9",
}
"""How documents ended, in the order of `ENDINGS`; the same colours on light and dark, and for people who tell few apart
the order says the same. `open`: not reached yet."""


def themed(make: Callable[[Theme], Figure]) -> dict[str, Figure]:
    """The same figure for both kinds of page.

    >>> sorted(themed(lambda theme: {"data": [], "layout": {"title": theme.name}}))
    ['dark', 'light']
    """
    return {theme.name: make(theme) for theme in (LIGHT, DARK)}


def plain(text: object) -> str:
    """A text as plotly shows it letter by letter: its own tags and entities are not meant.

    >>> plain("<b>a</b> & b")
    '&lt;b&gt;a&lt;/b&gt; &amp; b'
    """
    return escape(printable(str(text)), quote=False)


def label(text: str, *, longest: int = _LONGEST) -> str:
    """A name beside a row, its middle left out where it is long: beginnings and ends tell names apart.

    >>> label("a" * 50, longest=11)
    'aaaaa…aaaaa'
    """
    text = " ".join(text.split())
    half = (longest - 1) // 2
    return plain(text if len(text) <= longest else f"{text[:half]}…{text[-half:]}")


def frame(theme: Theme, *, rows: int = 0, height: int = 0, legend: bool = False) -> dict[str, Any]:
    """The layout every figure begins with: transparent, so that the page shows through."""
    return {
        "height": height or _AROUND_PX + ROW_PX * max(1, rows) + (28 if legend else 0),
        "margin": {"l": 8, "r": 16, "t": 36 if legend else 8, "b": 44, "pad": 4},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', sans-serif",
            "size": 13,
            "color": theme.ink,
        },
        "hoverlabel": {
            "bgcolor": theme.panel,
            "bordercolor": theme.zero,
            "font": {"color": theme.ink},
            "align": "left",
        },
        "hovermode": "closest",
        "dragmode": False,
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
            "font": {"color": theme.ink},
        },
    }


def axis(theme: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with numbers on it."""
    return {
        "title": {"text": plain(title), "font": {"color": theme.faint, "size": 12}},
        "gridcolor": theme.grid,
        "zeroline": False,
        "linecolor": theme.zero,
        "tickfont": {"color": theme.faint, "size": 12},
        "fixedrange": True,
        "automargin": True,
        **more,
    }


def rows_axis(theme: Theme, names: Sequence[str]) -> dict[str, Any]:
    """An axis of named rows, the first one on top; names are shown already escaped."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [len(names) - 0.4, -0.6],
        "showgrid": False,
        "zeroline": False,
        "tickfont": {"color": theme.ink, "size": 13},
        "fixedrange": True,
        "automargin": True,
    }
