"""A comparison as people read it: a table with a small plot, then what to be careful about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assay.core.printable import printable
from assay.viewer.comparison.forest import plot_line, reach_of
from assay.viewer.comparison.records import Comparison, Row
from assay.viewer.tables import digits

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["comparison_table", "detectable_of", "markdown_table", "p_text", "remarks", "signed", "verdict_of"]

_COLOURS = {True: "green", False: "red", None: ""}
_WIDE = 120


def comparison_table(comparison: Comparison, rows: Sequence[Row], *, width: int = 10_000) -> Table:
    """The rows of a comparison; in a narrow terminal without the plot and the single values."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    narrow = width < _WIDE
    padding = (0, 1, 0, 0) if narrow else (0, 1)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=padding)
    table.add_column("task", overflow="fold", no_wrap=not narrow, min_width=14)
    table.add_column("metric", overflow="fold", min_width=11)
    for title in () if narrow else ("first", "second"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column(f"{100 * comparison.level:g} % interval", no_wrap=True)
    if not narrow:
        table.add_column("", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("win/tie/loss", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("detects" if narrow else "detectable", justify="right", no_wrap=True)
    reach = reach_of(rows)
    for row in rows:
        colour = _COLOURS[row.better]
        paint = (f"[{colour}]", "[/]") if colour else ("", "")
        name = f"  {row.category}" if row.category else row.task
        metric = row.metric if row.pipeline in ("none", "") else f"{row.metric} ({row.pipeline})"
        values = [] if narrow else [digits(row.first), digits(row.second)]
        plot = [] if narrow else [f"{paint[0]}{plot_line(row, reach)}{paint[1]}"]
        table.add_row(
            escape(printable(name)),
            escape(printable("" if row.category else metric)),
            *values,
            f"{paint[0]}{signed(row.difference, row)}{paint[1]}",
            f"\\[{signed(row.low, row)}, {signed(row.high, row)}]",
            *plot,
            p_text(row.adjusted_p),
            *([] if narrow else ["" if row.wins is None else f"{row.wins}/{row.ties}/{row.losses}"]),
            f"{paint[0]}{'none seen' if narrow and not row.differs else verdict_of(row)}{paint[1]}",
            detectable_of(row),
            style="bold" if row.task.startswith("all ") and not row.category else "",
        )
    return table


def signed(value: float, row: Row) -> str:
    """A difference: of shares in points, else in the metric's own unit."""
    if not math.isfinite(value):
        return "?"
    return f"{100 * value:+.2f}" if row.share else f"{value:+.4g}"


def p_text(value: float) -> str:
    """A p-value as people write it."""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def verdict_of(row: Row) -> str:
    """In a word."""
    if row.differs:
        return "better" if row.better else "worse"
    if row.stderr == 0 and row.difference == 0:
        return "identical"
    return "no difference seen"


def detectable_of(row: Row) -> str:
    """How small a true difference would have been seen four times in five: what "no difference" is worth."""
    if row.detectable is None:
        return ""
    return f"±{100 * row.detectable:.1f}" if row.share else f"±{row.detectable:.3g}"


def remarks(comparison: Comparison) -> list[tuple[str, str]]:
    """(kind, text) of everything worth knowing beside the numbers; kinds are `warning` and `note`."""
    return list(dict.fromkeys(_remarks(comparison)))


def _remarks(comparison: Comparison) -> Iterator[tuple[str, str]]:
    for one in comparison.mismatches:
        share = "" if one.count is None else f" ({one.count} of {one.total} documents)"
        task = f"{one.task}: " if one.task else ""
        yield "warning", printable(f"{one.kind}: {task}{one.what}{share}")
    for row in comparison.rows:
        for note in row.notes:
            yield "note", printable(f"{row.task}: {note}")
        if row.clusters is not None:
            yield "note", printable(f"{row.task}: {row.documents} documents in {row.clusters} clusters")
    for note in comparison.notes:
        yield "note", printable(note)
    alone = [row.task for row in comparison.rows if not row.differs and (row.low > 0 or row.high < 0)]
    if alone and comparison.correction != "none" and comparison.family > 1:
        yield (
            "note",
            printable(
                f"{', '.join(dict.fromkeys(alone))}: an interval is of its task alone; p and detectable allow for all"
                f" {comparison.family} tests ({comparison.correction})"
            ),
        )


def markdown_table(comparison: Comparison, rows: Sequence[Row]) -> str:
    """The same rows for a pull request."""
    lines = [
        f"| task | metric | {_cell(comparison.first)} | {_cell(comparison.second)} | difference |"
        f" {100 * comparison.level:g} % interval | p | | detectable |",
        "|---|---|---:|---:|---:|---|---:|---|---:|",
    ]
    for row in rows:
        cells: list[Any] = [
            _cell(row.category or row.task),
            _cell(row.metric),
            digits(row.first),
            digits(row.second),
            signed(row.difference, row),
            f"[{signed(row.low, row)}, {signed(row.high, row)}]",
            p_text(row.adjusted_p),
            verdict_of(row),
            detectable_of(row),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("\n", " ")
