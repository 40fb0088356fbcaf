"""A report as people see it: opened in a real browser, hostile answers and all."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.cli.app import call

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Visit:
    """A page that was opened, with everything it said and asked for."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1200, scheme: str = "light") -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", self.dismissed)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-charts=drawn] .chart .main-svg", timeout=30_000)
        self.address = path.as_uri()

    def dismissed(self, dialog: Any) -> None:
        self.said.append("dialog")
        dialog.dismiss()


def test_the_charts_are_drawn_nothing_is_said_and_nothing_is_asked(browser: Any, page: Path) -> None:
    visit = Visit(browser, page)
    charts = visit.page.locator("[data-figure]")
    assert charts.count() >= 5
    drawn = visit.page.evaluate(
        "[...document.querySelectorAll('[data-figure]')].every(c => c.querySelector('.main-svg'))"
    )
    assert drawn
    assert visit.page.locator("[data-figure=scores-0] .point").count() >= 4
    assert visit.said == []
    assert visit.asked == [visit.address]
    assert "owned" not in visit.page.evaluate("document.title").partition("<script>")[0]
    assert visit.page.evaluate("getComputedStyle(document.body).display") == "block"
    assert visit.page.locator("text=503 <b>down</b>").count() >= 1


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_it_fits_a_phone_and_follows_the_system_to_the_dark(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    visit = Visit(browser, page, width=width, scheme=scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.evaluate("document.documentElement.dataset.theme") == scheme
    ink = visit.page.evaluate("document.querySelector('.ytick text').style.fill || ''")
    assert ("230, 237, 243" in ink) == (scheme == "dark")
    visit.page.click("button.theme")
    assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert visit.said == []


@pytest.mark.skipif(sys.platform == "win32", reason="prints with a Chromium of Linux or macOS")
def test_a_pdf_has_pages(runs: list[Any], tmp_path: Path) -> None:
    target = tmp_path / "report.pdf"
    assert call(["report", str(runs[0].folder), "--pdf", "-o", str(target), "--documents", "3"]) == 0
    content = target.read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") >= 2
