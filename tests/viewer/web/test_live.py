"""The page of a running run: scores so far, outcomes of tasks, failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task
from tests.viewer.web.browser_visit import Visit, check_accessibility, wait_until
from tests.viewer.web.viewer_server import Viewer, serve_runs

import assay
from assay.core.records.responses import Response, Usage
from assay.store.runs.run import Run
from assay.viewer.web.live_updates import take_snapshot
from assay.viewer.web.run_catalog import RunCatalog

Runs = tuple[Run, Run]


def test_a_snapshot_agrees_with_the_results(viewer: Viewer, runs: Runs) -> None:
    viewer.get_when_ready(f"/runs/{runs[0].id}/documents?q=zebra")  # the index is there
    state = take_snapshot(viewer.catalog, runs[0].id, detailed=True)
    assert state["done"] == sum(count for parts in state["tasks"].values() for _, count, _ in parts) == 140
    scores = {one["task"]: one for one in state["scores"]}
    (sums,) = [one for one in runs[0].estimates if one.task == "sums"]
    assert scores["sums"]["value"] == pytest.approx(sums.value)
    assert (scores["sums"]["low"], scores["sums"]["high"]) == pytest.approx(sums.interval)
    assert [(one["task"], one["position"]) for one in state["failures"]] == [("sums", 23)]
    assert "503" in state["failures"][0]["why"]
    assert state["cost_usd"] is None
    short = take_snapshot(viewer.catalog, runs[0].id)
    assert short["outcomes"] == state["outcomes"] and "scores" not in short


def test_the_cost_is_projected_to_all_documents(tmp_path: Path) -> None:
    usage = Usage(input_tokens=10, output_tokens=2, cost_usd=0.25)
    model = make_model(lambda request: Response(request_id="", value="2", usage=usage))
    rows = [{"question": f"What is {n} + 1?", "answer": "2"} for n in range(4)]
    task = write_task(tmp_path, "sums", rows)
    run = assay.run(model=model, tasks=[str(task)], no_cache=True, output_path=str(tmp_path / "out"))
    catalog = RunCatalog([str(tmp_path / "out")])
    state = take_snapshot(catalog, run.id, detailed=True)
    catalog.close()
    assert state["cost_usd"] == pytest.approx(1.0) == state["cost_forecast_usd"]


@pytest.mark.browser
def test_a_running_run_shows_its_score_so_far(browser: Any, tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]
    task, output, hold = write_task(tmp_path / "tasks", "sums", rows), tmp_path / "runs", tmp_path / "hold"
    output.mkdir()
    hold.touch()
    script = Path(__file__).with_name("slow_run.py")
    with serve_runs([output]) as viewer:
        visit = Visit(browser, viewer)
        page = visit.page
        process = subprocess.Popen([sys.executable, str(script), str(task), str(output), str(hold)])
        try:
            page.wait_for_selector("tr[data-run] a.row", timeout=90_000)
            page.click("tr[data-run] a.row")
            page.wait_for_selector(".live-scores td >> text=0.1250", timeout=90_000)
            assert page.locator(".live-scores tbody tr").inner_text().split()[:2] == ["sums", "exact_match"]
            wait_until(
                page, "document.querySelector('tr[data-task-row] .links').innerText.includes('8 scored')"
            )
            assert page.inner_text("#live [data-run-done]") == "8"
            check_accessibility(page)
            hold.unlink()
            page.wait_for_selector(".scores-table", timeout=90_000)
            assert process.wait(90) == 0
        finally:
            process.kill()
            process.wait()
        visit.check()
        visit.close()
