"""Labels in the viewer: set by key, by two people, with agreement and a queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.web.browser_visit import Visit, check_accessibility, wait_until
from tests.viewer.web.viewer_server import Viewer

from assay.store.runs.labels import LABELS_FILE, append_label, read_run_labels
from assay.store.runs.run import Run

Runs = tuple[Run, Run]


@pytest.fixture
def key(runs: Runs) -> Iterator[str]:
    yield runs[0].folder.name
    (runs[0].folder / LABELS_FILE).unlink(missing_ok=True)


@pytest.mark.browser
def test_an_answer_is_labelled_by_key(
    visit: Visit, runs: Runs, key: str, screenshots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_LABELLER", "ann")
    append_label(runs[0].folder, "sums", 4, who="bob", verdict="wrong", note="off by one")
    page = visit.open(f"/runs/{key}/documents/sums/4")
    page.set_default_timeout(60_000)
    page.wait_for_selector("#label-bar[data-ready]")
    assert "bob: wrong off by one" in page.inner_text(".label-others")
    page.keyboard.press("1")
    page.wait_for_selector("[data-label-key='1'][aria-pressed=true]")
    page.keyboard.press("s")
    page.wait_for_selector("[data-label-key=s][aria-pressed=true]")
    page.keyboard.press("n")
    page.keyboard.type("the target is wrong")
    page.keyboard.press("Enter")
    page.screenshot(path=screenshots / "label-document.png")
    wait_until(page, "document.activeElement === document.body")
    for _ in range(600):
        labels = read_run_labels(runs[0].folder)
        if len(labels) == 2 and labels[0].note:
            break
        page.wait_for_timeout(100)
    ann, bob = labels
    assert (ann.who, ann.verdict, ann.star, ann.note) == ("ann", "right", True, "the target is wrong")
    assert bob.verdict == "wrong"
    page.keyboard.press("j")
    page.wait_for_url("**/documents/sums/5")
    page.wait_for_selector("[data-label-key='1'][aria-pressed=false]")
    page.keyboard.press("2")
    page.wait_for_selector("[data-label-key='2'][aria-pressed=true]")
    check_accessibility(page)

    page = visit.open(f"/runs/{key}/documents?where=starred")
    page.wait_for_selector("#where:not([disabled])")
    assert page.inner_text("#found") == "1"
    assert page.locator(".star").count() == 1
    assert "ann: right" in page.inner_text("tbody")
    page.screenshot(path=screenshots / "label-list.png")

    page = visit.open(f"/runs/{key}/labels")
    assert page.inner_text(".kappa") == "0.00"
    page.select_option("#by", runs[1].folder.name)
    page.click("button >> text=List")
    page.wait_for_selector("a >> text=/Open these \\d+ documents/")
    check_accessibility(page)
    page.screenshot(path=screenshots / "labels.png")
    page.click("a >> text=/Open these \\d+ documents/")
    page.wait_for_selector("#where:not([disabled])")
    assert int(page.inner_text("#found")) > 10


def post(viewer: Viewer, path: str, content: Any, **headers: Any) -> Any:
    return viewer.get(path, method="POST", body=json.dumps(content), **headers)


def test_labels_are_written_only_for_documents_of_the_run(viewer: Viewer, key: str, runs: Runs) -> None:
    path = f"/runs/{key}/labels/sums/3"
    answer = post(viewer, path, {"verdict": "right", "who": "ann"})
    assert answer.status == 200
    assert json.loads(answer.text)["labels"][0]["verdict"] == "right"
    assert json.loads(viewer.get(path).text)["labels"][0]["who"] == "ann"
    assert post(viewer, f"/runs/{key}/labels/sums/100000", {"verdict": "right"}).status == 404
    assert post(viewer, f"/runs/{key}/labels/sums/{10**30}", {"verdict": "right"}).status == 404
    assert post(viewer, f"/runs/{key}/labels/none/3", {"verdict": "right"}).status == 404
    assert post(viewer, path, {"verdict": "maybe"}).status == 400
    assert post(viewer, path, {"verdict": 1}).status == 400
    assert post(viewer, path, {"other": "x"}).status == 400
    assert viewer.get(path, method="POST", body="{").status == 400
    assert len(read_run_labels(runs[0].folder)) == 1


def test_labels_need_the_token_and_the_same_origin(viewer: Viewer, key: str, runs: Runs) -> None:
    path = f"/runs/{key}/labels/sums/3"
    assert post(viewer, path, {"verdict": "right"}, origin="http://evil.example").status == 403
    assert post(viewer, path, {"verdict": "right"}, sec_fetch_site="cross-site").status == 403
    assert viewer.get(path, method="POST", body='{"verdict": "right"}', cookie=False).status == 403
    assert viewer.get(path, cookie=False).status == 403
    assert read_run_labels(runs[0].folder) == []


def test_labels_are_part_of_the_download(viewer: Viewer, key: str, runs: Runs) -> None:
    append_label(runs[0].folder, "sums", 4, who="<b>bob</b>", verdict="wrong", note="<script>")
    answer = viewer.get_when_ready(f"/runs/{key}/documents.jsonl?where=label%3Dwrong")
    (record,) = [json.loads(line) for line in answer.text.splitlines()]
    assert (record["document"], record["labels"][0]["verdict"]) == (4, "wrong")
    for page in (f"/runs/{key}/labels", f"/runs/{key}/documents?where=labelled"):
        text = viewer.get_when_ready(page).text
        assert "<b>bob" not in text
        assert "&lt;b&gt;bob" in text
