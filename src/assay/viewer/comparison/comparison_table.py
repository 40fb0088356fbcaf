"""A comparison as a table for the terminal or for Markdown, and the remarks below it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from assay.core.terminal_text import escape_control_characters
from assay.viewer.comparison.forest_plot import find_scale_limit, format_plot_line
from assay.viewer.comparison.groups import order_rows
from assay.viewer.comparison.records import Comparison, ComparisonRow
from assay.viewer.number_format import format_float
from assay.viewer.text_tables import Column, TextTable

__all__ = [
    "build_comparison_table",
    "collect_remarks",
    "describe_difference",
    "format_detectable",
    "format_difference",
    "format_markdown_table",
    "format_p_value",
]

_COLOURS = {True: "green", False: "red", None: ""}


def build_comparison_table(comparison: Comparison, rows: Sequence[ComparisonRow]) -> TextTable:
    """Build the table of a comparison: a row per task and metric, or per category."""
    from rich.markup import escape

    table = TextTable(
        columns=[
            Column(title="task", wrap=True),
            Column(title="metric", wrap=True),
            Column(title="first", justify="right", fold=4, folded="first {}"),
            Column(title="second", justify="right", fold=4, folded="second {}"),
            Column(title="difference", justify="right"),
            Column(title=f"{100 * comparison.level:g} % interval"),
            Column(fold=6, is_drawing=True),
            Column(title="p", justify="right", fold=1, folded="p = {}"),
            Column(title="win/tie/loss", justify="right", fold=5, folded="win/tie/loss {}"),
            Column(fold=2),
            Column(title="detectable", justify="right", fold=3, folded="detectable {}"),
        ]
    )
    reach = find_scale_limit(rows)
    depths = {row.task: len(around) for around, row in order_rows(comparison)}
    for row in rows:
        colour = _COLOURS[row.better]
        paint = (f"[{colour}]", "[/]") if colour else ("", "")
        indent = "  " * depths.get(row.task, 0)
        name = f"  {row.category}" if row.category else f"{indent}{row.task}"
        metric = row.metric if row.pipeline in ("none", "") else f"{row.metric} ({row.pipeline})"
        table.add_row(
            escape(escape_control_characters(name)),
            escape(escape_control_characters("" if row.category else metric)),
            format_float(row.first),
            format_float(row.second),
            f"{paint[0]}{format_difference(row.difference, row)}{paint[1]}",
            f"\\[{format_difference(row.low, row)}, {format_difference(row.high, row)}]",
            f"{paint[0]}{format_plot_line(row, reach)}{paint[1]}",
            format_p_value(row.adjusted_p),
            "" if row.wins is None else f"{row.wins}/{row.ties}/{row.losses}",
            f"{paint[0]}{describe_difference(row)}{paint[1]}",
            format_detectable(row),
            style="bold" if row.members or (row.task.startswith("all ") and not row.category) else "",
        )
    return table


def format_difference(value: float, row: ComparisonRow) -> str:
    """Format a difference: in percentage points for values between 0 and 1, else in the metric's unit."""
    if not math.isfinite(value):
        return "?"
    return f"{100 * value:+.2f}" if row.share else f"{value:+.4g}"


def format_p_value(value: float) -> str:
    """Format a p-value."""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def describe_difference(row: ComparisonRow) -> str:
    """Return better, worse, identical, not comparable or no significant difference."""
    if row.blocked:
        return f"not comparable: {', '.join(row.blocked)}"
    if row.differs:
        return "better" if row.better else "worse"
    if row.stderr == 0 and row.difference == 0:
        return "identical"
    return "no significant difference"


def format_detectable(row: ComparisonRow) -> str:
    """Format the smallest true difference that the comparison detects with 80 % power."""
    if row.detectable is None:
        return ""
    return f"±{100 * row.detectable:.1f}" if row.share else f"±{row.detectable:.3g}"


def collect_remarks(comparison: Comparison) -> list[tuple[str, str]]:
    """Return (kind, text) of the remarks on a comparison; kinds are `warning` and `note`."""
    return list(dict.fromkeys(_iterate_remarks(comparison)))


def _iterate_remarks(comparison: Comparison) -> Iterator[tuple[str, str]]:
    for one in comparison.mismatches:
        share = "" if one.count is None else f" ({one.count} of {one.total} documents)"
        task = f"{one.task}: " if one.task else ""
        yield "warning", escape_control_characters(f"{one.kind}: {task}{one.what}{share}")
    if kinds := list(dict.fromkeys(kind for row in comparison.rows for kind in row.blocked)):
        listed = ",".join(kinds)
        yield (
            "warning",
            f"no run is called better because of differences other than the model: {', '.join(kinds)};"
            f" `--allow_mismatch {listed}` compares them anyway",
        )
    for row in comparison.rows:
        for note in row.notes:
            yield "note", escape_control_characters(f"{row.task}: {note}")
        if row.clusters is not None:
            yield (
                "note",
                escape_control_characters(
                    f"{row.task}: {row.documents} documents in {row.clusters} clusters"
                ),
            )
    for note in comparison.notes:
        yield "note", escape_control_characters(note)
    alone = [row.task for row in comparison.rows if not row.differs and (row.low > 0 or row.high < 0)]
    if alone and comparison.correction != "none" and comparison.family > 1:
        yield (
            "note",
            escape_control_characters(
                f"{', '.join(dict.fromkeys(alone))}: intervals are not adjusted for multiple tests; p and detectable are adjusted for all"
                f" {comparison.family} tests ({comparison.correction})"
            ),
        )


def format_markdown_table(comparison: Comparison, rows: Sequence[ComparisonRow]) -> str:
    """Format the rows as a Markdown table, for pull requests."""
    lines = [
        f"| task | metric | {_escape_cell(comparison.first)} | {_escape_cell(comparison.second)} | difference |"
        f" {100 * comparison.level:g} % interval | p | | detectable |",
        "|---|---|---:|---:|---:|---|---:|---|---:|",
    ]
    for row in rows:
        cells: list[Any] = [
            _escape_cell(row.category or row.task),
            _escape_cell(row.metric),
            format_float(row.first),
            format_float(row.second),
            format_difference(row.difference, row),
            f"[{format_difference(row.low, row)}, {format_difference(row.high, row)}]",
            format_p_value(row.adjusted_p),
            describe_difference(row),
            format_detectable(row),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _escape_cell(text: str) -> str:
    return escape_control_characters(text).replace("|", "\\|").replace("\n", " ")
