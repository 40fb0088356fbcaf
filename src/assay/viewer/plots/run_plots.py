"""Plots of whole runs: the cost of each task and judge, and the scores of a task over several runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import numpy as np

from assay.core.errors import CorruptStore
from assay.core.records.verdicts import Estimate
from assay.store.documents.measurements import TaskMeasurements, read_measurements
from assay.store.runs.run import Run
from assay.viewer.charts import HistoryPoint, build_history_figure
from assay.viewer.charts.amounts import CostBar, build_costs_figure
from assay.viewer.number_format import format_dollars
from assay.viewer.plots.document_plots import NO_COSTS
from assay.viewer.plots.records import Plot, PlotTable
from assay.viewer.results.run_overview import is_share

__all__ = ["build_cost_plot", "build_history_plot", "collect_history", "find_metric"]

_MAX_BARS = 40


def build_cost_plot(run: Run, measured: Mapping[str, TaskMeasurements] | None = None) -> Plot:
    """Build the cost of each task, and of each judge. `measured`: the measurements of all tasks, if they are known."""
    name, title = "cost_by_task", "Cost by task"
    costs = [
        (task, float(np.nansum(found.cost_usd)), len(found.documents))
        for task, found in (read_measurements(run) if measured is None else measured).items()
        if not np.isnan(found.cost_usd).all()
    ]
    bars = [
        CostBar(
            name=task,
            dollars=dollars,
            note=f"{format_dollars(dollars / count)} for each of {count:,} documents",
        )
        for task, dollars, count in costs
    ]
    bars += [
        CostBar(name=f"judge {judge}", dollars=spent.cost_usd, note=f"{spent.requests:,} requests")
        for judge, spent in run.spent_by_judge.items()
        if spent.cost_usd is not None
    ]
    if not bars:
        return Plot(
            name=name,
            title=title,
            missing=NO_COSTS,
        )
    bars.sort(key=lambda bar: -bar.dollars)
    parts = sum(bar.dollars for bar in bars)
    judges = sum(spent.cost_usd or 0.0 for spent in run.spent_by_judge.values())
    total = parts if run.spent.cost_usd is None else run.spent.cost_usd + judges
    most = bars[0]
    notes = (
        [f"The chart shows the {_MAX_BARS} largest of {len(bars)} parts."] if len(bars) > _MAX_BARS else []
    )
    if parts > total * (1 + 1e-9):
        notes.append("A response that several tasks share counts in each of them, and once in the total.")
    return Plot(
        name=name,
        title=title,
        summary=f"{format_dollars(total)} in total; the largest part is {most.name} with {format_dollars(most.dollars)}.",
        note=" ".join(notes),
        table=PlotTable(
            columns=("task or judge", "cost_usd", "details"),
            rows=tuple((bar.name, bar.dollars, bar.note) for bar in bars),
        ),
        build=partial(build_costs_figure, bars[:_MAX_BARS]),
    )


def find_metric(estimates: Iterable[Estimate], metric: str = "") -> Estimate | None:
    """Return the estimate of a metric, by default the first one that is a number."""
    for one in estimates:
        is_number = isinstance(one.value, (int, float)) and not isinstance(one.value, bool)
        if is_number and metric in ("", one.metric):
            return one
    return None


def collect_history(
    runs: Iterable[Run], task: str, metric: str = ""
) -> tuple[list[tuple[HistoryPoint, Estimate]], int]:
    """Return the scores of a task or group in finished runs, the oldest first, and the number of damaged runs.

    `metric`: by default the first one of the first run that has the task.
    """
    found = []
    damaged = 0
    for run in runs:
        try:
            started, estimates = run.facts.get("started"), run.estimates if run.finished else []
        except CorruptStore:
            damaged += 1
            continue
        one = find_metric((one for one in estimates if one.task == task), metric)
        if one is None or started is None:
            continue
        metric = metric or one.metric
        low, high = one.interval or (None, None)
        point = HistoryPoint(
            model=run.model, run=run.id, started_s=float(started), value=float(one.value), low=low, high=high
        )
        found.append((point, one))
    return sorted(found, key=lambda pair: pair[0].started_s), damaged


def build_history_plot(
    found: Sequence[tuple[HistoryPoint, Estimate]], task: str, *, metric: str = "", damaged: int = 0
) -> Plot:
    """Build the scores of a task over the start times of runs. `damaged`: the number of runs that could not be read."""
    name, title = "history", f"History of {task}"
    if not found:
        return Plot(name=name, title=title, missing=f"No finished run has a score for {task}.")
    points = [point for point, _ in found]
    metric = metric or found[0][1].metric
    share = all(is_share(estimate) for _, estimate in found)
    best = (min if found[0][1].higher_is_better is False else max)(points, key=lambda point: point.value)
    models = len({point.model for point in points})
    first_day, last_day = _format_day(points[0].started_s), _format_day(points[-1].started_s)
    period = f"on {first_day}" if first_day == last_day else f"from {first_day} to {last_day}"
    return Plot(
        name=name,
        title=title,
        summary=(
            f"{len(points)} run{'s' if len(points) != 1 else ''} of {models} model{'s' if models != 1 else ''} {period}."
            f" Best {metric}: {best.value:.4f} ({best.model})."
        ),
        note=f"{damaged} damaged run{' is' if damaged == 1 else 's are'} left out." if damaged else "",
        table=PlotTable(
            columns=("started", "model", "run", metric, "low", "high"),
            rows=tuple(
                (_format_time(point.started_s), point.model, point.run, point.value, point.low, point.high)
                for point in points
            ),
        ),
        build=partial(build_history_figure, points, metric=metric, share=share),
    )


def _format_day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
