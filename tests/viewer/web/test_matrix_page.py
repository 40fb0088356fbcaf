"""The matrix of runs and tasks, and the history of a task."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task
from tests.viewer.web.browser_visit import Visit, check_accessibility
from tests.viewer.web.viewer_server import Viewer, serve_runs

import assay
from assay.engine.imports.importer import import_results
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.run import Run
from assay.viewer.matrix.score_matrix import MatrixCell, MatrixRow
from assay.viewer.web.pages.matrix import build_history_context, compute_heat_levels
from assay.viewer.web.rendering import render
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.run_entries import RunEntryCache

Runs = tuple[Run, Run]


@pytest.mark.parametrize(
    ("values", "share", "higher", "levels"),
    [
        ((0.0, 0.5, 1.0), True, True, [0, 4, 9]),
        ((1.0, 0.0, 0.2), True, False, [0, 9, 7]),
        ((10.0, 30.0, 20.0), False, False, [9, 0, 4]),
        ((5.0, 5.0, 5.0), False, True, [None, None, None]),
        ((1.0, None, 0.0), True, True, [9, None, 0]),
        ((1.0, 0.0, 0.0), True, None, [None, None, None]),
    ],
)
def test_cells_are_shaded_by_how_good_they_are(
    values: tuple[float | None, ...], share: bool, higher: bool | None, levels: list[int | None]
) -> None:
    cells = tuple(None if value is None else MatrixCell(value=value) for value in values)
    row = MatrixRow(
        task="t", label="t", metric="m", pipeline="none", cells=cells, share=share, higher_is_better=higher
    )
    assert compute_heat_levels(row) == levels


def test_a_score_is_starred_beyond_chance_only(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready("/matrix").text
    rows = {name: row for row in page.split("<tr")[2:] for name in re.findall(r"task=(\w+)&", row)[:1]}
    assert rows["sums"].count("★") == 1 and rows["sums"].index("second-model") < rows["sums"].index("★")
    assert "★" not in rows["choices"] and "★" not in rows["media"]
    chosen = viewer.get_when_ready(f"/matrix?run={runs[0].id}").text
    assert "second-model" not in chosen.partition("<table")[2]
    assert viewer.get("/matrix?run=nothing").status == 404


def test_the_history_of_a_task_lists_every_run(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get("/matrix/history?task=sums").text
    assert all(run.id in page for run in runs)
    assert page.count('<script type="application/json">') == 1
    assert viewer.get("/matrix/history?task=nothing").status == 404


def test_the_history_says_that_damaged_runs_are_left_out(runs: Runs, tmp_path: Path) -> None:
    shutil.copytree(runs[0].folder, tmp_path / "runs" / "good")
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / JOURNAL_FILE).write_bytes(b"no journal" * 1000)
    catalog = RunCatalog([str(tmp_path / "runs")])
    with closing(catalog):
        entries = RunEntryCache()
        listed = [entries.get(key, folder) for key, folder in catalog.folders().items()]
        context = build_history_context(catalog, listed, "sums", "")
    assert context["note"] == "1 damaged run is left out." and len(context["rows"]) == 1
    page = render("history.html", page="matrix", **context)
    assert "1 damaged run is left out." in page


def test_the_history_shows_one_filter_at_a_time(tmp_path: Path) -> None:
    steps = [{"name": name, "filter": [{"function": "take_first"}]} for name in ("strict", "loose")]
    task = write_task(tmp_path, "sums", filter_list=steps)
    run = assay.run(model=make_model(), tasks=[str(task)], no_cache=True, output_path=str(tmp_path / "runs"))
    with serve_runs([run.folder.parent]) as viewer:
        page = viewer.get("/matrix/history?task=sums").text
        assert (
            page.count("<td") == 4
            and "1 run of 1 model on " in page
            and "exact_match (strict)</span></h1>" in page
        )
        page = viewer.get("/matrix/history?task=sums&metric=exact_match&filter=loose").text
    assert page.count("<td") == 4 and "exact_match (loose)</span></h1>" in page


def test_the_matrix_has_all_tasks_of_a_model_from_its_newest_runs(tmp_path: Path) -> None:
    tasks = [str(write_task(tmp_path, name)) for name in ("old", "both", "new")]
    options: dict[str, Any] = {"no_cache": True, "output_path": str(tmp_path / "runs")}
    first = assay.run(model=make_model(), tasks=tasks[:2], **options)
    second = assay.run(model=make_model(lambda request: "1"), tasks=tasks[1:], **options)
    other = assay.run(model=make_model(name="other"), tasks=tasks[:1], **options)
    with serve_runs([first.folder.parent]) as viewer:
        page = viewer.get_when_ready("/matrix").text
        chosen = viewer.get_when_ready(f"/matrix?run={first.id}&run={second.id}").text
    head, _, body = page.partition("<tbody>")
    assert [name for name in ("scripted", "other") if f">{name}</th>" in head] == ["scripted", "other"]
    links = re.findall(r"/runs/([^/]+)/documents\?task=(\w+)", body)
    assert sorted(links, key=lambda link: link[1]) == [
        (second.id, "both"), (second.id, "new"), (other.id, "old"), (first.id, "old"),
    ]  # fmt: skip
    links = re.findall(r"/runs/([^/]+)/documents\?task=(\w+)", chosen)
    assert (first.id, "both") in links and (second.id, "both") in links


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_groups_open_and_cells_lead_to_documents(
    browser: Any, reading_viewer: Viewer, group_run: Run, reading_run: Run, scheme: str
) -> None:
    visit = Visit(browser, reading_viewer, color_scheme=scheme)
    page = visit.page
    page.click(".top nav >> text=Matrix")
    page.wait_for_selector("table.matrix")
    check_accessibility(page)
    hidden = page.locator("table.matrix a >> text=subject_23")
    assert not hidden.is_visible()
    page.click("table.matrix [data-fold]")
    hidden.wait_for()
    hidden.click()
    page.wait_for_selector("figure.chart.drawn .main-svg")
    check_accessibility(page)
    page.keyboard.press("u")
    page.wait_for_selector("table.matrix")
    page.locator("table.matrix tr", has_text="worked").locator("td a").first.click()
    page.wait_for_url("**/documents?task=worked")
    page.wait_for_selector("a.row")
    visit.check()
    visit.close()


def test_the_history_lists_imported_runs_without_a_date(tmp_path: Path) -> None:
    """Scores of a model card have no date: they cannot be in the chart over time, but they are scores of the task."""
    card = Path(__file__).parents[2] / "engine" / "imports" / "recorded" / "hub"
    import_results(card, tmp_path / "runs")
    with serve_runs([tmp_path / "runs"]) as viewer:
        page = viewer.get("/matrix/history?task=GSM8K+%285-shot%29").text
    assert page.count("<td") == 4 and "61.5" in page
    assert "1 run without a date is not in the chart." in page
