"""The page of a run: collapsed groups, best and worst tasks, reasons, repeats, categories."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.viewer.web.browser_visit import Visit, check_accessibility, wait_until
from tests.viewer.web.viewer_server import Viewer

from assay.store.runs.run import Run


def test_a_group_shows_its_best_and_worst_tasks(reading_viewer: Viewer, group_run: Run) -> None:
    page = reading_viewer.get_when_ready(f"/runs/{group_run.id}").text
    best, worst = page.partition("5 best tasks")[2].split("5 worst tasks")
    assert re.findall(r">(subject_\d+)</a>", best)[:3] == ["subject_21", "subject_22", "subject_23"]
    assert re.findall(r">(subject_\d+)</a>", worst)[0] == "subject_00"


def test_failures_are_grouped_by_reason(reading_viewer: Viewer, group_run: Run) -> None:
    page = reading_viewer.get_when_ready(f"/runs/{group_run.id}").text
    rows = page.partition('class="reasons-table"')[2].partition("</table>")[0].split("<tr>")[2:]
    assert len(rows) == 2
    assert all(">3</td>" in row and "no reply" in row for row in rows)


def test_repeats_are_a_table(reading_viewer: Viewer, group_run: Run) -> None:
    page = reading_viewer.get_when_ready(f"/runs/{group_run.id}").text
    table = page.partition('class="repeats-table"')[2].partition("</table>")[0]
    assert table.count("<tr>") == 9 and "6 × 2" in table and "pass@k" in table
    assert "─" not in page


def test_a_picture_is_not_a_category(reading_viewer: Viewer, group_run: Run) -> None:
    page = reading_viewer.get_when_ready(f"/runs/{group_run.id}/categories?task=subject_01").text
    assert "have no field to group them by" in page


def test_a_word_has_one_number(viewer: Viewer, runs: tuple[Run, Run]) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}").text
    head = page.partition('class="scores-table"')[2].partition("</thead>")[0]
    assert ">scored<" not in head and ">counted<" in head
    assert "128 scored" in page.partition('class="outcomes-table"')[2]


def test_the_list_marks_runs_with_failures(reading_viewer: Viewer, group_run: Run) -> None:
    answer = reading_viewer.get(f"/counts?run={group_run.id}").text
    assert "6 failed" in answer


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_groups_open_and_tasks_are_sorted(
    browser: Any, reading_viewer: Viewer, group_run: Run, scheme: str
) -> None:
    visit = Visit(browser, reading_viewer, color_scheme=scheme)
    page = visit.open(f"/runs/{group_run.id}")
    page.wait_for_selector("figure.chart.drawn .main-svg")
    page.wait_for_selector("#categories .note")
    assert page.evaluate("document.documentElement.scrollHeight") < 4000
    visible = page.locator("table[data-scores] tbody tr:visible")
    assert visible.count() == 1
    page.click("[data-fold]")
    page.wait_for_selector("table[data-scores] >> text=subject_23")
    assert visible.count() == 25
    page.click("[data-sort-scores]")
    page.wait_for_selector("th[aria-sort=descending]")
    assert visible.count() == 24 and visible.first.inner_text().startswith("subject_21")
    page.click("[data-sort-scores]")
    page.wait_for_selector("th[aria-sort=ascending]")
    assert visible.first.inner_text().startswith("subject_00")
    page.click("[data-sort-scores]")
    page.click("[data-fold]")
    page.wait_for_selector("table[data-scores] tbody tr:nth-child(2)", state="hidden")
    page.click(".section-nav >> text=Settings")
    top = page.evaluate("document.querySelector('#settings').getBoundingClientRect().top")
    assert 0 < top < 900 and page.locator(".section-nav").is_visible()
    check_accessibility(page)
    visit.check()
    visit.close()


@pytest.mark.browser
def test_a_chart_is_downloaded_with_its_data(visit: Visit, runs: tuple[Run, Run]) -> None:
    page = visit.open(f"/runs/{runs[0].id}")
    figure = page.locator("#scores figure.chart.drawn").first
    with page.expect_download() as waiting:
        figure.locator("button >> text=CSV").click()
    lines = waiting.value.path().read_text("utf-8").splitlines()
    assert lines[0] == "series,x,y,minus,plus" and len(lines) == 4
    assert '"sums exact_match (find)"' in lines[1] and lines[1].split(",")[1].startswith("0.736")
    with page.expect_download() as waiting:
        figure.locator("button >> text=SVG").click()
    assert waiting.value.suggested_filename == "scores-with-95-intervals.svg"
    assert waiting.value.path().read_text("utf-8").startswith("<svg")


@pytest.mark.browser
def test_back_undoes_a_filter_and_a_sort(visit: Visit, runs: tuple[Run, Run]) -> None:
    page = visit.page
    page.click("th >> text=run")
    page.wait_for_selector("th[aria-sort=ascending] >> text=run")
    page.fill("#search", "sec")
    wait_until(page, "document.querySelectorAll('tr[data-run]').length === 1")
    page.fill("#search", "second")
    wait_until(page, "location.search.includes('q=second')")
    page.go_back()
    wait_until(page, "document.querySelectorAll('tr[data-run]').length === 2")
    assert page.input_value("#search") == ""
    page.wait_for_selector("th[aria-sort=ascending] >> text=run")
    page.go_back()
    page.wait_for_selector("th[aria-sort=descending] >> text=started")
    page.go_forward()
    page.wait_for_selector("th[aria-sort=ascending] >> text=run")


@pytest.mark.browser
def test_the_list_of_runs_shows_all_columns_in_a_narrow_window(visit: Visit, runs: tuple[Run, Run]) -> None:
    page = visit.page
    page.set_viewport_size({"width": 1024, "height": 800})
    page.locator("[data-counts]").first.wait_for(state="detached")
    heads = page.locator("table.runs th").all_inner_texts()
    assert [head.strip(" ↓") for head in heads][1:] == [
        "run",
        "tasks",
        "score",
        "documents",
        "duration",
        "started",
    ]  # no run has a cost
    assert page.evaluate("(() => { const box = document.querySelector('.sheet'); return box.scrollWidth <= box.clientWidth; })()")  # fmt: skip
