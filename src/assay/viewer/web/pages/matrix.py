"""The matrix page, models by tasks, and the history of one task over all runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from assay.core.errors import AssayError
from assay.core.records.verdicts import Estimate
from assay.viewer.charts import HistoryPoint, build_themed_figures
from assay.viewer.matrix import build_matrix
from assay.viewer.matrix.score_matrix import Matrix, MatrixRow
from assay.viewer.plots.run_plots import build_history_plot
from assay.viewer.web.rendering import dump_figures
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_entries import RunEntry

__all__ = ["build_history_context", "build_matrix_context", "choose_default_runs", "compute_matrix"]

MAX_RUNS = 12
_MAX_DEFAULT_RUNS = 24
_LEVELS = 9
_MAX_OPEN_ROWS = 20
"""Groups of a longer table are collapsed."""


def choose_default_runs(entries: Sequence[RunEntry]) -> list[str]:
    """Return the newest finished runs of each model with all its tasks, the newest runs first."""
    found: list[str] = []
    tasks: dict[str, set[str]] = {}
    for entry in sorted(entries, key=lambda entry: -(entry.started or 0.0)):
        if entry.state != "finished" or not entry.scores:
            continue
        if entry.model not in tasks and len(tasks) == MAX_RUNS:
            continue
        known = tasks.setdefault(entry.model, set())
        if not known.issuperset(entry.tasks) and len(found) < _MAX_DEFAULT_RUNS:
            found.append(entry.key)
            known.update(entry.tasks)
    return found


def compute_matrix(catalog: RunCatalog, keys: Sequence[str], *, by_model: bool = False) -> Matrix:
    """Build the matrix of some runs; this reads the documents of every task that several runs have.

    `by_model`: a column for each model, with the score of the first of its runs that has the task.
    """
    with ExitStack() as opened:
        sources = [opened.enter_context(catalog.score_tables(key)) for key in keys]
        if not by_model:
            return build_matrix(sources)
        known: dict[str, set[str]] = {}
        left_out = []
        for source in sources:
            earlier = known.setdefault(source.model, set())
            left_out.append(frozenset(earlier))
            earlier.update(one.task for one in source.read_estimates())
        return _merge_columns(build_matrix(sources, left_out=left_out))


def _merge_columns(matrix: Matrix) -> Matrix:
    """Return the matrix with one column for each model; a row has at most one score of a model."""
    places: dict[str, list[int]] = {}
    for place, column in enumerate(matrix.columns):
        places.setdefault(column.model, []).append(place)
    columns = tuple(
        replace(matrix.columns[listed[0]], label=model or matrix.columns[listed[0]].label)
        for model, listed in places.items()
    )
    rows = tuple(
        replace(
            row,
            cells=tuple(
                next((row.cells[place] for place in listed if row.cells[place] is not None), None)
                for listed in places.values()
            ),
        )
        for row in matrix.rows
    )
    return replace(matrix, columns=columns, rows=rows)


def build_matrix_context(matrix: Matrix) -> dict[str, Any]:
    """Build the template context of the matrix: shaded cells, and groups that collapse."""
    collapsed = len(matrix.rows) > _MAX_OPEN_ROWS
    open_groups: list[tuple[int, str]] = []
    rows = []
    for number, row in enumerate(matrix.rows):
        while open_groups and open_groups[-1][0] >= row.depth:
            open_groups.pop()
        within = [name for _, name in open_groups]
        name = f"g{number}" if row.group else ""
        rows.append(
            {
                "row": row,
                "group": name,
                "within": " ".join(within),
                "hidden": collapsed and bool(within),
                "collapsed": collapsed,
                "cells": list(zip(row.cells, compute_heat_levels(row), strict=True)),
            }
        )
        if name:
            open_groups.append((row.depth, name))
    return {"columns": matrix.columns, "rows": rows, "notes": matrix.notes}


def compute_heat_levels(row: MatrixRow) -> list[int | None]:
    """Return a level from 0 (worst) to 9 (best) for each cell: shares by their value, others within their row."""
    values = [cell.value for cell in row.cells if cell is not None]
    if not values or row.higher_is_better is None:
        return [None] * len(row.cells)
    low, high = (0.0, 1.0) if row.share else (min(values), max(values))
    if high <= low:
        return [None] * len(row.cells)
    levels: list[int | None] = []
    for cell in row.cells:
        if cell is None:
            levels.append(None)
            continue
        place = min(max((cell.value - low) / (high - low), 0.0), 1.0)
        levels.append(round(_LEVELS * (place if row.higher_is_better else 1 - place)))
    return levels


def build_history_context(
    catalog: RunCatalog, entries: Sequence[RunEntry], task: str, metric: str = "", pipeline: str = ""
) -> dict[str, Any]:
    """Build the template context of the scores of one task or group in all finished runs, the newest first.

    They are the scores of one metric after one filter, so that each run has one; by default the first of the newest run. Imported runs
    without a date come last and are not in the chart.
    """
    found: list[dict[str, Any]] = []
    measures: dict[tuple[str, str], None] = {}
    damaged = sum(entry.state == "damaged" for entry in entries)
    for entry in entries:
        if entry.state != "finished":
            continue
        try:
            with catalog.run(entry.key) as run:
                estimates = [one for one in run.estimates if one.task == task]
        except AssayError:
            damaged += 1
            continue
        for one in estimates:
            if isinstance(one.value, (int, float)) and not isinstance(one.value, bool):
                measures[one.metric, one.pipeline] = None
                found.append({"entry": entry, "estimate": one})
    exact = [one for one in measures if one == (metric, pipeline)]
    chosen = next(iter(exact or [one for one in measures if one[0] == metric] or measures), ("", ""))
    rows = [one for one in found if (one["estimate"].metric, one["estimate"].pipeline) == chosen]
    rows.sort(key=lambda one: -(one["entry"].started or 0.0))
    pairs = [
        (_build_point(one["entry"], one["estimate"]), one["estimate"])
        for one in reversed(rows)
        if one["entry"].started is not None
    ]
    undated = len(rows) - len(pairs)
    plot = build_history_plot(pairs, task, metric=chosen[0], damaged=damaged)
    chart = None if plot.build is None else dump_figures(build_themed_figures(plot.build), plot.table)
    return {
        "task": task,
        "measure": _format_measure(*chosen),
        "measures": [(name, filtered, _format_measure(name, filtered)) for name, filtered in measures],
        "rows": rows,
        "chart": chart,
        "summary": plot.summary,
        "note": " ".join(filter(None, (plot.note, _describe_undated(undated)))),
    }


def _describe_undated(count: int) -> str:
    return (
        f"{count} run{' without a date is' if count == 1 else 's without a date are'} not in the chart."
        if count
        else ""
    )


def _format_measure(metric: str, pipeline: str) -> str:
    return metric if pipeline in ("", "none") else f"{metric} ({pipeline})"


def _build_point(entry: RunEntry, estimate: Estimate) -> HistoryPoint:
    low, high = estimate.interval or (None, None)
    return HistoryPoint(
        model=entry.model,
        run=entry.id,
        started_s=float(entry.started or 0.0),
        value=float(estimate.value),
        low=low,
        high=high,
    )
