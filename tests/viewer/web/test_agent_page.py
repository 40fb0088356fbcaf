"""The page of a document of an agent task: the end, the tool calls, and how the state changed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running.test_agents import model, write_counter
from tests.viewer.web.browser_visit import check_pages
from tests.viewer.web.test_document_page import make_record
from tests.viewer.web.viewer_server import serve_runs

import assay
from assay.core.records.agents import AgentEvent
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response, Usage
from assay.core.records.tools import ToolCall
from assay.store.documents.details import RequestRecord
from assay.viewer.web.pages.agent_cards import build_agent_cards


def misbehave(request: Request) -> Response | str:
    assert isinstance(request, Generate)
    if request.round:
        return "<script>alert(1)</script>"
    return Response(request_id="", value="", tool_calls=(ToolCall("add", '{"amount": 7}'),))


def test_the_page_shows_what_the_agent_did(workspace: Path) -> None:
    path = write_counter(workspace, rows=[{"wanted": 1}])
    run = assay.run(model=model(misbehave), tasks=[str(path)], output_path=str(workspace / "runs"))
    with serve_runs([run.folder.parent]) as viewer:
        page = viewer.get_when_ready(f"/runs/{run.id}/documents/counter/0").text
    assert "What the agent did" in page and "<script>alert(1)" not in page
    assert "Differences from the expected state" in page
    section = page.partition("What the agent did")[2].partition("</section>")[0]
    for text in ("answered", "value", "<code>7</code>", "<code>1</code>", "repeatable"):
        assert text in section


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("agents")
    path = write_counter(folder, rows=[{"wanted": 2}])

    def act(request: Request) -> Response | str:
        assert isinstance(request, Generate)
        made = Response(request_id="", value="", tool_calls=(ToolCall("add", '{"amount": 1}', "c"),))
        said = Response(request_id="", value=f"Attempt {request.repeat} is done.")
        usage = Usage(input_tokens=10, output_tokens=2, cost_usd=0.01)
        return replace(made if request.round < 2 else said, usage=usage)

    return assay.run(model=model(act), tasks=[str(path)], output_path=str(folder / "runs"), repeats=2)


def read_page(run: Any, task: str) -> str:
    with serve_runs([run.folder.parent]) as viewer:
        page: str = viewer.get_when_ready(f"/runs/{run.id}/documents/{task}/0").text
    return page


@pytest.mark.browser
def test_agents_are_accessible(browser: Any, repeated: Any) -> None:
    with serve_runs([repeated.folder.parent]) as viewer:
        check_pages(browser, viewer, [f"/runs/{repeated.id}/documents/counter/0"])


def test_the_timeline_has_turns_calls_and_costs(repeated: Any) -> None:
    page = read_page(repeated, "counter")
    section = page.partition('id="agents"')[2].partition("</section>")[0]
    first = section.partition("repeat 2: answered")[0]
    steps = re.findall(r'class="step-(\w+)"><td>([^<]+)', first)
    assert [(who, title.strip()) for who, title in steps] == [
        ("model", "turn 1"),
        ("tool", "add"),
        ("model", "turn 2"),
        ("tool", "add"),
        ("model", "turn 3"),
    ]
    assert "0.0300</td>" in first and "data-live-agents" not in page


def test_conversations_of_repeats_are_not_mixed(repeated: Any) -> None:
    titles = re.findall(r'<h3 class="round">([^<]+)', read_page(repeated, "counter"))
    expected = [f"repeat {repeat}, round {number}" for repeat in (1, 2) for number in (1, 2, 3)]
    expected[3] += ", with the prompt of repeat 1"
    assert titles == expected


def test_the_page_of_an_agent_at_work_updates_itself() -> None:
    events = [
        AgentEvent(0, "opened", {"tools": []}),
        AgentEvent(1, "call", {"name": "add", "arguments": "{}", "effect": "once"}),
    ]
    (card,) = build_agent_cards(make_record("", agents={0: events}, asked=[]))
    assert card["end"] == "open" and card["numbers"] == {"tool calls": 1}
    assert [step.state for step in card["steps"]] == ["no result yet"]


def test_an_external_agent_shows_its_checks_files_and_output() -> None:
    end = {
        "end": "exited",
        "checks": {"tests": 0.0},
        "check_reports": {"tests": {"score": 0.0, "reason": "exit code 1", "output": "1 failed"}},
        "diff": "--- a\n+++ b\n+new\n-old\n same",
        "output": "bye",
        "transcript": [{"role": "user", "text": "hello"}],
    }
    (card,) = build_agent_cards(make_record("", agents={0: [AgentEvent(0, "end", end)]}, asked=[]))
    assert card["checks"] == [{"name": "tests", "score": 0.0, "reason": "exit code 1", "output": "1 failed"}]
    assert [kind for kind, _ in card["diff"]] == ["diff-head", "diff-head", "diff-add", "diff-remove", ""]
    assert card["output"] == "bye" and card["transcript"]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [('hello "you"', ["user", "model", "user", "model"]), ("Task", ["model", "user", "model", "user"])],
    ids=["the user begins", "the agent begins"],
)
def test_messages_of_the_user_are_between_the_turns(prompt: str, expected: list[str]) -> None:
    response = Response(request_id="", value="x")
    asked = [
        RequestRecord(number=number, repeat=0, kind="generate", prompt=0, response=response)
        for number in range(2)
    ]
    events = [
        AgentEvent(number, "user", {"text": text, "speaker": "user", "ended": False})
        for number, text in enumerate(('hello "you"', "more"))
    ]
    (card,) = build_agent_cards(
        make_record("", agents={0: events}, asked=asked, prompts=[json.dumps(prompt)])
    )
    assert [step.who for step in card["steps"]] == expected
