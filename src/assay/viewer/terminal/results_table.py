"""The table of results: every number with its standard error, its interval and its denominator."""

from __future__ import annotations

from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.number_format import DIRECTION_ARROWS, format_float, format_number
from assay.viewer.results.notes import format_notes
from assay.viewer.results.score_rows import iterate_breakdown, iterate_score_rows
from assay.viewer.results.variants import format_extremes
from assay.viewer.text_tables import Column, TextTable, render_table_text

__all__ = ["build_results_table", "format_results"]

_COLUMNS = {
    "task": Column(title="task", wrap=True),
    "n_shot": Column(title="n-shot", justify="right", fold=4, folded="{}-shot"),
    "filter": Column(title="filter", wrap=True, fold=1, folded="filter {}", omit=frozenset({"none"})),
    "metric": Column(title="metric", wrap=True),
    "arrow": Column(),
    "value": Column(title="value", justify="right"),
    "stderr": Column(title="± stderr", fold=3),
    "interval": Column(title="95 % interval"),
    "extremes": Column(
        title="worst – best prompt", fold=1, folded="worst – best prompt {}", omit=frozenset({""})
    ),
    "scored": Column(title="scored", justify="right", fold=2, folded="{} scored"),
    "unscored": Column(
        title="unscored", justify="right", fold=6, folded="{} unscored", omit=frozenset({"0"})
    ),
    "failed": Column(title="failed", justify="right", fold=5, folded="{} failed", omit=frozenset({"0"})),
}
"""The columns. Where the terminal is too narrow, counts of missing documents fold first, then shots, standard errors, …"""


def build_results_table(run: Run) -> TextTable:
    """Build the table of a run: a row per task, filter and metric."""
    from rich.markup import escape

    has_intervals = any(estimate.interval is not None for estimate in run.estimates)
    shown = {"interval": has_intervals, "extremes": bool(run.facts.get("variants"))}
    names = [name for name in _COLUMNS if shown.get(name, True)]
    table = TextTable(columns=[_COLUMNS[name] for name in names])

    def add_row(cells: dict[str, str], style: str) -> None:
        table.add_row(*(cells.get(name, "") for name in names), style=style)

    previous = ""
    for depth, name, facts, estimate in iterate_score_rows(run):
        label = "" if name == previous else f"{'  ' * depth}{escape(facts.get('alias') or name)}"
        style = "bold" if name in run.groups else ""
        if estimate is None:
            add_row({"task": label}, style)
        else:
            n_shot = "" if name == previous or facts.get("n_shot") is None else str(facts["n_shot"])
            cells = {"extremes": format_extremes(run, estimate), **_build_cells(estimate)}
            add_row({"task": label, "n_shot": n_shot, **cells}, style)
            for part, value in iterate_breakdown(estimate.value):
                add_row({"metric": f"  {escape(part)}", "value": value}, "dim")
        previous = name
    return table


def _build_cells(estimate: Estimate) -> dict[str, str]:
    from rich.markup import escape

    return {
        "filter": escape(estimate.pipeline),
        "metric": escape(estimate.metric),
        "arrow": DIRECTION_ARROWS[estimate.higher_is_better],
        "value": escape(format_number(estimate.value)),
        "stderr": _format_stderr(estimate),
        "interval": _format_interval(estimate),
        "scored": f"{estimate.scored} of {estimate.population}"
        if estimate.population
        else str(estimate.scored),
        "unscored": _highlight_count(estimate.unscored, "yellow"),
        "failed": _highlight_count(estimate.failed, "red"),
    }


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


def format_results(run: Run, *, width: int = 10_000) -> str:
    """Return the table and its notes as plain text."""
    table = render_table_text(build_results_table(run), width=width)
    return "\n".join([table, *format_notes(run, width=width)])


def _highlight_count(count: int, colour: str) -> str:
    return f"[{colour}]{count}[/{colour}]" if count else "0"
