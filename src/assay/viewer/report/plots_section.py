"""The plots of a report: those of each task of a run, or the scores of several runs against each other and over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from assay.core.errors import AssayError
from assay.store.documents.measurements import read_measurements
from assay.store.documents.score_tables import ScoreTableSource
from assay.store.runs.run import Run
from assay.viewer.charts import Figure, Theme
from assay.viewer.plots.comparison_plots import build_document_scatter, build_task_scatter, list_common_tasks
from assay.viewer.plots.document_plots import build_document_plots
from assay.viewer.plots.records import Plot
from assay.viewer.plots.run_plots import build_cost_plot, build_history_plot, collect_history

__all__ = ["PlotGroup", "build_comparison_plot_groups", "build_run_plot_groups"]

AddFigure = Callable[[str, Callable[[Theme], Figure]], str]

_MAX_TASKS = 6
"""The number of tasks with plots; the viewer has those of all."""

_MAX_POINTS = 300
_MIN_RUNS_FOR_HISTORY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotGroup:
    """The plots of one task, or of two runs."""

    title: str
    plots: tuple[tuple[str, Plot], ...]
    """The name of the figure, and the plot."""

    notes: tuple[str, ...] = ()
    """Plots without data and their reasons, and what is left out."""


def build_run_plot_groups(add_figure: AddFigure, run: Run) -> list[PlotGroup]:
    """Build the plots of the first tasks of a run, and the costs of all tasks."""
    names = list(islice(run.tasks, _MAX_TASKS))
    groups = []
    measured = read_measurements(run)
    for task in names:
        found = measured[task]
        plots = build_document_plots(
            found, output_type=str(run.tasks[task].get("output_type", "")), max_points=_MAX_POINTS
        )
        groups.append(_build_group(add_figure, task, plots, prefix=f"plot-{task}"))
    if len(run.tasks) > 1:
        cost = build_cost_plot(run, measured)
        left_out = len(run.tasks) - len(names)
        note = f"The viewer has the plots of {left_out} more tasks." if left_out else ""
        if cost.build is not None or note:
            shown = [cost] if cost.build is not None else []
            groups.append(_build_group(add_figure, "All tasks", shown, prefix="plot-run", note=note))
    return groups


def build_comparison_plot_groups(
    add_figure: AddFigure, runs: Sequence[Run], sources: Sequence[ScoreTableSource], labels: Sequence[str]
) -> list[PlotGroup]:
    """Build the scores of each further run against the first, and those of each task over time."""
    groups = []
    first = sources[0]
    for number, (second, label) in enumerate(zip(sources[1:], labels[1:], strict=True), 1):
        tasks = list_common_tasks(first, second)
        try:
            plots = [build_task_scatter(first, second)]
            plots += [
                build_document_scatter(first, second, task, max_points=_MAX_POINTS)
                for task in tasks[:_MAX_TASKS]
            ]
        except AssayError as error:  # result files without documents
            plots = [Plot(name="scatter", title="Scores of documents", missing=error.what)]
        title = f"{label} against {labels[0]}"
        groups.append(_build_group(add_figure, title, plots, prefix=f"plot-pair-{number}"))
    if len(runs) >= _MIN_RUNS_FOR_HISTORY:
        names = list(dict.fromkeys(task for run in runs for task in run.tasks))[:_MAX_TASKS]
        history = []
        for task in names:
            found, damaged = collect_history(runs, task)
            history.append(build_history_plot(found, task, damaged=damaged))
        groups.append(_build_group(add_figure, "Over time", history, prefix="plot-history"))
    return groups


def _build_group(
    add_figure: AddFigure, title: str, plots: Sequence[Plot], *, prefix: str, note: str = ""
) -> PlotGroup:
    shown = tuple(
        (add_figure(f"{prefix}-{number}", plot.build), plot)
        for number, plot in enumerate(plots)
        if plot.build is not None
    )
    reasons = tuple(f"{plot.title}: {plot.missing}" for plot in plots if plot.build is None)
    return PlotGroup(title=title, plots=shown, notes=(*reasons, *([note] if note else [])))
