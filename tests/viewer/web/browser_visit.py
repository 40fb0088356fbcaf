"""A visit of the viewer in a real browser."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.web.viewer_server import Viewer

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --blink-settings=v8CacheOptions=3"
).split()
"""The last one keeps compiled scripts in the profile after their first use; the default is the third."""

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Commands of Chromium. The first one has no windows, and opens a page with a quarter of the CPU time."""


def find_chromium() -> str | None:
    """Return the path of Chromium: from `ASSAY_CHROMIUM`, or the system's."""
    names = (os.environ.get("ASSAY_CHROMIUM", ""), *BROWSERS)
    return next((found for name in names if name and (found := shutil.which(name))), None)


VIEWPORT = {"width": 1360, "height": 900}


@contextmanager
def open_browser(profile: Path) -> Iterator[Any]:
    """Open Chromium; yield the context of all visits. The profile caches files and compiled scripts for the next one."""
    path = find_chromium()
    if path is None:
        pytest.skip(
            "no Chromium on this machine: `apt-get install chromium-headless-shell`, or set ASSAY_CHROMIUM"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=path, args=FLAGS, viewport=VIEWPORT
        )
        context.set_default_timeout(90_000)
        yield context
        context.close()


class PageVisit:
    """An open page with its requests and its console errors, and without cookies and settings of earlier visits."""

    def __init__(
        self, browser: Any, address: str, *, viewport: dict[str, int] = VIEWPORT, color_scheme: str = "light"
    ) -> None:
        self.context = browser
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.context.on("request", self._add_request)
        self.page = self.context.new_page()
        self.page.set_viewport_size(viewport)
        self.page.emulate_media(color_scheme=color_scheme)
        self.page.on("console", self._add_message)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.context.clear_cookies()
        stored = {"origin": address, "storageTypes": "local_storage"}
        self.context.new_cdp_session(self.page).send("Storage.clearDataForOrigin", stored)

    def close(self) -> None:
        self.context.remove_listener("request", self._add_request)
        for page in self.context.pages:
            page.close()

    def _add_request(self, request: Any) -> None:
        self.requests.append(request.url)

    def _add_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


class Visit(PageVisit):
    """A visit of a viewer, which begins with its list of runs."""

    def __init__(self, browser: Any, viewer: Viewer, **details: Any) -> None:
        super().__init__(browser, viewer.address, **details)
        self.viewer = viewer
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
        visit.close()


def check_accessibility(page: Any) -> None:
    """Check that axe finds no serious problem on the page."""
    page.evaluate(f"() => {{{gzip.decompress(AXE.read_bytes()).decode()}\n}}")
    found = page.evaluate(_CHECK)
    assert found == [], found
