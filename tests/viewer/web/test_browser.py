"""The viewer in a real browser: navigation, filters, live updates, escaping."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task
from tests.viewer.web.browser_visit import PageVisit, Visit, check_accessibility, wait_until
from tests.viewer.web.sample_runs import HOSTILE, SUMS, make_video_run
from tests.viewer.web.viewer_server import TOKEN, Viewer, serve_runs

from assay.store.runs.run import Run

pytestmark = pytest.mark.browser

Runs = tuple[Run, Run]
RECORD_EVENTS = """
window.receivedStates = [];
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    this.addEventListener("run", (event) => receivedStates.push(JSON.parse(event.data)));
  }
};
"""


def read_found(page: Any) -> int:
    return int(page.inner_text("#found").replace("\u202f", ""))


def wait_for_index(page: Any) -> None:
    """Wait until the documents can be filtered."""
    page.wait_for_selector("#search:not([disabled])")
    page.wait_for_selector("#results:not(.busy)")


def test_runs_are_opened_sorted_filtered_and_tagged(visit: Visit, runs: Runs) -> None:
    page = visit.page
    assert page.locator("tr[data-run]").count() == 2
    page.click("th >> text=run")
    page.wait_for_selector("th[aria-sort=ascending] >> text=run")
    assert page.locator("tr[data-run] a.row").all_inner_texts() == ["first-model", "second-model"]
    page.click("th >> text=run")
    page.wait_for_selector("th[aria-sort=descending] >> text=run")
    assert page.locator("tr[data-run] a.row").first.inner_text() == "second-model"
    page.keyboard.press("/")
    page.keyboard.type("second")
    wait_until(page, "document.querySelectorAll('tr[data-run]').length === 1")
    assert "q=second" in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{runs[1].id}")
    page.fill("#tag-form input", "keep <b>this</b>")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tags .tag >> text=keep <b>this</b>")
    visit.open("/?tag=keep+<b>this</b>")
    assert page.locator("tr[data-run]").count() == 1
    visit.open(f"/runs/{runs[1].id}").click("[data-untag]")
    page.wait_for_selector("#tags .tag", state="detached")


def test_a_run_draws_its_charts_in_light_and_dark(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = visit.open(f"/runs/{runs[0].id}")
    page.wait_for_selector("figure.chart.drawn .main-svg")
    page.wait_for_selector("#categories table")
    assert page.locator("#categories tbody tr").count() == 2
    page.screenshot(path=screenshots / "run.png", full_page=True)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    page.wait_for_selector("figure.chart.drawn .main-svg")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.screenshot(path=screenshots / "run-dark.png")


def test_documents_are_filtered_and_paged_to_the_last(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = visit.open(f"/runs/{runs[0].id}/documents")
    wait_for_index(page)
    assert read_found(page) == SUMS + 10
    page.select_option("select[name=task]", "sums")
    wait_until(page, f"document.querySelector('#found').innerText === '{SUMS}'")
    page.click("#last-page")
    page.wait_for_selector(f"a.row >> text={SUMS - 1}")
    assert page.locator("tbody tr").count() == SUMS - 100
    page.click("text=« first")
    page.wait_for_selector("tbody tr:nth-child(50)")
    page.click("th >> text=score")
    page.wait_for_selector("th[aria-sort=descending] >> text=score")
    page.screenshot(path=screenshots / "documents.png")
    page.fill("#search", "zebra")
    wait_until(page, "document.querySelector('#found').innerText === '1'")
    assert {"task=sums", "q=zebra", "sort=score"} <= set(page.url.partition("?")[2].split("&"))
    page.fill("#search", "no such text anywhere")
    page.wait_for_selector("text=No matching documents")
    page.fill("#search", "")
    page.wait_for_selector("tbody tr:nth-child(50)")
    page.click(".chip >> text=failed")
    wait_until(page, "document.querySelector('#found').innerText === '1'")
    page.click("tbody tr")
    page.wait_for_selector("text=server error")


def test_documents_are_navigated_with_the_keyboard(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = visit.open(f"/runs/{runs[0].id}/documents?task=sums&q=zebra+OR")
    wait_for_index(page)
    page = visit.open(f"/runs/{runs[0].id}/documents/sums/41?task=sums")
    page.screenshot(path=screenshots / "document.png")
    assert not page.locator("#document >> text=What is 1 + 1?").is_visible(), "examples are collapsed"
    page.keyboard.press("j")
    page.wait_for_url("**/documents/sums/42?task=sums")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/documents/sums/41?task=sums")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]", state="detached")
    page.keyboard.press("u")
    page.wait_for_url("**/documents?task=sums")


def test_images_and_audio_are_displayed(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = visit.open(f"/runs/{runs[0].id}/documents/media/0")
    wait_until(page, "document.querySelector('.media img')?.naturalWidth === 64")
    page.screenshot(path=screenshots / "picture.png")
    page = visit.open(f"/runs/{runs[0].id}/documents/media/1")
    wait_until(page, "document.querySelector('audio')?.duration > 0.2")
    page.screenshot(path=screenshots / "sound.png")


def test_a_video_plays(browser: Any, tmp_path: Path, workspace: Path, screenshots: Path) -> None:
    pytest.importorskip("av")
    made = make_video_run(tmp_path)
    with serve_runs([tmp_path / "runs"]) as viewer:
        visit = Visit(browser, viewer)
        page = visit.open(f"/runs/{made.id}/documents/films/0")
        wait_until(page, "document.querySelector('video')?.duration > 1.5")
        wait_until(page, "document.querySelector('video').readyState >= 2")  # a frame is available
        assert page.evaluate("document.querySelector('video').videoWidth") == 64
        page.evaluate("document.querySelector('video').play()")
        wait_until(page, "document.querySelector('video').currentTime > 0.2")
        page.screenshot(path=screenshots / "video.png")
        visit.check()
        visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_token_probabilities_are_visible_with_and_without_colour(
    browser: Any, viewer: Viewer, runs: Runs, screenshots: Path, scheme: str
) -> None:
    visit = Visit(browser, viewer, color_scheme=scheme)
    page = visit.open(f"/runs/{runs[0].id}/documents/sums/17")
    marks = page.locator("#tokens .tokens .token")
    assert marks.count() == 4
    assert "".join(marks.all_inner_texts()[:2]) == HOSTILE
    assert page.evaluate("window.stolen") is None
    styles = page.evaluate(
        "[...document.querySelectorAll('#tokens .token-levels .token')].map(one => getComputedStyle(one))"
        ".map(style => [style.backgroundColor, style.borderBottomStyle + style.borderBottomWidth])"
    )
    assert len({colour for colour, _ in styles}) == len({line for _, line in styles}) == 6
    page.click("#tokens summary")
    assert page.locator("#tokens tbody tr").nth(1).inner_text().split()[-3:] == ["-3.0000", "5.0", "%"]
    page.screenshot(path=screenshots / f"tokens-{scheme}.png", full_page=True)
    page = visit.open(f"/runs/{runs[0].id}/documents/choices/1")
    assert page.locator("#tokens .answer-tokens").count() == 2
    page.screenshot(path=screenshots / f"choices-{scheme}.png", full_page=True)
    visit.check()
    visit.close()


def test_two_runs_are_selected_and_compared(visit: Visit, runs: Runs, screenshots: Path) -> None:
    page = visit.page
    for box in page.locator("tr[data-run] input[type=checkbox]").all():
        box.check()
    page.click("#selection-compare")
    page.wait_for_url("**/compare?run=*")
    page.wait_for_selector("figure.chart.drawn .main-svg")
    assert page.locator("text=Different settings").is_visible()
    page.screenshot(path=screenshots / "compare.png", full_page=True)
    before = page.locator("#flips tbody tr").count()
    page.select_option("select[name=side]", "worse")
    wait_until(page, f"document.querySelectorAll('#flips tbody tr').length < {before}")
    page.locator("#flips tbody tr a.row").first.click()
    page.wait_for_url("**/compare/document?*")
    assert page.locator("mark").count() > 0
    page.screenshot(path=screenshots / "compare-document.png", full_page=True)


def test_model_output_is_never_interpreted_as_markup(visit: Visit, runs: Runs) -> None:
    page = visit.open(f"/runs/{runs[0].id}/documents/sums/17")
    assert HOSTILE in page.locator(".response pre.text").inner_text()
    page = visit.open(f"/runs/{runs[0].id}/documents?q=stolen")
    wait_for_index(page)
    assert read_found(page) == 1
    page = visit.open(f"/compare/document?run={runs[0].id}&run={runs[1].id}&task=sums&document=17")
    assert HOSTILE in page.locator(".panel pre.text").first.inner_text()
    assert page.evaluate("window.stolen") is None
    assert page.locator("main b >> text=17").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_copied_link_works_with_the_token_and_says_what_to_do_without(
    browser: Any, viewer: Viewer, runs: Runs, scheme: str
) -> None:
    link = f"{viewer.address}/runs/{runs[0].id}/documents?where=wrong"
    visit = PageVisit(browser, viewer.address, color_scheme=scheme, viewport={"width": 390, "height": 844})
    page = visit.page
    page.goto(link)
    assert "needs the token" in page.inner_text("h1") and "assay view --bundle" in page.inner_text("main")
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.fill("input[name=token]", "guessed")
    page.click("button")
    page.wait_for_selector("h1 >> text=needs the token")
    page.fill("input[name=token]", TOKEN)
    page.click("button")
    page.wait_for_url(link)
    page.wait_for_selector("table.documents")
    visit.close()
    visit = PageVisit(browser, viewer.address)
    page = visit.page
    page.goto(f"{link}&token={TOKEN}")
    page.wait_for_url(link)
    page.wait_for_selector("table.documents")
    page.goto(f"{viewer.address}/")
    assert page.locator("tr[data-run]").count() == 2
    visit.close()


def test_a_path_outside_the_run_is_refused(visit: Visit, runs: Runs) -> None:
    for path in ("..%2Fjournal.sqlite", "..%2F..%2F..%2Fetc%2Fpasswd", "journal.sqlite", "f" * 64):
        status = visit.page.evaluate(
            "path => fetch(path).then(answer => answer.status)", f"/media/{runs[0].id}/{path}"
        )
        assert status == 404
    assert len(visit.errors) == 4 and all("404" in message for message in visit.errors)
    visit.errors.clear()


def test_pages_fit_a_phone_without_horizontal_scrolling(
    browser: Any, viewer: Viewer, runs: Runs, screenshots: Path
) -> None:
    visit = Visit(browser, viewer, viewport={"width": 390, "height": 844}, color_scheme="dark")
    paths = {
        "runs": "/",
        "run": f"/runs/{runs[0].id}",
        "documents": f"/runs/{runs[0].id}/documents",
        "document": f"/runs/{runs[0].id}/documents/choices/1",
        "labels": f"/runs/{runs[0].id}/labels",
        "compare": f"/compare?run={runs[0].id}&run={runs[1].id}",
    }
    for name, path in paths.items():
        page = visit.open(path)
        page.wait_for_load_state("networkidle") if name == "document" else page.wait_for_timeout(150)
        page.screenshot(path=screenshots / f"phone-{name}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        for popup in page.locator("details.popup").all() if name == "documents" else ():
            popup.locator("summary").click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
            popup.locator("summary").click()
    visit.check()
    visit.close()


def test_a_running_run_updates_live(browser: Any, tmp_path: Path, screenshots: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]
    task, output, hold = write_task(tmp_path / "tasks", "sums", rows), tmp_path / "runs", tmp_path / "hold"
    output.mkdir()
    hold.touch()
    with serve_runs([output]) as viewer:
        visit = Visit(browser, viewer)
        page = visit.page
        page.add_init_script(RECORD_EVENTS)
        page.reload()
        page.wait_for_selector("text=No runs found")
        requested: list[Any] = []
        page.route(f"{viewer.address}/", lambda route: requested.append(route))
        script = Path(__file__).with_name("slow_run.py")
        process = subprocess.Popen([sys.executable, str(script), str(task), str(output), str(hold)])
        try:
            wait_until(page, "receivedStates.some((state) => state.done === 8)")
            while not requested:
                page.wait_for_timeout(20)
            for route in requested:  # the list was read before the last event, and arrives after it
                response = route.fetch()
                shown = "<b data-run-done>{}</b>".format
                assert shown(8) in response.text()
                route.fulfill(response=response, body=response.text().replace(shown(8), shown(1)))
            page.unroute(f"{viewer.address}/")
            page.wait_for_selector(".s-running")
            wait_until(page, "document.querySelector('[data-run-done]')?.innerText === '8'")
            page.screenshot(path=screenshots / "running.png")
            page.click("tr[data-run] a.row")
            page.wait_for_selector("#live [data-run-done] >> text=8")
            refused = visit.context.new_page()  # as after a restart of the viewer, which has another token
            refused.route("**/events*", lambda route: route.fulfill(status=403))
            refused.goto(page.url)
            refused.wait_for_selector("[data-run-connection] >> text=open the URL that it printed")
            refused.close()
            hold.unlink()
            page.wait_for_selector(".s-running", state="detached", timeout=90_000)
            page.wait_for_selector(".scores-table")
            assert process.wait(90) == 0
        finally:
            process.kill()
            process.wait()
        visit.check()
        visit.close()
