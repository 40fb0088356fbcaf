"""The table of results: every number with its standard error, its interval and its denominator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.number_format import DIRECTION_ARROWS, format_float, format_number
from assay.viewer.results.notes import format_notes
from assay.viewer.results.score_rows import iterate_breakdown, iterate_score_rows
from assay.viewer.text_tables import render_table_text

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["build_results_table", "format_results"]

_INTERVAL = "95 % interval"


def build_results_table(run: Run, *, width: int | None = None) -> Table:
    """Build the table for a terminal of `width` columns.

    A table that is too wide first drops the intervals, then wraps names and merges the counts. Numbers are never cut.
    """
    from rich.console import Console

    tables = (
        _build_table(run, narrow=False),
        _build_table(run, narrow=False, intervals=False),
        _build_table(run, narrow=True),
    )
    console = Console(width=10_000)
    return next(
        (table for table in tables[:2] if width is None or console.measure(table).maximum <= width), tables[2]
    )


def _build_table(run: Run, *, narrow: bool, intervals: bool = True) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    filters = not narrow or any(estimate.pipeline != "none" for estimate in run.estimates)
    padding = (0, 1, 0, 0) if narrow else (0, 1)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=padding)
    titles = ("task", *(("filter",) if filters else ()), "metric")
    for title in titles if narrow else ("task", "n-shot", "filter", "metric", ""):
        side: Any = "right" if title == "n-shot" else "left"
        table.add_column(title, justify=side, no_wrap=not narrow, overflow="fold")
    has_intervals = (
        intervals and not narrow and any(estimate.interval is not None for estimate in run.estimates)
    )
    interval_titles = (_INTERVAL,) if has_intervals else ()
    counts = ("documents",) if narrow else ("scored", "unscored", "failed")
    for title in ("value", "± stderr", *interval_titles, *counts):
        side = "left" if title in ("± stderr", _INTERVAL) else "right"
        table.add_column(title, justify=side, no_wrap=True, min_width=9 if narrow else None)
    previous = ""
    for depth, name, facts, estimate in iterate_score_rows(run):
        label = "" if name == previous else f"{'  ' * depth}{escape(facts.get('alias') or name)}"
        style = "bold" if name in run.groups else ""
        if estimate is None:
            table.add_row(label, style=style)
        else:
            n_shot = "" if name == previous or facts.get("n_shot") is None else str(facts["n_shot"])
            names = [*([escape(estimate.pipeline)] if filters else []), escape(estimate.metric)]
            arrow = DIRECTION_ARROWS[estimate.higher_is_better]
            stderr = _format_stderr(estimate)
            table.add_row(
                label,
                *(names if narrow else [n_shot, *names, arrow]),
                escape(format_number(estimate.value)),
                stderr,
                *([_format_interval(estimate)] if has_intervals else []),
                *(_format_total(estimate) if narrow else _format_counts(estimate)),
                style=style,
            )
            for part, value in iterate_breakdown(estimate.value):
                lead = [""] * (3 if not narrow else len(titles) - 1)
                table.add_row(*lead, f"  {escape(part)}", *([] if narrow else [""]), value, style="dim")
        previous = name
    return table


def _format_interval(estimate: Estimate) -> str:
    if estimate.interval is None:
        return ""
    return f"{format_float(estimate.interval[0])} – {format_float(estimate.interval[1])}"


def _format_stderr(estimate: Estimate) -> str:
    """Format the standard error and, where there are clusters, the clustered one."""
    parts = [] if estimate.stderr is None else [f"± {format_float(estimate.stderr)}"]
    if estimate.clustered_stderr is not None:
        parts.append(f"(clustered {format_float(estimate.clustered_stderr)})")
    return " ".join(parts)


def _format_counts(estimate: Estimate) -> list[str]:
    return [
        str(estimate.scored),
        _highlight_count(estimate.unscored, "yellow"),
        _highlight_count(estimate.failed, "red"),
    ]


def _format_total(estimate: Estimate) -> list[str]:
    """Format the scored documents out of all."""
    total = estimate.scored + estimate.unscored + estimate.failed
    return [str(total) if total == estimate.scored else f"[red]{estimate.scored} of {total}[/red]"]


def format_results(run: Run, *, width: int = 10_000) -> str:
    """Return the table and its notes as plain text."""
    return "\n".join([render_table_text(build_results_table(run), width=width), *format_notes(run)])


def _highlight_count(count: int, colour: str) -> str:
    return f"[{colour}]{count}[/{colour}]" if count else "0"
