"""The pages of a run and of a document with prompt variants. Text of task files and models is escaped."""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import quote

import pytest
from tests.making import make_model, write_task
from tests.viewer.web.browser_visit import check_pages
from tests.viewer.web.viewer_server import serve_runs

import assay
from assay.core.records.requests import Request
from assay.store.runs.run import Run

HOSTILE = "<script>alert(1)</script>"


def answer(request: Request) -> str:
    return HOSTILE if request.prompt.text.startswith("<script>") else str(request.document)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("variants")
    rows = [{"question": f"Say {n}.", "answer": str(n)} for n in range(5)]
    path = write_task(
        folder,
        "say",
        rows,
        doc_to_text="{{question}}",
        doc_to_target="answer",
        metric_list=[{"metric": "exact_match"}],
        variants=[
            {"name": "hostile", "doc_to_text": HOSTILE + "{{question}}"},
            {"name": "now", "doc_to_text": "Now: {{question}}"},
        ],
    )
    options: dict[str, Any] = {"no_cache": True, "output_path": str(folder / "runs")}
    return assay.run(model=make_model(answer), tasks=[str(path)], **options)


@pytest.mark.browser
def test_variants_are_accessible(browser: Any, run: Run) -> None:
    with serve_runs([run.folder.parent]) as viewer:
        document = f"/runs/{run.id}/documents/{quote('say@now', safe='')}/3"
        check_pages(browser, viewer, [f"/runs/{run.id}", document])


def test_pages_list_the_prompts_with_their_scores_and_answers(run: Run) -> None:
    with serve_runs([run.folder.parent]) as viewer:
        page = viewer.get_when_ready(f"/runs/{run.id}").text
        document = viewer.get_when_ready(f"/runs/{run.id}/documents/{quote('say@now', safe='')}/3").text
    assert HOSTILE not in page and HOSTILE not in document
    section = page.partition('<section id="variants">')[2].partition("</section>")[0]
    for said in (
        "0.0000</td>",
        "hostile",
        "worst",
        "worst – best prompt",
        "consistency rate",
        html.escape(HOSTILE),
    ):
        assert said in section
    table = document.partition("<h2>Prompt variants</h2>")[2].partition("</section>")[0]
    assert table.count("<tr>") == 4
    for said in ("this one", "right", "wrong", html.escape(HOSTILE), "/documents/say%40base/3"):
        assert said in table
