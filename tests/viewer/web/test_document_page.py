"""The page of a document: the conversation, the verdict, extracted text, media."""

from __future__ import annotations

import gzip
import html
import json
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.web.reading_runs import REASONING
from tests.viewer.web.viewer_server import Viewer

from assay.core.records.responses import LogProbability, Response
from assay.core.records.tools import ToolCall
from assay.store.documents.details import DocumentRecord, RequestRecord
from assay.store.runs.run import Run
from assay.viewer.documents.choices import build_choices, find_options
from assay.viewer.documents.filter_trace import build_filter_traces
from assay.viewer.documents.prompts import PromptMessage
from assay.viewer.web.pages.conversation import build_rounds, split_segments
from assay.viewer.web.pages.extraction_spans import find_extracted_spans
from assay.viewer.web.pages.verdict_summary import build_verdict_summary
from assay.viewer.web.rendering import STATIC_FILES, read_static_file


def make_record(text: str, **details: Any) -> DocumentRecord:
    given: dict[str, Any] = {
        "task": "t", "position": 0, "id": 0, "outcome": "scored", "why": "", "fields": {}, "target": None,
        "prompts": [], "answers": {}, "verdicts": [], "judges": [],
        "asked": [RequestRecord(number=0, repeat=0, kind="generate", prompt=0, response=Response(request_id="", value=text))],
        **details,
    }  # fmt: skip
    return DocumentRecord(**given)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", [("text", "plain")]),
        ("<think>a</think>b", [("thinking", "a"), ("text", "b")]),
        ("a\n</think>\n\nb", [("thinking", "a\n"), ("text", "b")]),
        ("<think>never ends", [("thinking", "never ends")]),
        ('x<tool_call>{"name": "f"}</tool_call>', [("text", "x"), ("tool call", '{"name": "f"}')]),
        ("2 < 3 <b>and</b>", [("text", "2 < 3 <b>and</b>")]),
    ],
)
def test_a_response_is_split_into_thinking_tool_calls_and_text(
    text: str, found: list[tuple[str, str]]
) -> None:
    assert [(one.kind, one.text) for one in split_segments(text)] == found


def test_a_marked_part_keeps_its_place_in_the_segments() -> None:
    text = "<think>42?</think>\nIt is 42."
    start = text.rindex("42")
    thinking, rest = split_segments(text, [(start, start + 2)])
    assert not thinking.is_marked
    assert rest.pieces == (("It is ", False), ("42", True), (".", False))


@pytest.mark.parametrize(
    ("text", "steps", "answer", "taken"),
    [
        ("1, 2, 3", [{"function": "regex", "arguments": {"regex_pattern": r"(\d)", "group_select": -1}}], "3", "3"),
        ("so 3. answer is  7 ", [{"function": "regex", "arguments": {"regex_pattern": r"is([ \d]+)"}}], "7", "7"),
        ("THE ANSWER IS B", [{"function": "lowercase"}, {"function": "regex", "arguments": {"regex_pattern": "is ([a-d])"}}], "b", "B"),
        ("#### 5 </think> #### 6", [{"function": "strip_thinking"}, {"function": "regex"}], "6", "6"),
        ("none here", [{"function": "regex"}], "[invalid]", None),
        ("the capital is Paris, I think", [{"function": "custom"}], "Paris", "Paris"),
        ("Paris or Paris", [{"function": "custom"}], "Paris", None),
        ("7", [{"function": "take_first"}], "7", None),
    ],
)  # fmt: skip
def test_the_extracted_part_is_found(
    text: str, steps: list[dict[str, Any]], answer: str, taken: str | None
) -> None:
    record = make_record(text, answers={"find": [answer]})
    spans = find_extracted_spans(record, {"filters": {"find": {"steps": steps}}})
    assert [text[start:end] for start, end in spans.get(0, [])] == ([taken] if taken else [])


def test_rounds_show_only_the_new_messages() -> None:
    first = PromptMessage(role="user", parts=("a",))
    answer = PromptMessage(role="assistant", parts=("b",))
    second = PromptMessage(role="user", parts=("c",))
    asked = [
        RequestRecord(number=0, repeat=0, kind="generate", prompt=at, response=Response(request_id="", value=said))
        for at, said in enumerate("bd")
    ]  # fmt: skip
    rounds = build_rounds([[first], [first, answer, second]], asked, {}, is_dialogue=True)
    assert [(one.title, one.messages) for one in rounds] == [("round 1", (first,)), ("round 2", (second,))]
    assert [one.responses[0].segments[0].text for one in rounds] == ["b", "d"]


def test_tool_calls_of_a_response_are_parts_of_it() -> None:
    said = Response(request_id="", value="I look.", tool_calls=(ToolCall("look_up", '{"word": "seven"}'),))
    asked = [RequestRecord(number=0, repeat=0, kind="generate", prompt=0, response=said)]
    (only,) = build_rounds([[PromptMessage(role="user", parts=("a",))]], asked, {}, is_dialogue=False)
    found = [(one.kind, one.title, one.text) for one in only.responses[0].segments]
    assert found == [("text", "", "I look."), ("tool call", "look_up", '{"word": "seven"}')]


@pytest.mark.parametrize(
    ("value", "direction", "state"),
    [(1.0, True, "right"), (0.0, True, "wrong"), (0.4, True, "partial"), (0.0, False, "right"), (1.0, False, "partial")],
)  # fmt: skip
def test_the_first_metric_decides_whether_a_document_is_right(
    value: float, direction: bool, state: str
) -> None:
    record = make_record("x", verdicts=[("none", "m", "score", value, "")])
    assert build_verdict_summary(record, [], [], {("none", "m"): direction}).state == state


def test_corpus_metrics_have_a_value_for_each_document() -> None:
    record = make_record(
        "x", verdicts=[("none", "wer", "evidence", [1, 4], ""), ("none", "bleu", "evidence", ["a", "b"], "")]
    )
    summary = build_verdict_summary(record, [], [], {("none", "wer"): False})
    assert [(one.name, one.value) for one in summary.metrics] == [("wer", 0.25)]
    assert summary.word == "scored"


def test_the_log_likelihood_of_a_text_has_four_digits() -> None:
    response = Response(request_id="", value=LogProbability(-35.12345678901234))
    asked = [RequestRecord(number=0, repeat=0, kind="rolling", prompt=0, response=response)]
    record = make_record("", asked=asked, answers={"none": [-35.12345678901234]})
    traces = build_filter_traces(record, {})
    assert build_verdict_summary(record, [], traces, {}).answer == "-35.12"


def test_the_target_of_a_choice_is_its_text() -> None:
    record = make_record("B", target=1, fields={"choices": ["red", "blue"]})
    assert build_verdict_summary(record, [], [], {}).target == "blue"
    calls = make_record("x", target=[[{"name": "cancel", "arguments": {}}], "Done."])
    assert build_verdict_summary(calls, [], [], {}).target == '[{"name": "cancel", "arguments": {}}] | Done.'
    unknown = build_verdict_summary(make_record("x", target=""), [], [], {})
    assert not unknown.has_target


def test_a_letter_is_shown_with_its_option() -> None:
    fields = {"question": "Which?", "choices": ["red", "blue"], "answer": 1}
    asked = [
        RequestRecord(
            number=number,
            repeat=0,
            kind="likelihood",
            prompt=0,
            continuation=f" {letter}",
            response=Response(request_id="", value=LogProbability(-1.0 - number)),
        )
        for number, letter in enumerate("AB")
    ]
    record = make_record("", fields=fields, target=1, asked=asked)
    choices = build_choices(asked, 1, fields)
    summary = build_verdict_summary(record, choices, [], {})
    assert (summary.answer, summary.target) == ("A: red", "B: blue")
    assert find_options(["yes", "no"], fields) == []
    assert find_options(["A", "B"], {"choices": ["red", "blue"], "words": ["x", "y"]}) == []
    assert find_options(["A", "B"], {"choices": {"text": ["red", "blue"], "label": ["A", "B"]}}) == [
        "red",
        "blue",
    ]
    assert find_options(["A", "B"], {"labels": ["A", "B"]}) == []


def test_a_response_that_is_only_calls_is_shown_once() -> None:
    call = ToolCall("add", '{"amount": 1}')
    text = '[{"name": "add", "arguments": {"amount": 1}}]'
    asked = [
        RequestRecord(
            number=number,
            repeat=0,
            kind="generate",
            prompt=0,
            response=Response(request_id="", value=value, tool_calls=(call,)),
        )
        for number, value in enumerate((text, "I add."))
    ]
    (found,) = build_rounds([[]], asked, {}, is_dialogue=False)
    parts = [[(one.kind, one.title, one.text) for one in view.segments] for view in found.responses]
    assert parts == [
        [("tool call", "add", text)],
        [("text", "", "I add."), ("tool call", "add", '{"amount": 1}')],
    ]


def test_a_document_without_a_score_shows_its_outcome() -> None:
    summary = build_verdict_summary(make_record("x", outcome="failed"), [], [], {})
    assert (summary.state, summary.word) == ("none", "failed")


def test_the_page_starts_with_the_verdict(reading_viewer: Viewer, reading_run: Run) -> None:
    page = reading_viewer.get_when_ready(f"/runs/{reading_run.id}/documents/worked/0").text
    bar = page.partition('class="verdict-bar v-right"')[2].partition("</section>")[0]
    assert "28" in bar and "exact_match" in bar
    assert '<mark class="extracted" title="extracted by the filters">28</mark>' in page
    assert page.index("verdict-bar") < page.index("conversation") < page.index("careful-judge")
    assert html.escape(REASONING) in page
    judge = page.partition('class="panel judge"')[2]
    assert "correct" in judge.partition("</h3>")[0]


def test_an_unmodified_filter_is_folded(reading_viewer: Viewer, reading_run: Run) -> None:
    page = reading_viewer.get_when_ready(f"/runs/{reading_run.id}/documents/worked/0").text
    line = page.partition('class="filter-line"')[2].partition("</summary>")[0]
    assert "regex" in line and "take_first" not in line and "1 unchanged" in line


def test_each_round_of_a_dialogue_follows_its_response(reading_viewer: Viewer, reading_run: Run) -> None:
    page = reading_viewer.get_when_ready(f"/runs/{reading_run.id}/documents/guessing/0").text
    page = page.partition('id="document"')[2]
    places = [
        page.index(said) for said in ("round 1", "guess my number", "round 2", "it is less than 4", "round 3")
    ]
    assert places == sorted(places)


def test_a_video_that_browsers_cannot_play_has_frames(reading_viewer: Viewer, reading_run: Run) -> None:
    pytest.importorskip("av")
    page = reading_viewer.get_when_ready(f"/runs/{reading_run.id}/documents/films/0").text
    assert page.count('alt="frame ') == 8
    assert "browsers do not play AVI files" in page


def test_frames_of_a_stored_video_are_served(
    reading_viewer: Viewer, reading_run: Run, tmp_path: Path
) -> None:
    pytest.importorskip("av")
    from tests.making_media import write_video

    from assay.store.runs.media_files import write_media

    name = "b" * 64
    write_media(reading_run.folder, name, write_video(tmp_path / "old.mp4").read_bytes())
    write_media(reading_run.folder, "c" * 64, b"\x00\x00\x00\x18ftypmp42 broken")
    address = f"/media/{reading_run.id}/{name}/frames"
    assert len(json.loads(reading_viewer.get(address).body)["frames"]) == 8
    frame = reading_viewer.get(f"{address}/3")
    assert frame.headers["content-type"] == "image/jpeg" and frame.body.startswith(b"\xff\xd8")
    assert reading_viewer.get(f"{address}/8").status == 404
    assert reading_viewer.get(f"/media/{reading_run.id}/{'d' * 64}/frames").status == 404
    broken = json.loads(reading_viewer.get(f"/media/{reading_run.id}/{'c' * 64}/frames").body)
    assert broken["frames"] is None and broken["why"]


def test_static_files_are_small(viewer: Viewer) -> None:
    sizes = {
        name: len(content if name.endswith("woff2") else gzip.compress(content))
        for name in STATIC_FILES
        for content in [read_static_file(name)]
    }
    assert sum(sizes.values()) < 1_000_000, sizes


def test_vendored_files_are_unmodified_and_have_a_licence() -> None:
    import hashlib

    import assay.viewer.web as web

    folder = Path(str(web.__file__)).parent / "static" / "vendor"
    about = json.loads((folder / "versions.json").read_text("utf-8"))
    for name, digest in about["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        assert f"vendor/{name}" in STATIC_FILES
    for package in about["packages"]:
        assert package["version"] and (folder / package["file"]).stat().st_size > 300
