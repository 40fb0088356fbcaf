"""Reading documents in a real browser: rendered text, folded parts, media, and the next document by key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.web.browser_visit import Visit, check_accessibility, wait_until
from tests.viewer.web.reading_runs import MARKDOWN
from tests.viewer.web.sample_runs import SUMS
from tests.viewer.web.viewer_server import Viewer

from assay.store.runs.run import Run

pytestmark = pytest.mark.browser

Runs = tuple[Run, Run]


@pytest.fixture
def reading(browser: Any, reading_viewer: Viewer) -> Iterator[Visit]:
    opened = Visit(browser, reading_viewer)
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield opened
    opened.check()
    opened.context.clear_permissions()
    opened.close()


def open_document(visit: Visit, run: Run, task: str, position: int, query: str = "") -> Any:
    page = visit.open(f"/runs/{run.id}/documents/{task}/{position}{query}")
    page.wait_for_selector("#reading-list ol, #reading-list[data-index]", state="attached")
    return page


def test_markdown_mathematics_and_code_are_rendered(reading: Visit, reading_run: Run) -> None:
    page = open_document(reading, reading_run, "worked", 0)
    answer = page.locator(".r-assistant .markdown").last
    answer.locator(".formula.display .katex").wait_for()
    answer.locator(".hljs-keyword").first.wait_for()
    assert answer.locator("table td").count() == 2
    assert answer.locator("ol li strong").inner_text() == "Square"
    assert "It costs $5 today and $6 tomorrow." in answer.inner_text()
    assert answer.locator("mark.extracted").inner_text() == "28"
    page.keyboard.press("r")
    answer.wait_for(state="hidden")
    raw = page.locator(".r-assistant .body > pre.text").last
    assert raw.inner_text() == MARKDOWN and raw.locator("mark.extracted").inner_text() == "28"
    page.reload()
    page.wait_for_selector("button[data-reading=raw][aria-pressed=true]")
    page.click("button[data-reading=rendered]")
    page.wait_for_selector(".r-assistant .markdown .katex")


def test_hostile_markdown_stays_text(reading: Visit, reading_run: Run) -> None:
    page = open_document(reading, reading_run, "worked", 1)
    answer = page.locator(".r-assistant .markdown")
    answer.wait_for()
    assert page.evaluate("window.stolen") is None
    assert answer.locator("a, img, script, b, iframe").count() == 0
    assert "javascript:alert(1)" in answer.inner_text() and "https://example.com/a" in answer.inner_text()
    assert answer.evaluate("node => [...node.querySelectorAll('*')].every(one => one.getAttributeNames().every(name => ['class', 'title', 'style', 'aria-hidden', 'xmlns', 'encoding', 'start'].includes(name)))")  # fmt: skip
    assert answer.locator("mark.extracted").inner_text() == "7"


def test_thinking_tool_calls_and_judge_prompts_are_folded(reading: Visit, reading_run: Run) -> None:
    page = open_document(reading, reading_run, "worked", 2)
    thought, call = page.locator(".s-thinking"), page.locator(".s-tool-call")
    assert not page.locator("text=I should look it up").first.is_visible()
    thought.locator("summary").click()
    page.wait_for_selector(".s-thinking .markdown >> text=I should look it up")
    assert "look_up" in call.locator("summary").inner_text()
    prompt = page.locator(".judge-prompt")
    assert not prompt.locator(".message").first.is_visible()
    prompt.locator("summary").first.click()
    prompt.locator(".message").first.wait_for()
    line = page.locator(".filter-line")
    assert not line.locator(".trace").is_visible()
    line.locator("summary").click()
    assert "take_first" in line.locator(".trace").inner_text()


def test_a_response_is_copied(reading: Visit, reading_run: Run) -> None:
    page = open_document(reading, reading_run, "worked", 0)
    page.click(".r-assistant [data-copy]")
    page.wait_for_selector(".r-assistant [data-copy] >> text=copied")
    assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN


def test_a_long_answer_is_rendered_with_its_formulas(reading: Visit, reading_run: Run) -> None:
    page = open_document(reading, reading_run, "worked", 3)
    page.wait_for_selector(".r-assistant .markdown p:nth-child(200)", state="attached")
    assert page.locator(".r-assistant .markdown .formula").count() > 300


def test_a_picture_opens_in_a_lightbox_with_zoom(visit: Visit, runs: Runs) -> None:
    page = open_document(visit, runs[0], "media", 0)
    page.click("[data-lightbox]")
    wait_until(page, "document.querySelector('#lightbox[open] img')?.width > 64")
    before = page.evaluate("document.querySelector('#lightbox img').width")
    page.keyboard.press("+")
    wait_until(page, f"document.querySelector('#lightbox img').width > {before}")
    page.click("#lightbox [data-zoom='0']")
    wait_until(page, f"document.querySelector('#lightbox img').width === {before}")
    check_accessibility(page)
    page.keyboard.press("Escape")
    page.wait_for_selector("#lightbox[open]", state="detached")


def test_sound_has_a_waveform_that_seeks(visit: Visit, runs: Runs) -> None:
    page = open_document(visit, runs[0], "media", 1)
    page.wait_for_selector(".waveform.drawn svg")
    wait_until(page, "document.querySelector('audio').duration > 0.2")
    page.click(".waveform")
    wait_until(page, "document.querySelector('audio').currentTime > 0.1")


def test_a_video_with_an_unsupported_codec_becomes_frames(reading: Visit, reading_run: Run) -> None:
    pytest.importorskip("av")
    page = open_document(reading, reading_run, "films", 1)
    page.wait_for_selector("img[alt='frame at 0.0 s']")
    assert page.locator("figure.media [data-lightbox]").count() == 8
    assert page.locator("figure.media >> text=cannot play the video").is_visible()


def test_documents_are_read_by_key_beside_the_list(visit: Visit, runs: Runs) -> None:
    visit.open(f"/runs/{runs[0].id}/documents?task=sums&sort=score&order=desc")
    page = visit.page
    page.wait_for_selector("#search:not([disabled])")
    page.locator("tbody tr a.row").nth(2).click()
    page.wait_for_selector("#reading-list [aria-current]")
    page.evaluate("window.kept = true")
    listed = page.locator("#reading-list a[data-read]")
    assert listed.count() == 50
    title = page.inner_text("h1")
    page.keyboard.press("j")
    wait_until(page, f"document.querySelector('h1').innerText !== {title!r}")
    assert listed.nth(3).get_attribute("aria-current") == "true"
    assert page.url.endswith(str(listed.nth(3).get_attribute("href")))
    page.keyboard.press("k")
    wait_until(page, f"document.querySelector('h1').innerText === {title!r}")
    listed.nth(10).click()
    wait_until(
        page, "document.querySelectorAll('#reading-list a')[10].getAttribute('aria-current') === 'true'"
    )
    page.go_back()
    wait_until(page, f"document.querySelector('h1').innerText === {title!r}")
    assert page.evaluate("window.kept"), "the page was not loaded again"
    listed.nth(49).click()
    wait_until(page, "document.querySelector('.around').innerText.includes('50 of')")
    page.keyboard.press("ArrowRight")
    wait_until(page, f"document.querySelector('.around').innerText.includes('51 of {SUMS}')")
    wait_until(page, "document.querySelector('#reading-list a').getAttribute('aria-current') === 'true'")
    position = page.evaluate("location.pathname.split('/').at(-1)")
    page.keyboard.press("l")
    page.locator("#reading-list").wait_for(state="hidden")
    page.keyboard.press("l")
    page.locator("#reading-list").wait_for()
    page.keyboard.press("u")
    page.wait_for_selector("table.documents tr.selected")
    assert page.inner_text("tr.selected a.row") == position, "the list shows the last document"
    assert "page=2" in page.url


def test_the_next_document_is_loaded_ahead(visit: Visit, runs: Runs) -> None:
    page = open_document(visit, runs[0], "sums", 7, "?task=sums")
    with page.expect_request("**/documents/sums/9?task=sums"):
        page.keyboard.press("j")
    wait_until(page, "document.querySelector('h1').innerText.includes('#8')")
    asked = [url for url in visit.requests if "/documents/sums/9" in url]
    page.wait_for_load_state("networkidle")
    page.keyboard.press("j")
    wait_until(page, "document.querySelector('h1').innerText.includes('#9')")
    assert len(asked) == 1 and [url for url in visit.requests if "/documents/sums/9" in url] == asked


def test_a_deep_link_works_before_the_index_exists(
    visit: Visit, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.store.index.index_pool import IndexPool, IndexState

    original = IndexPool.get_state
    monkeypatch.setattr(IndexPool, "get_state", lambda *given, **more: IndexState(done=7, total=SUMS))
    page = visit.open(f"/runs/{runs[0].id}/documents/sums/41")
    assert "sums #41" in page.inner_text("h1")
    assert page.locator("#reading-list[data-index] a[data-read]").count() == 51
    page.keyboard.press("j")
    wait_until(page, "document.querySelector('h1').innerText.includes('#42')")
    filtered = visit.open(f"/runs/{runs[0].id}/documents/sums/41?q=zebra")
    assert filtered.locator("#reading-list a[data-read]").count() == 0
    monkeypatch.setattr(IndexPool, "get_state", original)
    filtered.wait_for_selector("#reading-list a[aria-current]")
    assert filtered.locator("#reading-list a[data-read]").count() == 1
    assert "1 of 1" in filtered.inner_text(".around")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(
    browser: Any, reading_viewer: Viewer, reading_run: Run, screenshots: Path, scheme: str
) -> None:
    visit = Visit(browser, reading_viewer, color_scheme=scheme)
    page = open_document(visit, reading_run, "worked", 0)
    page.wait_for_selector(".r-assistant .markdown")
    check_accessibility(page)
    page.screenshot(path=screenshots / f"read-{scheme}.png", full_page=True)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visit.check()
    visit.close()
