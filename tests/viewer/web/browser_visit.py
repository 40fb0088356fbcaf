"""A visit of the viewer in a real browser."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from pathlib import Path
from typing import Any

from tests.viewer.web.viewer_server import Viewer

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Commands of Chromium. The first one has no windows, and opens a page with a quarter of the CPU time."""


def find_chromium() -> str | None:
    """Return the path of Chromium: from `ASSAY_CHROMIUM`, or the system's."""
    names = (os.environ.get("ASSAY_CHROMIUM", ""), *BROWSERS)
    return next((found for name in names if name and (found := shutil.which(name))), None)


class Visit:
    """An open page with its requests and its console errors."""

    def __init__(self, browser: Any, viewer: Viewer, **details: Any) -> None:
        self.viewer = viewer
        self.context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **details})
        self.context.set_default_timeout(90_000)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page = self.context.new_page()
        self.page.on(
            "console",
            lambda message: (
                self.errors.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(viewer.entry)
        self.page.wait_for_url(f"{viewer.address}/")

    def open(self, path: str) -> Any:
        self.page.goto(self.viewer.address + path)
        self.page.wait_for_selector("#loading", state="detached")
        return self.page

    def check(self) -> None:
        """Check that there were no errors and no requests to other hosts."""
        assert self.errors == []
        assert self.requests
        hosts = [url.removeprefix("blob:") for url in self.requests]  # a blob is made by the page itself
        assert [url for url in hosts if not url.startswith(f"{self.viewer.address}/")] == []


def wait_until(page: Any, condition: str) -> None:
    """Wait for a condition on the page; the page's policy forbids Playwright's own way."""
    end = time.monotonic() + 90
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(30)


AXE = Path(__file__).with_name("axe") / "axe.min.js.gz"
_CHECK = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter((one) => one.impact === "serious" || one.impact === "critical")
  .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


def check_pages(browser: Any, viewer: Viewer, paths: list[str]) -> None:
    """Check pages with everything unfolded: accessible in both themes, and no wider than a phone."""
    for details in (
        {"color_scheme": "light"},
        {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
    ):
        visit = Visit(browser, viewer, **details)
        for path in paths:
            page = visit.open(path)
            page.wait_for_load_state("networkidle")
            page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            check_accessibility(page)
            if "viewport" in details:
                assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        visit.check()
        visit.context.close()


def check_accessibility(page: Any) -> None:
    """Check that axe finds no serious problem on the page."""
    page.evaluate(f"() => {{{gzip.decompress(AXE.read_bytes()).decode()}\n}}")
    found = page.evaluate(_CHECK)
    assert found == [], found
