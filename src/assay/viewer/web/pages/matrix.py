"""The matrix page, models by tasks, and the history of one task over all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.errors import AssayError
from assay.core.records.verdicts import Estimate
from assay.store.runs.run import Run
from assay.viewer.charts import HistoryPoint, build_themed_figures
from assay.viewer.comparison.sources import open_source
from assay.viewer.matrix import build_matrix
from assay.viewer.matrix.score_matrix import Matrix, MatrixRow
from assay.viewer.plots.run_plots import build_history_plot
from assay.viewer.web.rendering import dump_figures
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_entries import RunEntry

__all__ = ["build_history_context", "build_matrix_context", "choose_default_runs", "compute_matrix"]

MAX_RUNS = 12
_LEVELS = 9
_MAX_OPEN_ROWS = 20
"""Groups of a longer table are collapsed."""


def choose_default_runs(entries: Sequence[RunEntry]) -> list[str]:
    """Return the newest finished run of each model, the newest models first."""
    found: dict[str, str] = {}
    for entry in sorted(entries, key=lambda entry: -(entry.started or 0.0)):
        if entry.state == "finished" and entry.scores:
            found.setdefault(entry.model, entry.key)
    return list(found.values())[:MAX_RUNS]


def compute_matrix(catalog: RunCatalog, keys: Sequence[str]) -> Matrix:
    """Build the matrix of some runs; this reads the documents of every task that several runs have."""
    sources = []
    try:
        for key in keys:
            sources.append(open_source(Run(catalog.folder(key))))
        return build_matrix(sources)
    finally:
        for source in sources:
            source.close()


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
    catalog: RunCatalog, entries: Sequence[RunEntry], task: str, metric: str
) -> dict[str, Any]:
    """Build the template context of the scores of one task or group in all finished runs, the newest first."""
    found: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    damaged = sum(entry.state == "damaged" for entry in entries)
    for entry in entries:
        if entry.state != "finished" or entry.started is None:
            continue
        try:
            with catalog.run(entry.key) as run:
                estimates = [one for one in run.estimates if one.task == task]
        except AssayError:
            damaged += 1
            continue
        for one in estimates:
            if isinstance(one.value, (int, float)) and not isinstance(one.value, bool):
                metrics[one.metric] = None
                found.append({"entry": entry, "estimate": one})
    chosen = metric if metric in metrics else next(iter(metrics), "")
    rows = [one for one in found if one["estimate"].metric == chosen]
    rows.sort(key=lambda one: -(one["entry"].started or 0.0))
    pairs = [(_build_point(one["entry"], one["estimate"]), one["estimate"]) for one in reversed(rows)]
    plot = build_history_plot(pairs, task, metric=chosen, damaged=damaged)
    chart = None if plot.build is None else dump_figures(build_themed_figures(plot.build), plot.table)
    return {
        "task": task,
        "metric": chosen,
        "metrics": list(metrics),
        "rows": rows,
        "chart": chart,
        "summary": plot.summary,
        "note": plot.note,
    }


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
