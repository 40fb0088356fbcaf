"""The table of documents in a real browser: filter expressions, columns, views, downloads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.viewer.web.browser_visit import Visit, check_accessibility, wait_until
from tests.viewer.web.viewer_server import Viewer

from assay.store.runs.run import Run

Runs = tuple[Run, Run]
LIMIT_MS = 60_000


def open_documents(visit: Visit, run: Run, query: str = "") -> Any:
    page = visit.open(f"/runs/{run.folder.name}/documents{query}")
    page.set_default_timeout(LIMIT_MS)
    page.wait_for_selector("#where:not([disabled])")
    page.wait_for_selector("#results:not(.busy)")
    return page


def wait_for_found(page: Any, count: int) -> None:
    wait_until(page, f"document.querySelector('#found')?.textContent === '{count}'")


@pytest.mark.browser
def test_an_expression_is_completed_checked_and_applied(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = open_documents(visit, runs[0])
    page.keyboard.press("f")
    page.keyboard.type("task=sums and lev")
    page.wait_for_selector("#where-list li >> text=level")
    page.screenshot(path=screenshots / "filter-completion.png")
    page.keyboard.press("Tab")
    page.keyboard.type("=")
    page.wait_for_selector("#where-list li >> text=odd")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for_found(page, 65)
    assert page.input_value("#where") in ("task=sums and level=odd", "task=sums and level=even")
    page.fill(
        "#where", r'task=sums and score<1 and length>20 and not truncated and answer~/\d+/ and level="even"'
    )
    wait_for_found(page, 33)
    assert "where=" in page.url

    page.fill("#where", "scor<1")
    page.wait_for_selector("#where-error >> text=unknown name `scor`")
    assert "did you mean `score`?" in page.inner_text("#where-error")
    assert page.text_content("#where-error pre") == "^^^^"
    assert page.get_attribute("#where", "aria-invalid") == "true"
    assert page.inner_text("#found") == "33"
    page.screenshot(path=screenshots / "filter-error.png")
    check_accessibility(page)
    page.fill("#where", "")
    page.wait_for_selector("#where-error:empty", state="attached")
    wait_for_found(page, 140)


@pytest.mark.browser
def test_matches_are_marked_and_columns_are_chosen(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = open_documents(visit, runs[0], f"?where={quote('response~/add one to 4[0-9]/ and word=zebra')}")
    assert page.inner_text("#found") == "1"
    assert page.locator(".snippet mark").all_inner_texts() == ["add one to 41"]
    page.click("#column-picker summary")
    page.check("#column-picker input[value=word]")
    page.wait_for_selector("th >> text=word")
    page.check("#column-picker input[value=seconds]")
    page.wait_for_selector("th >> text=seconds")
    assert page.inner_text("td[data-label=word]") == "zebra"
    page.screenshot(path=screenshots / "filter-columns.png")
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('#column-picker').open")
    assert page.url.count("column=") == 2
    page.click("tbody a.row")
    page.wait_for_url(re.compile(r"/documents/sums/41\?"))
    page.keyboard.press("u")
    page.wait_for_selector("th >> text=seconds")


@pytest.mark.browser
def test_a_view_is_saved_opened_and_removed(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = open_documents(visit, runs[0], "?where=word%3Dzebra&column=level")
    page.click("#views summary")
    page.fill("#views input[name=name]", "striped animals")
    page.click("#views button >> text=Save")
    page.wait_for_selector("#views summary >> text=1")
    page = open_documents(visit, runs[1])
    page.click("#views summary")
    page.screenshot(path=screenshots / "filter-views.png")
    page.click("#views a >> text=striped animals")
    wait_for_found(page, 1)
    page.wait_for_selector("th >> text=level")
    assert page.input_value("#where") == "word=zebra"
    page.click("#views summary")
    page.click("#views [data-remove-view]")
    page.wait_for_selector("#views summary >> text=/^Views$/")


@pytest.mark.browser
def test_the_selection_is_downloaded(visit: Visit, runs: Runs) -> None:
    page = open_documents(visit, runs[0], "?where=task%3Dsums+and+document%3C13&sort=document&order=desc")
    link = page.locator("a[download]")
    assert link.inner_text() == "Download these 13 as JSONL"
    with page.expect_download() as waiting:
        link.click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert [json.loads(line)["document"] for line in lines] == list(range(12, -1, -1))
    assert json.loads(lines[0])["requests"][0]["response"].startswith("I add one to 12")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_table_is_accessible(
    browser: Any, viewer: Viewer, runs: Runs, screenshots: Path, scheme: str
) -> None:
    visit = Visit(browser, viewer, color_scheme=scheme)
    page = open_documents(visit, runs[0], "?column=level&column=word&q=answer&task=sums")
    check_accessibility(page)
    page.screenshot(path=screenshots / f"documents-{scheme}.png")
    page = open_documents(visit, runs[0], "?where=task%3Dmedia")
    wait_until(page, "document.querySelector('.thumbnail').naturalWidth > 0")
    page.screenshot(path=screenshots / f"thumbnails-{scheme}.png")
    page.set_viewport_size({"width": 390, "height": 844})
    page.screenshot(path=screenshots / f"documents-phone-{scheme}.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visit.check()
    visit.close()


def test_an_invalid_expression_is_shown_without_scripts(viewer: Viewer, runs: Runs) -> None:
    key = runs[0].folder.name
    viewer.get_when_ready(f"/runs/{key}/documents?where=right")
    answer = viewer.get_when_ready(f"/runs/{key}/documents?where={quote('scor<1 and <script>')}")
    assert answer.status == 400
    assert "unexpected character" in answer.text or "expected a condition" in answer.text
    assert "<script>alert" not in answer.text
    assert viewer.get_when_ready(f"/runs/{key}/documents/sums/3?where=scor%3C1").status == 200


def test_completion_needs_the_token_and_views_the_same_origin(viewer: Viewer, runs: Runs) -> None:
    key = runs[0].folder.name
    found = json.loads(viewer.get_when_ready(f"/runs/{key}/filter?where=lev&cursor=3").text)
    assert found["suggestions"][0]["text"] == "level"
    assert found["error"]["what"] == "unknown name `lev`"
    assert viewer.get(f"/runs/{key}/filter?where=lev", cookie=False).status == 403
    body = json.dumps({"name": "x", "query": "where=right"})
    refused = viewer.get("/views", method="POST", body=body, origin="http://evil.example")
    assert refused.status == 403
    assert viewer.get(
        "/views", method="POST", body='{"name": ""}', content_type="application/json"
    ).status in (200, 400)
    too_long = viewer.get("/views", method="POST", body=json.dumps({"name": "x" * 99, "query": ""}))
    assert too_long.status == 400


def test_thumbnails_are_small_and_only_of_images(viewer: Viewer, runs: Runs) -> None:
    key = runs[0].folder.name
    page = viewer.get_when_ready(f"/runs/{key}/documents?task=media").text
    (address,) = re.findall(r'src="(/media/[^"]+/thumbnail)"', page)
    answer = viewer.get(address)
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert viewer.get(f"/media/{key}/{'0' * 64}/thumbnail").status == 404
