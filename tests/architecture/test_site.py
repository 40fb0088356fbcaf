"""The documentation as a site, and that nothing of the task guides is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.viewer.web.browser_visit import FLAGS, find_chromium

PROJECT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("ASSAY_SHARED", PROJECT.parent / "shared"))
TABLE = PROJECT / "docs" / "reference" / "task-guides.md"
TIMEOUT_MS = 120_000
ROW = re.compile(r"^\| (?P<heading>.+?) \| \[.+?\]\(.+?\) \| `(?P<test>[^`]+)` \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning is an error, also that of a page that is not in the navigation."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_is_complete_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [page.relative_to(site).as_posix() for page in site.rglob("*.html")]
    assert {"index.html", "guides/viewer.html", "reference/commands.html"} <= set(pages)
    outside = re.compile(
        r'(?:src|href)="https?://(?!www\.mkdocs|squidfunk)[^"]+(?:\.(?:js|css|woff2?)|/shim)"'
    )
    for page in pages:
        assert not outside.search((site / page).read_text("utf-8")), f"{page} loads something from elsewhere"


def test_the_navigation_follows_the_work_of_a_reader() -> None:
    titles = re.findall(r"^  - ([^:]+):", (PROJECT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert titles[-8:] == [
        "Home", "First run", "Your task", "Your model", "Compare", "Judge", "Scale", "Reference",
    ]  # fmt: skip


@pytest.mark.browser
def test_the_search_works_from_disk(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "guides" / "viewer.html").as_uri())
        page.locator(".md-search__input").click()
        page.locator(".md-search__input").press_sequentially("stop early")
        found = page.locator(".md-search-result__item a[href*='comparing.html']")
        found.first.wait_for(timeout=TIMEOUT_MS)
        found.first.click()
        page.wait_for_url("**/guides/comparing.html*", timeout=TIMEOUT_MS)
        browser.close()
    assert not [url for url in requests if url.startswith("http")]


def test_every_test_that_is_named_is_there() -> None:
    rows = ROW.findall(TABLE.read_text("utf-8"))
    assert len(rows) > 30
    missing = [test for _, test in rows if not (PROJECT / test).is_file()]
    assert not missing


@pytest.mark.skipif(not (SHARED / "seeds").is_dir(), reason="the task guides are not here (ASSAY_SHARED)")
def test_every_heading_of_the_task_guides_is_covered() -> None:
    assert len(list((SHARED / "seeds").glob("*.txt"))) == TABLE.read_text("utf-8").count("\n## ")
    covered = {heading for heading, _ in ROW.findall(TABLE.read_text("utf-8"))}
    for path in sorted((SHARED / "seeds").glob("*.txt")):
        if "```" not in path.read_text("utf-8"):
            continue  # a page copied as plain text: its `#` are comments of YAML
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for heading in re.findall(r"^#{1,4} (.+)$", text, re.MULTILINE):
            assert heading.strip() in covered, f"{path.name}: {heading}"
