"""What all charts share: light and dark colours, the base layout, axes, escaped text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from assay.core.terminal_text import escape_control_characters

__all__ = [
    "CONFIG",
    "DARK",
    "LIGHT",
    "OUTCOME_COLOURS",
    "ROW_PX",
    "Figure",
    "Theme",
    "build_axis",
    "build_layout",
    "build_row_axis",
    "build_themed_figures",
    "escape_text",
    "format_label",
]

Figure = dict[str, Any]
"""A plotly figure: `data` and `layout`, plain JSON values."""

CONFIG = {"displayModeBar": False, "responsive": True, "scrollZoom": False, "doubleClick": False}
"""Plotly's configuration: figures follow the width of the page and have no tool bar."""

ROW_PX = 34
_MARGIN_PX = 74
_MAX_LABEL_LENGTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colours of a theme."""

    name: str
    ink: str
    faint: str
    """Secondary text: axis numbers, notes."""

    grid: str
    zero: str
    panel: str
    """The background of tooltips."""

    better: str
    worse: str
    series: Sequence[str]
    """One colour for each run; they differ in hue and in lightness."""


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
    "unparsed-call": "#b8a11f",
    "invalid-format": "#7f9a3c",
    "truncated": "#e8853d",
    "empty": "#a8917a",
    "refused": "#9a6bd6",
    "turn-limit": "#5b8c7b",
    "token-limit": "#4f7f8f",
    "cost-limit": "#6b7f4f",
    "time-limit": "#7a6f9b",
    "tool-error-limit": "#b07d4b",
    "workspace-limit": "#8f6a4f",
    "sandbox-limit": "#7c5f63",
    "step-limit": "#5f7488",
    "in-doubt": "#8a4f7d",
    "user-left": "#a3667f",
    "user-failed": "#b5456e",
    "environment-failed": "#a8433a",
    "unscored": "#c76ba5",
    "judge-failed": "#b5533c",
    "failed": "#d1373f",
    "skipped": "#9aa4af",
    "open": "#c9d1d9",
}
"""Ending -> colour in both themes, in the order of `ENDINGS`, so that the order carries the same information as the
colour. `open`: not processed yet."""


def build_themed_figures(make: Callable[[Theme], Figure]) -> dict[str, Figure]:
    """Build a figure for both themes.

    >>> sorted(build_themed_figures(lambda theme: {"data": [], "layout": {"title": theme.name}}))
    ['dark', 'light']
    """
    return {theme.name: make(theme) for theme in (LIGHT, DARK)}


def escape_text(text: object) -> str:
    """Escape a text for plotly, which interprets some HTML tags and entities.

    >>> escape_text("<b>a</b> & b")
    '&lt;b&gt;a&lt;/b&gt; &amp; b'
    """
    return escape(escape_control_characters(str(text)), quote=False)


def format_label(text: str, *, max_length: int = _MAX_LABEL_LENGTH) -> str:
    """Format the name of a row; a long one loses its middle, because beginnings and ends distinguish names.

    >>> format_label("a" * 50, max_length=11)
    'aaaaa…aaaaa'
    """
    text = " ".join(text.split())
    half = (max_length - 1) // 2
    return escape_text(text if len(text) <= max_length else f"{text[:half]}…{text[-half:]}")


def build_layout(theme: Theme, *, rows: int = 0, height: int = 0, legend: bool = False) -> dict[str, Any]:
    """Return the base layout of every figure, with a transparent background."""
    return {
        "height": height or _MARGIN_PX + ROW_PX * max(1, rows) + (28 if legend else 0),
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


def build_axis(theme: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """Return a numeric axis."""
    return {
        "title": {"text": escape_text(title), "font": {"color": theme.faint, "size": 12}, "standoff": 10},
        "gridcolor": theme.grid,
        "zeroline": False,
        "linecolor": theme.zero,
        "tickfont": {"color": theme.faint, "size": 12},
        "fixedrange": True,
        "automargin": True,
        **more,
    }


def build_row_axis(theme: Theme, names: Sequence[str]) -> dict[str, Any]:
    """Return an axis of named rows, the first on top; the names must be escaped already."""
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
