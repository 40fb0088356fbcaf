"""The content of the pages, requested over HTTP."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.making import make_model, write_task, write_texts
from tests.viewer.web.sample_runs import HOSTILE, SUMS
from tests.viewer.web.viewer_server import Viewer, serve_runs

import assay
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall
from assay.store.runs.media_files import write_media
from assay.store.runs.run import Run
from assay.testing import ScriptedModel
from assay.viewer.charts import DARK, LIGHT, OUTCOME_COLOURS
from assay.viewer.web.pages.comparison import mark_differences
from assay.viewer.web.rendering import read_static_file
from assay.viewer.web.run_catalog import RunCatalog

Runs = tuple[Run, Run]


def test_the_list_of_runs_shows_models_scores_and_outcomes(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get("/").text
    for run in runs:
        assert run.id in page
        assert run.model in page
    assert page.count('class="bar"') >= 2
    assert "1 failed" in page
    assert viewer.get("/?q=first-model").text.count("data-run=") == 1
    assert "No matching runs" in viewer.get("/?q=nothing+like+it").text
    assert viewer.get("/?state=running").text.count("data-run=") == 0


def test_runs_are_sorted_by_the_query(viewer: Viewer, runs: Runs) -> None:
    upwards, downwards = (viewer.get(f"/?sort=model&order={order}").text for order in ("asc", "desc"))
    assert upwards.index("first-model") < upwards.index("second-model")
    assert downwards.index('data-run="second-model') < downwards.index('data-run="first-model')


def test_the_page_of_a_run_has_scores_outcomes_settings_and_charts(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}").text
    for said in ("exact_match", "95 % interval", "1 failed", "Full manifest", "Throughput"):
        assert said in page
    assert page.count('<script type="application/json">') >= 2
    pieces = page.split('<script type="application/json">')[1:]
    for piece in pieces:
        figures = json.loads(piece.partition("</script>")[0])
        assert {"light", "dark", "config"} == set(figures)


def test_scores_are_broken_down_by_category(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/categories?task=sums&field=level").text
    assert "even" in page and "odd" in page
    assert "category=level%3Deven" in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", SUMS + 10),
        ("task=sums", SUMS),
        ("task=sums&outcome=failed", 1),
        ("task=sums&outcome=failed&outcome=unparsed", 2),
        ("task=sums&low=0&high=0", 34),
        ("task=sums&q=zebra", 1),
        ("q=zebra+horse", 0),
        ('task=sums&q="one+to+41"', 1),
        ("task=sums&q=%2341", 1),
        ("task=sums&category=level%3Deven", SUMS // 2),
        ("task=no+such+task", 0),
        ("task=sums&low=nonsense&metric=99&sort=nonsense&page=-3", SUMS),
    ],
)
def test_documents_are_filtered_by_every_query_parameter(
    viewer: Viewer, runs: Runs, query: str, found: int
) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents?{query}").text
    assert f'id="found">{found}<' in page


def test_the_last_page_shows_the_last_documents(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents?task=sums&page=3").text
    assert page.count("<tr data-href=") == SUMS - 100
    assert f"/documents/sums/{SUMS - 1}?" in page
    assert (
        viewer.get_when_ready(f"/runs/{runs[0].id}/documents?task=sums&page=99999").text.count(
            "<tr data-href="
        )
        == 30
    )


def test_documents_without_a_score_sort_last(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents?task=sums&sort=score&order=desc&page=3").text
    assert page.index("/documents/sums/124?") < page.index("/documents/sums/23?")


def test_a_document_shows_prompt_response_filters_and_verdicts(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/sums/41?task=sums").text
    for said in ("What is 41 + 1?", "I add one to 41.", "2 few-shot examples", "take_first", "exact_match"):
        assert said in page
    assert '<pre class="text">42</pre>' in page
    assert "/documents/sums/40?task=sums" in page and "/documents/sums/42?task=sums" in page
    assert f"42 of {SUMS}" in page


def test_choices_show_their_log_probabilities(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/choices/1").text
    assert "-1.0000" in page and "-2.0000" in page
    assert "most likely" in page and "target" in page


def test_model_output_is_escaped(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/sums/17").text
    assert html.escape(HOSTILE).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in page
    assert "<script>window" not in page and "<img src=x" not in page
    table = viewer.get_when_ready(f"/runs/{runs[0].id}/documents?q=stolen").text
    assert 'id="found">1<' in table and "<script>window" not in table


def test_tokens_are_coloured_by_probability(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/sums/17").text
    tokens = page.partition('<section id="tokens">')[2].partition("</section>")[0]
    marks = re.findall(r'<span class="token (p\d)" title="([^"]+)">([^<]*)</span>', tokens)
    assert [(level, title) for level, title, _ in marks] == [
        ("p0", "-0.0100 · 99.0 %"),
        ("p3", "-3.0000 · 5.0 %"),
        ("p5", "-9.5000 · 0.0075 %"),
        ("p1", "-0.2000 · 81.9 %"),
    ]
    texts = [html.unescape(text) for _, _, text in marks]
    assert texts == [HOSTILE[:20], HOSTILE[20:], "↵\n", "∅"]
    assert tokens.count("<tr>") == 5  # the same numbers in a table
    choices = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/choices/1").text
    assert "choice 0" in choices and "choice 1" in choices
    unknown = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/sums/18").text
    assert "the run did not store them" in unknown and 'id="tokens"' not in unknown
    nothing = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/sums/23").text
    assert "the run did not store them" not in nothing


def test_a_failed_document_shows_the_reason(viewer: Viewer, runs: Runs) -> None:
    page = viewer.get_when_ready(f"/runs/{runs[0].id}/documents/sums/23").text
    assert "server error" in page and "503 &lt;i&gt;later&lt;/i&gt;" in page


def test_media_are_served_by_digest_only(viewer: Viewer, runs: Runs) -> None:
    kinds = set()
    for file in (runs[0].folder / "media").iterdir():
        answer = viewer.get(f"/media/{runs[0].id}/{file.name}")
        assert answer.status == 200
        assert "sandbox" in answer.headers["content-security-policy"]
        kinds.add(answer.headers["content-type"])
    assert kinds == {"image/png", "audio/wav"}
    part = viewer.get(f"/media/{runs[0].id}/{file.name}", range="bytes=0-9")
    assert part.status == 206 and len(part.body) == 10


@pytest.mark.parametrize(
    "path",
    [
        "../journal.sqlite",
        "..%2fjournal.sqlite",
        "%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "journal.sqlite",
        "0" * 64,
        "0" * 63,
    ],
)
def test_a_path_outside_the_media_of_a_run_is_refused(viewer: Viewer, runs: Runs, path: str) -> None:
    for address in (
        f"/media/{runs[0].id}/{path}",
        f"/static/x/{path}",
        f"/media/{quote(path, safe='%')}/{'0' * 64}",
    ):
        answer = viewer.get(address)
        assert answer.status == 404
        assert b"SQLite" not in answer.body and b"root:" not in answer.body


def test_media_that_browsers_might_execute_are_not_served(viewer: Viewer, runs: Runs) -> None:
    name = "a" * 64
    write_media(runs[0].folder, name, b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    try:
        assert viewer.get(f"/media/{runs[0].id}/{name}").status == 415
    finally:
        (runs[0].folder / "media" / name).unlink()


def test_the_comparison_page_shows_changed_documents_and_settings(viewer: Viewer, runs: Runs) -> None:
    address = f"/compare?run={runs[0].id}&run={runs[1].id}"
    page = viewer.get_when_ready(address).text
    for said in ("Documents with different scores", "Different settings", "difference", "revision"):
        assert said in page
    assert "/compare/document?" in page
    worse = viewer.get_when_ready(f"{address}&task=sums&side=worse").text
    assert 0 < worse.count("<tr data-href=") < page.count("<tr data-href=")
    one = viewer.get_when_ready(
        f"/compare/document?run={runs[0].id}&run={runs[1].id}&task=sums&document=4"
    ).text
    assert "<mark>5</mark>" in one


@pytest.mark.parametrize(
    ("first", "second", "marked"),
    [
        ("the answer is 5.", "the answer is 6.", (["5"], ["6"])),
        ("a b c", "a c", (["b"], [])),
        ("same", "same", ([], [])),
        ("", "new words", ([], ["new words"])),
        ("x " * 9000 + "one\n", "x " * 9000 + "two\n", (["one"], ["two"])),
        ("line\n" * 3 + "a " * 4000, "b " * 4000 + "\nend", None),
    ],
    ids=["word", "removed", "equal", "empty", "long", "very different"],
)
def test_differences_are_marked_in_both_texts(
    first: str, second: str, marked: tuple[list[str], list[str]] | None
) -> None:
    pieces = mark_differences(first, second)
    assert tuple("".join(text for text, _ in side) for side in pieces) == (first, second)
    if marked is not None:
        assert tuple([text for text, differs in side if differs] for side in pieces) == marked
    else:
        assert all(any(differs for _, differs in side) for side in pieces)


def test_the_oldest_run_is_the_baseline_in_any_order_of_clicks(viewer: Viewer, runs: Runs) -> None:
    old, new = sorted(runs[:2], key=lambda run: run.facts["started"])
    for first, second in ((old, new), (new, old)):
        page = viewer.get_when_ready(f"/compare?run={first.id}&run={second.id}").text
        assert f"compared with {old.model}" in page
    page = viewer.get_when_ready(f"/compare?run={old.id}&run={new.id}&baseline={new.id}").text
    assert f"compared with {new.model}" in page


def test_missing_pages_have_a_readable_message(viewer: Viewer, runs: Runs) -> None:
    for path in ("/runs/nothing", f"/runs/{runs[0].id}/documents/sums/99999", "/nowhere", "/runs/nothing@1"):
        answer = viewer.get(path)
        assert answer.status == 404
        assert "All runs" in answer.text


def test_tags_are_stored_with_the_run_and_searchable(viewer: Viewer, runs: Runs) -> None:
    path = f"/runs/{runs[1].id}/tags"
    said = viewer.get(path, method="POST", body='{"tags": ["  baseline ", "<b>", "baseline"]}')
    try:
        assert json.loads(said.body) == {"tags": ["baseline", "<b>"]}
        assert viewer.get("/?tag=baseline").text.count("data-run=") == 1
        assert "&lt;b&gt;" in viewer.get("/").text
        assert viewer.get(path, method="POST", body='{"tags": ["' + "x" * 99 + '"]}').status == 400
    finally:
        viewer.get(path, method="POST", body='{"tags": []}')
    assert not (runs[1].folder / "tags.json").exists()


def test_the_list_without_runs_explains_how_to_start_one(tmp_path: Path) -> None:
    with serve_runs([tmp_path]) as empty:
        assert "No runs found" in empty.get("/").text
        assert "No runs found" in empty.get("/compare").text


def test_a_damaged_run_is_listed_with_its_problem(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "journal.sqlite").write_bytes(b"not a database, whatever it is called" * 50)
    with serve_runs([tmp_path]) as seen:
        assert "damaged" in seen.get("/").text
        assert seen.get_when_ready("/runs/broken").status == 500


def test_two_runs_with_the_same_name_have_different_keys(tmp_path: Path, runs: Runs) -> None:
    import shutil

    for name in ("here", "there"):
        shutil.copytree(runs[0].folder, tmp_path / name / runs[0].id)
    with serve_runs([tmp_path / "here", tmp_path / "there"]) as seen:
        keys = list(seen.catalog.folders())
        assert len(keys) == 2 and all(key.startswith(f"{runs[0].id}~") for key in keys)
        for key in keys:
            assert seen.get_when_ready(f"/runs/{key}").status == 200


def test_documents_are_shown_before_the_index_is_built(
    viewer: Viewer, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.store.index.index_pool import IndexPool, IndexState

    monkeypatch.setattr(IndexPool, "get_state", lambda *given, **more: IndexState(done=7, total=SUMS))
    page = viewer.get(f"/runs/{runs[0].id}/documents?page=2").text
    assert page.count("<tr data-href=") == 50
    assert "/documents/sums/50" in page and "data-waiting" in page
    assert viewer.get(f"/runs/{runs[0].id}/documents?q=zebra").status == 202
    assert viewer.get(f"/runs/{runs[0].id}/documents/sums/41").status == 200
    assert json.loads(viewer.get(f"/runs/{runs[0].id}/index").body)["ready"] is False
    assert viewer.get(f"/runs/{runs[0].id}/categories").status == 202


def test_the_stored_index_of_the_newest_run_is_preloaded(viewer: Viewer, runs: Runs, folder: Path) -> None:
    viewer.get_when_ready(f"/runs/{runs[1].id}/documents?q=horse")
    catalog = RunCatalog([str(folder)])
    catalog.preload_newest_index()
    newest = runs[1].folder.resolve()
    state = catalog.indexes.get_state(newest, wait_s=30)
    assert list(catalog.indexes._states) == [newest]
    assert state.index is not None and len(state.index.columns) == SUMS + 10
    catalog.close()


def test_a_run_is_opened_once_if_it_stays_open(runs: Runs, folder: Path) -> None:
    catalog = RunCatalog([str(folder)], keep_open=True)
    with catalog.run(runs[0].id) as first, catalog.run(runs[0].id) as second:
        assert first is not second  # each has its own connection
        read = (first.estimates, second.estimates)
    with catalog.run(runs[0].id) as again:
        assert any(again.estimates is one for one in read)
    with pytest.raises(ValueError, match="broken"), catalog.run(runs[0].id):
        raise ValueError("broken")
    with catalog.run(runs[0].id) as new:
        assert new not in (first, second)
    catalog.close()


def test_the_style_sheet_defines_every_colour_it_uses(viewer: Viewer) -> None:
    sheet = read_static_file("style.css").decode()
    for theme in (LIGHT, DARK):
        assert all(f"--series-{at}: {colour};" in sheet for at, colour in enumerate(theme.series))
    assert all(f"--{name}: {colour}" in sheet for name, colour in OUTCOME_COLOURS.items())
    used = set(re.findall(r"var\(--([\w-]+)\)", sheet))
    known = set(re.findall(r"--([\w-]+):", sheet.partition("@media")[0]))
    assert used and used <= known


def test_a_truncated_prompt_is_marked(tmp_path: Path) -> None:
    rows = [{"question": "word " * count, "answer": "1"} for count in (250, 10)]
    task = write_task(tmp_path, "long", rows, generation_kwargs={"max_gen_toks": 8, "until": ["\n"]})
    run = assay.run(model="embedded", tasks=[str(task)], output_path=str(tmp_path / "out"))
    with serve_runs([tmp_path / "out"]) as viewer:
        cut, whole = (viewer.get_when_ready(f"/runs/{run.id}/documents/long/{n}").text for n in (0, 1))
        assert "prompt truncated to the context length: the model read the last 1016 of 1269 tokens" in cut
        assert "prompt truncated" not in whole
        assert "1 of 2 prompts truncated" in viewer.get_when_ready(f"/runs/{run.id}").text


def test_many_responses_of_a_document_are_folded(tmp_path: Path) -> None:
    sampling = {"temperature": 0.7, "do_sample": True}
    task = write_task(tmp_path, "many", [{"question": "x", "answer": "y"}], generation_kwargs=sampling)
    run = assay.run(
        model=make_model(lambda request: "y"),
        tasks=[str(task)],
        repeats=20,
        output_path=str(tmp_path / "out"),
    )
    with serve_runs([tmp_path / "out"]) as viewer:
        page = viewer.get_when_ready(f"/runs/{run.id}/documents/many/0").text
    shown, _, folded = page.partition("<summary>4 more responses</summary>")
    assert shown.count(">response ") == 16 and folded.count(">response ") == 4


def test_tools_and_tool_calls_are_shown_and_escaped(tmp_path: Path) -> None:
    (tmp_path / "areas.jsonl").write_text('{"question": "Area?", "calls": []}\n')
    task = {
        "task": "areas",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "areas.jsonl"}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "calls",
        "tools": [{"name": "area", "description": "<i>Area</i>"}],
        "metric_list": [{"metric": "tool_call_match"}],
    }
    (tmp_path / "areas.yaml").write_text(json.dumps(task))
    calls = (ToolCall("area", '{"base": "<b>2</b>"}'), ToolCall("volume", '{"base": '))
    model = ScriptedModel(
        lambda _: Response(request_id="", value="", tool_calls=calls),
        abilities=frozenset({"generate", "chat", "tools"}),
    )
    run = assay.run(model=model, tasks=[str(tmp_path / "areas.yaml")], output_path=str(tmp_path / "runs"))
    with serve_runs([tmp_path / "runs"]) as viewer:
        page = viewer.get_when_ready(f"/runs/{quote(run.id)}/documents/areas/0").text
    assert "Tools: area" in page and "&lt;i&gt;Area" in page
    assert "tool call <code>area</code>" in page
    assert html.escape('{"base": "<b>2</b>"}') in page.replace("&#34;", "&quot;")
    assert "tool call <code>volume: the arguments of `volume` are not a JSON object</code>" in page
    assert "(empty)" not in page


def test_corpus_metrics_are_sorted_by_document(tmp_path: Path) -> None:
    rows = [{"question": f"say {n}", "answer": "a b c d"} for n in range(3)]
    metric = {"metric": "word_error_rate"}
    spoken = write_task(tmp_path, "spoken", rows, metric_list=[metric])
    said = ("a b c d", "x y z w", "a b c")
    model = make_model(lambda request: "x" if request.task != "spoken" else said[request.document])
    run = assay.run(model=model, tasks=[str(spoken)], no_cache=True, output_path=str(tmp_path / "out"))
    texts = assay.run(
        model="embedded", tasks=[str(write_texts(tmp_path))], no_cache=True, output_path=str(tmp_path / "out")
    )
    with serve_runs([tmp_path / "out"]) as viewer:
        page = viewer.get_when_ready(f"/runs/{run.id}/documents?sort=score&order=desc").text
        places = [page.index(f"/documents/spoken/{number}") for number in (1, 2, 0)]
        assert places == sorted(places)
        assert "1.0000" in page and "0.2500" in page
        page = viewer.get_when_ready(f"/runs/{texts.id}/documents?sort=score&order=desc").text
        values = [float(one) for one in re.findall(r'data-label="score">([^<]+)<', page)]
        assert len(values) == 3 and values == sorted(values, reverse=True) and values[0] > 1
