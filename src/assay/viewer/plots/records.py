"""The record of a plot: title, summary, table and figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from assay.viewer.charts.theme import Figure, Theme

__all__ = ["Plot", "PlotTable", "format_cell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotTable:
    """The numbers of a plot."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot, or the reason why there is none."""

    name: str
    """The name in URLs and in `run.plot()`."""

    title: str
    summary: str = ""
    """The main numbers in words: the text alternative of the figure."""

    note: str = ""
    """How to read the plot, and what it leaves out."""

    table: PlotTable = field(default_factory=lambda: PlotTable(columns=(), rows=()))
    build: Callable[[Theme], Figure] | None = None
    """None: there is no data."""

    missing: str = ""
    """Why there is no data."""


def format_cell(value: Any) -> str:
    """Format a number or text for a table on a page.

    >>> format_cell(0.123456789), format_cell(12), format_cell(None)
    ('0.123457', '12', '')
    """
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
