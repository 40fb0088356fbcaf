"""Costs by task, and the history of a task."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.making import write_task

import assay
from assay.core.records.responses import Response, Usage
from assay.store.documents.measurements import read_measurements
from assay.store.runs.run import Run
from assay.testing import ScriptedModel
from assay.viewer.charts import LIGHT
from assay.viewer.plots.document_plots import build_document_plot
from assay.viewer.plots.run_plots import build_cost_plot, build_history_plot, collect_history

Runs = tuple[Run, Run]


def test_costs_are_listed_by_task(plot_runs: Runs) -> None:
    plot = build_cost_plot(plot_runs[0])
    assert [row[0] for row in plot.table.rows] == ["sums"]
    assert plot.table.rows[0][1] == pytest.approx(1e-4 * sum(range(1, 41)))
    assert plot.summary == "$0.082 in total; the largest part is sums with $0.082."
    assert plot.build is not None and plot.build(LIGHT)["data"][0]["text"] == ["$0.082"]


def test_a_response_of_several_documents_is_paid_once(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in (1, 1, 2, 1)]
    tasks = [str(write_task(tmp_path / name, name, rows)) for name in ("first", "second")]
    usage = Usage(10, 2, cost_usd=0.5)
    model = ScriptedModel(lambda request: Response(request_id="", value="2", usage=usage, seconds=0.25))
    run = assay.run(model=model, tasks=tasks, no_cache=True, output_path=str(tmp_path / "runs"))
    assert run.spent.requests == 2
    found = read_measurements(run, ["second"])["second"]
    assert found.cost_usd.tolist() == pytest.approx([0.5, math.nan, 0.5, math.nan], nan_ok=True)
    assert found.response_seconds.tolist() == [0.25, 0.25]
    assert found.output_tokens.tolist() == [2, 2, 2, 2]
    assert (found.total_input_tokens, found.total_output_tokens) == (20, 4)
    tokens = build_document_plot("output_tokens", found)
    assert tokens.summary.endswith("Total 4.") and "once in the total" in tokens.note
    assert sum(row[1] for row in tokens.table.rows) == 4
    plot = build_cost_plot(run)
    assert [row[:2] for row in plot.table.rows] == [("first", 1.0), ("second", 1.0)]
    assert plot.summary.startswith("$1.00 in total")
    assert "A response that several tasks share counts in each of them" in plot.note


def test_the_history_has_a_point_for_each_run(plot_runs: Runs) -> None:
    found, damaged = collect_history(reversed(plot_runs), "sums")
    assert damaged == 0
    assert [point.model for point, _ in found] == ["first-model", "second-model"]
    plot = build_history_plot(found, "sums")
    assert [row[3] for row in plot.table.rows] == [0.75, 0.8]
    assert all(row[4] < row[3] < row[5] for row in plot.table.rows)
    assert "Best exact_match: 0.8000 (second-model)." in plot.summary
    assert plot.build is not None and len(plot.build(LIGHT)["data"]) == 2


def test_an_unknown_task_has_no_history(plot_runs: Runs) -> None:
    plot = build_history_plot(collect_history(plot_runs, "nothing")[0], "nothing")
    assert plot.build is None and "No finished run has a score for nothing" in plot.missing
