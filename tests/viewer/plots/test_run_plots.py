"""Costs by task, and the history of a task."""

from __future__ import annotations

import pytest

from assay.store.runs.run import Run
from assay.viewer.charts import LIGHT
from assay.viewer.plots.run_plots import build_cost_plot, build_history_plot, collect_history

Runs = tuple[Run, Run]


def test_costs_are_listed_by_task(plot_runs: Runs) -> None:
    plot = build_cost_plot(plot_runs[0])
    assert [row[0] for row in plot.table.rows] == ["sums"]
    assert plot.table.rows[0][1] == pytest.approx(1e-4 * sum(range(1, 41)))
    assert plot.summary == "$0.082 in total; the largest part is sums with $0.082."
    assert plot.build is not None and plot.build(LIGHT)["data"][0]["text"] == ["$0.082"]


def test_the_history_has_a_point_for_each_run(plot_runs: Runs) -> None:
    found = collect_history(reversed(plot_runs), "sums")
    assert [point.model for point, _ in found] == ["first-model", "second-model"]
    plot = build_history_plot(found, "sums")
    assert [row[3] for row in plot.table.rows] == [0.75, 0.8]
    assert all(row[4] < row[3] < row[5] for row in plot.table.rows)
    assert "Best exact_match: 0.8000 (second-model)." in plot.summary
    assert plot.build is not None and len(plot.build(LIGHT)["data"]) == 2


def test_an_unknown_task_has_no_history(plot_runs: Runs) -> None:
    plot = build_history_plot(collect_history(plot_runs, "nothing"), "nothing")
    assert plot.build is None and "No finished run has a score for nothing" in plot.missing
