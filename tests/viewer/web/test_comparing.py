"""Comparing runs in a real browser: the answer first, flips by key, differences in both responses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.viewer.web.browser_visit import Visit, check_accessibility, wait_until
from tests.viewer.web.viewer_server import Viewer

from assay.store.runs.run import Run

pytestmark = pytest.mark.browser

Runs = tuple[Run, Run]


def test_flips_are_read_one_after_the_other(visit: Visit, runs: Runs) -> None:
    page = visit.open(f"/compare?run={runs[0].id}&run={runs[1].id}&task=sums&side=worse")
    answer = page.inner_text(".answer-first")
    assert answer.startswith("second-model is better than first-model on sums by 14.0 points")
    assert page.locator("#flips td.question").first.inner_text().startswith("Question: What is ")
    assert page.locator("table.differences td[data-label=filter]").first.inner_text() == "find"
    page.click("text=read one after the other")
    page.wait_for_url("**/compare/document?*side=worse*")
    wait_until(page, "document.querySelector('.around').innerText.includes('1 of 11')")
    page.evaluate("window.kept = true")
    title = page.inner_text("h1")
    page.keyboard.press("j")
    wait_until(page, f"document.querySelector('h1').innerText !== {title!r}")
    assert "2 of 11" in page.inner_text(".around") and "side=worse" in page.url
    first, second = page.locator(".side-by-side pre[class*=differences]").all()
    assert first.locator("mark").count() == second.locator("mark").count() == 1
    number = int(page.inner_text("h1").partition("#")[2])
    assert first.locator("mark").inner_text() == str(number + 1), "the first run is right"
    assert second.locator("mark").inner_text() == str(number + 2)
    page.keyboard.press("k")
    wait_until(page, f"document.querySelector('h1').innerText === {title!r}")
    assert page.evaluate("window.kept")
    assert page.locator(".top nav a[aria-current]").inner_text() == "Compare"
    page.keyboard.press("u")
    page.wait_for_url("**/compare?*side=worse*")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_comparisons_are_accessible(browser: Any, viewer: Viewer, runs: Runs, scheme: str) -> None:
    visit = Visit(browser, viewer, color_scheme=scheme)
    page = visit.open(f"/compare?run={runs[0].id}&run={runs[1].id}")
    page.wait_for_selector("figure.chart.drawn .main-svg")
    check_accessibility(page)
    overflow = (
        "[...document.querySelectorAll('table.flips th')].filter(one => one.scrollWidth > one.clientWidth)"
    )
    assert page.evaluate(f"{overflow}.length") == 0, "long names of runs do not overlap"
    page = visit.open(f"/compare/document?run={runs[0].id}&run={runs[1].id}&task=sums&document=4")
    page.wait_for_selector(".markdown")
    check_accessibility(page)
    visit.check()
    visit.close()
