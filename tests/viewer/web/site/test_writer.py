"""A static site in a real browser, from a disk and from a web host: pages, filters, hostile text, media."""

from __future__ import annotations

import html
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task
from tests.viewer.web.browser_visit import PageVisit, check_accessibility, wait_until

import assay
from assay.core.errors import AssayError, InvalidOption
from assay.store.index.document_index import DocumentIndex
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.labels import append_label
from assay.store.runs.run import Run
from assay.testing import ScriptedModel
from assay.viewer.web.site.links import to_file_name
from assay.viewer.web.site.writer import MARKER_FILE, write_site

Runs = tuple[Run, Run]

MARKUP = (
    "Use the data-reader API, <a data-read href>, data-reading and data-ready",
    '<script type="module" src="/static/x.js">',
    '<div id="categories" data-site-categories></div>',
    '<meta charset="utf-8">',
    '<tr data-href="/runs/x"></tr> id="last-page"',
    '<a href="/runs/other/documents" src="/media/x" action="/compare">x</a> href="/runs/x%402"',
)
"""Texts that look like what the writer changes in pages."""


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one document."""
    folder, text = tmp_path_factory.mktemp("small"), "\n".join(MARKUP)
    task = write_task(folder / "tasks", "texts", [{"question": text, "answer": text}])
    model = ScriptedModel(lambda request: text)
    return assay.run(model=model, tasks=[str(task)], no_cache=True, output_path=str(folder / "runs"))


@pytest.fixture(scope="module")
def site(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "a copy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder.parent / "home"))
        write_site([str(run.folder) for run in runs], folder, max_documents=100)
    return folder


@pytest.fixture(scope="module")
def host(site: Path) -> Iterator[str]:
    """Serve the folder above the site: the site is under a path of the host."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site.parent)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/a%20copy"
    server.shutdown()
    server.server_close()


class SiteVisit(PageVisit):
    """A visit of a site."""

    def __init__(self, browser: Any, base: str) -> None:
        super().__init__(browser, base)
        self.base = base

    def open(self, path: str) -> Any:
        self.page.goto(f"{self.base}/{path}")
        return self.page

    def check_accessibility(self) -> None:
        """Check the page; axe reads style sheets with requests, which browsers refuse for files on a disk."""
        if not self.base.startswith("file:"):
            check_accessibility(self.page)


@pytest.fixture(params=["disk", "host"])
def visit(request: pytest.FixtureRequest, browser: Any, site: Path) -> Iterator[SiteVisit]:
    base = site.as_uri() if request.param == "disk" else request.getfixturevalue("host")
    opened = SiteVisit(browser, base)
    yield opened
    assert opened.errors == []
    assert [url for url in opened.requests if not url.startswith((base, "blob:"))] == []
    opened.close()


@pytest.mark.browser
def test_run_documents_and_comparison_open_by_clicks(visit: SiteVisit, runs: Runs) -> None:
    page = visit.open("index.html")
    assert page.locator("tr[data-run]").count() == 2
    visit.check_accessibility()
    page.click("tr[data-run] a.row >> nth=0")
    page.wait_for_selector("figure.chart.drawn")
    visit.check_accessibility()
    page.click(".actions >> text=Plots")
    page.wait_for_selector("#plot-histogram figure.chart.drawn")
    visit.check_accessibility()
    with page.expect_download() as started:
        page.click("#plot-histogram button >> text=CSV")
    assert started.value.suggested_filename == "scores.csv"
    page.click("nav[aria-label=Task] >> text=choices")
    page.wait_for_selector("#plot-calibration figure.chart.drawn")
    page.click(".crumbs a[rel=up]")
    page.click(".actions >> text=Documents")
    page.wait_for_selector("table.documents tbody tr")
    visit.check_accessibility()
    page.click("a[rel=next]")
    page.wait_for_selector(".pager .here >> text=page 2")
    page.click("table.documents a.row >> nth=0")
    page.wait_for_selector(".r-assistant .markdown")
    number = page.locator("h1 .num").inner_text()
    page.keyboard.press("j")
    page.locator("h1 .num", has_text=f"#{int(number[1:]) + 1}").wait_for()
    visit.check_accessibility()
    page.click(".top nav >> text=Compare")
    page.wait_for_selector("table.flips tbody tr")
    visit.check_accessibility()
    page.click("table.flips a.row >> nth=0")
    page.wait_for_selector(".side-by-side mark")
    page.click("text=next flip")
    page.wait_for_selector(".around >> text=2 of")
    page.click(".top nav >> text=Matrix")
    page.wait_for_selector("table.matrix")
    visit.check_accessibility()


@pytest.mark.browser
def test_filters_and_sort_work_in_the_browser(visit: SiteVisit, runs: Runs) -> None:
    page = visit.open(f"runs/{to_file_name(runs[0].id)}/documents/index.html")
    page.fill("#search", '"is 3"')
    wait_until(page, "document.querySelector('#found').textContent !== '' && location.search.includes('q=')")
    wait_until(page, "document.querySelectorAll('table.documents tbody tr').length < 50")
    shown = page.locator("table.documents tbody tr")
    assert shown.count() == 11  # 3 and 30 to 39
    page.click("thead a >> text=#")
    wait_until(page, "location.search.includes('sort=document') && !document.querySelector('.busy')")
    page.click("table.documents a.row >> nth=1")
    page.wait_for_selector(".around >> text=2 of 11")
    page.keyboard.press("j")
    page.wait_for_selector(".around >> text=3 of 11")
    page.keyboard.press("u")
    page.locator("#found", has_text=re.compile("^11$")).wait_for()
    page.fill("#search", "")
    page.select_option("select[name=category]", "level=odd")
    page.locator("#found", has_text=re.compile("^[45][0-9]$")).wait_for()
    page.go_back()
    page.locator("#found", has_text=re.compile("^11$")).wait_for()


@pytest.mark.browser
def test_a_link_with_a_filter_opens_filtered(visit: SiteVisit, runs: Runs) -> None:
    page = visit.open(f"runs/{to_file_name(runs[0].id)}/index.html")
    page.click(".outcomes-table .links a >> text=failed")
    page.locator("#found", has_text=re.compile("^1$")).wait_for()
    assert page.locator("select[name=outcome]").input_value() == "failed"


@pytest.mark.browser
def test_hostile_text_and_theme(visit: SiteVisit, runs: Runs) -> None:
    page = visit.open(f"runs/{to_file_name(runs[0].id)}/tasks/sums/17.html")
    page.wait_for_selector(".r-assistant .markdown")
    assert page.evaluate("window.stolen") is None
    assert page.locator(".r-assistant img, .r-assistant script").count() == 0
    page.keyboard.press("t")
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    visit.check_accessibility()


def test_pages_have_a_policy_and_only_relative_links_to_files_that_exist(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 200
    for path in pages:
        text = path.read_text("utf-8")
        assert (
            "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self' file:;"
            in text
        )
        for link in re.findall(r'\s(?:href|src|data-href|action)="([^"#?]*)', text):
            assert not link.startswith(("/", "http")), (path, link)
            assert not link or (path.parent / link.replace("%20", " ")).is_file(), (path, link)


def test_a_copy_has_dates_instead_of_ages(site: Path) -> None:
    for path in (site / "index.html", *site.glob("runs/*/index.html"), *site.glob("matrix/*.html")):
        text = path.read_text("utf-8")
        assert not re.search(r">\s*(?:just now|[^<>]* ago)\s*<", text), path
    assert re.search(r">\d{4}-\d\d-\d\d \d\d:\d\d UTC</time>", (site / "index.html").read_text("utf-8"))


def test_labels_notes_and_agreement_can_be_read_in_a_copy(small_run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "labelled"
    shutil.copytree(small_run.folder, folder)
    append_label(folder, "texts", 0, who="Ann", verdict="wrong", note="<b>see</b>", star=True)
    append_label(folder, "texts", 0, who="Bob", verdict="right")
    write_site([str(folder)], tmp_path / "site")
    run = tmp_path / "site" / "runs" / "labelled"
    assert 'href="../../runs/labelled/labels.html"' in (run / "index.html").read_text("utf-8")
    labels, document = ((run / name).read_text("utf-8") for name in ("labels.html", "tasks/texts/0.html"))
    assert "Ann and Bob" in labels and "Cohen" in labels and "0.0 %" in labels
    assert 'href="../../runs/labelled/tasks/texts/0.html"' in labels
    for page in (labels, document):
        assert "&lt;b&gt;see&lt;/b&gt;" in page and "<b>see" not in page and "★" in page
        assert "Label next" not in page and "labels.js" not in page
    assert 'aria-label="Labels"' in document
    write_site([str(small_run.folder)], tmp_path / "other")
    assert not list((tmp_path / "other").rglob("labels.html"))


def test_media_can_be_left_out(runs: Runs, tmp_path: Path) -> None:
    write_site([str(runs[0].folder)], tmp_path / "site", has_media=False, max_documents=1)
    assert not (tmp_path / "site" / "media").exists()
    assert not (tmp_path / "site" / "compare").exists()
    assert len(list((tmp_path / "site").rglob("tasks/*/*.html"))) == 50  # one page of the table


def test_a_site_is_replaced_and_other_folders_are_refused(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(InvalidOption, match="not empty"):
        write_site([str(runs[0].folder)], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    site = tmp_path / "site"
    write_site([str(runs[0].folder)], site, max_documents=1)
    (site / "runs" / "old.html").write_text("old")
    (site / "notes.txt").write_text("mine")
    write_site([str(runs[0].folder)], site, max_documents=1)
    assert not (site / "runs" / "old.html").exists()
    assert (site / "notes.txt").read_text() == "mine" and (site / MARKER_FILE).is_file()


def test_a_damaged_run_is_left_out(small_run: Run, tmp_path: Path) -> None:
    good, damaged = tmp_path / "runs" / "good", tmp_path / "runs" / "damaged"
    shutil.copytree(small_run.folder, good)
    damaged.mkdir()
    (damaged / JOURNAL_FILE).write_bytes(b"no journal" * 1000)
    written = write_site([str(tmp_path / "runs")], tmp_path / "site")
    assert written.runs == 1 and list(written.left_out) == ["damaged"] and written.left_out["damaged"]
    assert "damaged" not in (tmp_path / "site" / "index.html").read_text("utf-8")
    assert (tmp_path / "site" / "runs" / "good" / "index.html").is_file()
    before = sorted(tmp_path.joinpath("site").rglob("*"))
    with pytest.raises(AssayError, match="cannot index the run `damaged`"):
        write_site([str(damaged)], tmp_path / "site")
    assert sorted(tmp_path.joinpath("site").rglob("*")) == before
    with pytest.raises(AssayError, match="cannot index"):
        write_site([str(damaged)], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_interrupt_stops_the_indexing(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached_limit: list[bool] = []

    def update(index: DocumentIndex, progress: Callable[[int], None]) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            progress(1)
            time.sleep(0.01)
        reached_limit.append(True)
        return False

    monkeypatch.setattr(DocumentIndex, "update", update)
    with pytest.raises(KeyboardInterrupt):
        write_site([str(small_run.folder)], tmp_path / "site")
    assert reached_limit == []
    assert not (tmp_path / "site").exists()


def test_texts_with_the_markup_that_the_writer_changes_stay_as_they_are(
    small_run: Run, tmp_path: Path
) -> None:
    write_site([str(small_run.folder)], tmp_path / "site")
    page = (tmp_path / "site" / "runs" / to_file_name(small_run.id) / "tasks" / "texts" / "0.html").read_text(
        "utf-8"
    )
    shown = html.unescape(re.sub(r"<[^>]*>", "", page))
    for literal in MARKUP:
        assert shown.count(literal) >= 2, literal  # the prompt and the response
    assert '<button type="button" data-reading="raw">' in page
    assert not re.search(r"<a[^>]* data-read\b", page)
