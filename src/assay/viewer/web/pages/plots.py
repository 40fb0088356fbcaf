"""The pages with the plots of a run, and of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from assay.store.documents.measurements import TaskMeasurements
from assay.store.runs.run import Run
from assay.viewer.charts import build_themed_figures
from assay.viewer.plots.comparison_plots import build_document_scatter, build_task_scatter, list_common_tasks
from assay.viewer.plots.document_plots import build_document_plots
from assay.viewer.plots.records import Plot
from assay.viewer.web.rendering import build_url, dump_figures
from assay.viewer.web.run_catalog import RunCatalog

__all__ = ["build_comparison_plots_context", "build_plot_context", "build_run_plots_context"]

_MAX_ROWS = 60
"""The number of rows of a data table on the page; the CSV file has all."""


def build_plot_context(plots: Sequence[Plot]) -> dict[str, Any]:
    """Build the template context of some plots: those with data, and the others with their reasons."""
    shown = []
    for plot in plots:
        if plot.build is None:
            continue
        figures = build_themed_figures(plot.build)
        shown.append(
            {
                "name": plot.name,
                "title": plot.title,
                "summary": plot.summary,
                "note": plot.note,
                "columns": plot.table.columns,
                "rows": plot.table.rows[:_MAX_ROWS],
                "hidden_rows": max(0, len(plot.table.rows) - _MAX_ROWS),
                "height": figures["light"]["layout"]["height"],
                "json": dump_figures(figures, plot.table),
            }
        )
    return {"shown": shown, "missing": [plot for plot in plots if plot.build is None]}


def build_run_plots_context(
    run: Run, key: str, measured: dict[str, TaskMeasurements], cost: Plot, *, task: str, metric: int
) -> dict[str, Any]:
    """Build the template context of the plots of one task of a run."""
    names = [name for name in run.tasks if name in measured]
    task = task if task in measured else next(iter(names), "")
    plots = [cost] if len(names) > 1 or not names else []
    metrics: list[tuple[int, str]] = []
    if task:
        found = measured[task]
        output_type = str(run.tasks[task].get("output_type", ""))
        plots = [*build_document_plots(found, metric=metric, output_type=output_type), *plots]
        metrics = [
            (number, name if pipeline in ("", "none") else f"{name} ({pipeline})")
            for number, (pipeline, name) in enumerate(found.metrics)
        ]
    path = f"/runs/{quote(key, safe='')}/plots"
    chosen = metric if metric < len(metrics) else 0
    return {
        "heading": run.model,
        "under": f"{run.id if '@' not in key else key}{'' if run.finished else ' · the documents so far'}",
        "crumbs": [("Runs", "/"), (key, f"/runs/{quote(key, safe='')}")],
        "path": path,
        "hidden": [],
        "tasks": names,
        "task": task,
        "metrics": metrics,
        "metric": chosen,
        "others": [],
        "against": "",
        "choices": [
            (
                "Task",
                [
                    (name, build_url(path, task=name if at else ""), name == task)
                    for at, name in enumerate(names)
                ],
            ),
            (
                "Metric",
                [(name, build_url(path, task=task, metric=at), at == chosen) for at, name in metrics],
            ),
        ],
        "links": [("History of this task", build_url("/matrix/history", task=task))] if task else [],
        **build_plot_context(plots),
    }


def build_comparison_plots_context(
    catalog: RunCatalog, keys: Sequence[str], *, against: str, task: str, metric: str
) -> dict[str, Any]:
    """Build the template context of the plots of a baseline and another run."""
    others = list(keys[1:])
    against = against if against in others else others[0]
    with catalog.score_tables(keys[0]) as first, catalog.score_tables(against) as second:
        tasks = list_common_tasks(first, second)
        task = task if task in tasks else next(iter(tasks), "")
        plots = [build_task_scatter(first, second)]
        if task:
            plots.append(build_document_scatter(first, second, task, metric=metric))
        models = (first.model, second.model)
    query = {"run": list(keys), "metric": metric}
    return {
        "heading": f"{models[1]} compared with {models[0]}",
        "under": f"{against} compared with {keys[0]}",
        "crumbs": [("Compare", build_url("/compare", run=list(keys), baseline=keys[0]))],
        "path": "/compare/plots",
        "hidden": [
            *(("run", key) for key in keys),
            ("baseline", keys[0]),
            *([("metric", metric)] if metric else []),
        ],
        "tasks": tasks,
        "task": task,
        "metrics": [],
        "metric": "",
        "others": others,
        "against": against,
        "choices": [
            (
                "Task",
                [
                    (name, build_url("/compare/plots", query, against=against, task=name), name == task)
                    for name in tasks
                ],
            ),
            (
                "Compared run",
                [
                    (name, build_url("/compare/plots", query, against=name, task=task), name == against)
                    for name in others
                ],
            ),
        ],
        "links": [
            (f"Plots of {name}", build_url(f"/runs/{quote(key, safe='')}/plots", task=task))
            for name, key in (("the baseline", keys[0]), ("this run", against))
        ],
        **build_plot_context(plots),
    }
