"""A report with hostile answers, opened in a real browser."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.web.browser_visit import find_chromium

from assay.cli.app import run_command_line

CHROMIUM = find_chromium()
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]
TIMEOUT_MS = 120_000

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
    """An open page with its console messages and requests."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self.dismiss)
        self.address = path.as_uri()
        self.page.goto(self.address)
        self.page.wait_for_selector("html[data-charts=drawn] .chart .main-svg", timeout=TIMEOUT_MS)

    def dismiss(self, dialog: Any) -> None:
        self.messages.append("dialog")
        dialog.dismiss()

    def theme(self) -> str:
        return str(self.page.evaluate("document.documentElement.dataset.theme"))

    def ink(self) -> str:
        """The colour of a chart's labels."""
        return str(self.page.evaluate("document.querySelector('.ytick text').style.fill"))


@pytest.fixture(scope="module")
def visit(browser: Any, page: Path) -> Visit:
    """Return a page that several tests use, in any order: none of them may cause a request."""
    return Visit(browser, page)


@pytest.fixture
def own_visit(browser: Any, page: Path) -> Iterator[Visit]:
    """Return a page for a test that causes requests."""
    opened = Visit(browser, page)
    yield opened
    opened.page.close()


def test_charts_are_drawn_without_console_messages_or_requests(visit: Visit) -> None:
    drawn = "[...document.querySelectorAll('[data-figure]')].map(chart => !!chart.querySelector('.main-svg'))"
    found = visit.page.evaluate(drawn)
    assert len(found) >= 5
    assert all(found)
    assert visit.page.locator("[data-figure=scores-0] .point").count() >= 4
    assert visit.messages == []
    assert visit.requests == [visit.address]


def test_model_output_is_escaped(visit: Visit) -> None:
    assert visit.page.evaluate("document.title").startswith("<script>")
    assert visit.page.evaluate("getComputedStyle(document.body).display") == "block"
    assert visit.page.locator("text=503 <b>down</b>").count() >= 1
    assert visit.page.locator("pre script, pre img, pre a, pre style").count() == 0


def test_the_theme_follows_the_system_and_the_button(visit: Visit) -> None:
    assert (visit.theme(), visit.ink()) == ("light", "rgb(31, 35, 40)")
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_selector("html[data-theme=dark]", timeout=TIMEOUT_MS)
    assert visit.ink() == "rgb(230, 237, 243)"
    visit.page.click("button.theme")
    visit.page.click("button.theme")
    assert visit.theme() == "light"
    assert visit.messages == []


def test_the_page_fits_a_phone(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 800})
    widest = "Math.max(...[...document.querySelectorAll('.main-svg')].map(svg => svg.clientWidth))"
    until = time.monotonic() + TIMEOUT_MS / 1000
    while visit.page.evaluate(widest) > 390 and time.monotonic() < until:
        visit.page.wait_for_timeout(50)  # charts resize with a delay
    assert visit.page.evaluate(widest) <= 390
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.skipif(sys.platform == "win32", reason="prints with a Chromium of Linux or macOS")
def test_a_pdf_has_pages(runs: list[Any], tmp_path: Path) -> None:
    target = tmp_path / "report.pdf"
    assert (
        run_command_line(["report", str(runs[0].folder), "--pdf", "-o", str(target), "--documents", "3"]) == 0
    )
    content = target.read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") >= 2


def test_a_plot_of_a_report_downloads(own_visit: Visit, tmp_path: Path) -> None:
    chart = own_visit.page.locator("#plots [data-figure]").first
    buttons = chart.locator("xpath=following-sibling::div[1]")
    started = {}
    for kind in ("SVG", "PNG", "CSV"):
        with own_visit.page.expect_download() as expected:
            buttons.locator(f"text={kind}").click()
        expected.value.save_as(tmp_path / kind)
        started[kind] = (tmp_path / kind).read_bytes()
    assert started["SVG"].startswith(b"<svg") and started["PNG"].startswith(b"\x89PNG")
    assert '"first low"' in started["CSV"].decode().splitlines()[0]
