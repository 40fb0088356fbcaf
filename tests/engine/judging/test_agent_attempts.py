"""Judges over the transcripts of agents: every attempt is judged, and the variance is split by who caused it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, write_task

import assay
from assay.core.ports import Ability
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Response
from assay.core.records.tools import ToolCall
from assay.store.documents.details import read_document
from assay.testing import ScriptedModel
from assay.viewer.results.notes import format_notes

HELPERS = '''
from assay.agents import CheckReport, tool

class Desk:
    def __init__(self, context):
        self.context, self.filed = context, 0

    def tools(self):
        return [self.file]

    @tool()
    def file(self, name: str) -> str:
        """File a letter."""
        self.filed += 1
        return "filed " + name

    def state(self):
        return {"filed": self.filed}

    def checks(self):
        return {"filed": CheckReport(float(self.filed == 1), "" if self.filed == 1 else f"{self.filed} letters")}

    def close(self):
        pass
'''
TOOLS: frozenset[Ability] = frozenset(("generate", "chat", "tools"))
RUBRIC = {
    "metric": "quality",
    "judge": {
        "kind": "rubric",
        "criteria": {"polite": "The agent is polite.", "right": "The letter is filed."},
        "range": [0, 1],
        "repeats": 2,
        "settings": {"temperature": 1.0},
    },
}
FILED = {"name": "file", "arguments": {"name": "x"}}


def write_desk(folder: Path, **keys: Any) -> Path:
    rows = [{"name": name, "turns": [[FILED], "Done."]} for name in ("ann", "bob", "cat")]
    given = {
        "output_type": "agent",
        "doc_to_text": "File the letter of {{name}}.",
        "doc_to_target": "turns",
        "environment": Function("utils.Desk"),
        "metric_list": [{"metric": "task_success"}, RUBRIC],
        "repeats": 2,
        **keys,
    }
    return write_task(folder, "desk", rows, helpers=HELPERS, **given)


def act(request: Request) -> Response | str:
    """File the letter, except in the second attempt of bob."""
    assert isinstance(request, Generate)
    fails = request.repeat == 1 and "bob" in request.prompt.text
    if request.round == 0 and not fails:
        return Response(request_id="", value="", tool_calls=(ToolCall("file", '{"name": "x"}', "c"),))
    return "I cannot." if fails else "Done, with pleasure."


def judge_transcript(request: Request) -> str:
    """A judge that reads the tool calls and is unsure about bob."""
    assert isinstance(request, Generate)
    text = request.prompt.text
    filed = "TOOL file: filed x" in text and '-> file({"name": "x"})' in text
    polite = 0 if "bob" in text and request.repeat == 1 else 1
    return f'{{"polite": {polite}, "right": {int(filed)}}}'


def run_desk(folder: Path, judge: Any = judge_transcript, **options: Any) -> tuple[Any, ScriptedModel]:
    reader = ScriptedModel(judge, name="reader")
    model = ScriptedModel(act, abilities=TOOLS)
    path = options.pop("path", None) or write_desk(folder)
    return assay.run(model=model, judge=reader, tasks=[str(path)], use_cache=None, **options), reader


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ScriptedModel]:
    folder = tmp_path_factory.mktemp("judged")
    return run_desk(folder, output_path=str(folder / "runs"))


def test_the_judge_reads_the_transcript_of_every_attempt(judged: tuple[Any, ScriptedModel]) -> None:
    run, reader = judged
    assert run.outcomes("desk") == {"scored": 3}
    # ann and cat: both attempts say the same, so the judge is asked once per sample
    assert len(reader.asked) == 2 + 4 + 2
    assert run.results["desk"]["quality_right,none"] == pytest.approx(5 / 6)
    assert run.results["desk"]["quality_polite,none"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert run.results["desk"]["task_success,none"] == pytest.approx(5 / 6)


def test_the_reference_of_the_judge_is_the_conversation_of_a_perfect_agent(
    judged: tuple[Any, ScriptedModel],
) -> None:
    reference = '<reference>\nASSISTANT: -> file({"name": "x"})\n\nASSISTANT: Done.\n</reference>'
    assert all(reference in request.prompt.text for request in judged[1].asked)


def test_scores_of_attempts_and_samples_of_the_judge_are_stored(judged: tuple[Any, ScriptedModel]) -> None:
    (bob,) = [one for one in judged[0].journal.read_repeats("desk") if one.document == 1]
    assert bob.scores["task_success"] == (1.0, 0.0)
    assert bob.scores["quality"] == (0.75, 0.25)
    assert bob.judge_samples["quality"] == ((1.0, 0.5), (0.5, 0.0))


def test_the_variance_is_split_into_task_agent_and_judge(judged: tuple[Any, ScriptedModel]) -> None:
    rows = {row["metric"]: row["components"] for row in judged[0].facts["repeats"]}
    assert rows["quality"]["judge"] == pytest.approx(0.125 / 3)
    assert rows["quality"]["agent"] == pytest.approx(0.125 / 3 - 0.125 / 6)
    assert rows["task_success"]["judge"] is None and not rows["task_success"]["includes"]
    (line,) = [line for line in format_notes(judged[0]) if "variance of" in line]
    assert line.startswith("desk: variance of task_success: task ")


def test_reasons_of_failed_checks_are_stored(judged: tuple[Any, ScriptedModel]) -> None:
    record = read_document(judged[0].journal, "desk", 1)
    assert record is not None
    end = record.agents[1][-1].content
    assert end["checks"] == {"filed": 0.0}
    assert end["check_reports"]["filed"] == {"score": 0.0, "reason": "0 letters", "output": ""}


def test_an_attempt_that_the_judge_cannot_judge_leaves_the_document_without_a_score(workspace: Path) -> None:
    def fail(request: Request) -> Any:
        if "I cannot" in request.prompt.text:
            return Failure(request_id="", kind="timeout", message="no answer")
        return judge_transcript(request)

    run, _ = run_desk(workspace, fail)
    assert run.outcomes("desk") == {"scored": 2, "judge-failed": 1}
    resumed, reader = run_desk(workspace, path=workspace / "desk.yaml")
    assert resumed.outcomes("desk") == {"scored": 3} and len(reader.asked) == 2


def test_users_with_the_same_seed_reply_alike_and_their_variance_is_separated(workspace: Path) -> None:
    lock, count = threading.Lock(), [0]

    def speak(request: Request) -> str:
        assert isinstance(request, Generate)
        with lock:
            count[0] += 1
            number = count[0]
        return f"File it, please ({number})." if request.round == 0 else "###STOP###"

    def serve(request: Request) -> Response | str:
        assert isinstance(request, Generate)
        if request.round == 0 and request.repeat < 2:
            return Response(request_id="", value="", tool_calls=(ToolCall("file", '{"name": "x"}', "c"),))
        return "Done."

    user = {"instructions": "You are {{name}}.", "seeds": 2}
    path = write_desk(
        workspace, doc_to_text="", user=user, repeats=4, metric_list=[{"metric": "task_success"}]
    )
    player = ScriptedModel(speak, name="player", window=1)
    model = ScriptedModel(serve, abilities=TOOLS)
    run = assay.run(model=model, user=player, tasks=[str(path)], use_cache=None)
    first = [
        next(event.content["text"] for event in events if event.kind == "user")
        for _, events in sorted(run.journal.read_agent_events("desk", 0).items())
    ]
    assert first[0] == first[2] and first[1] == first[3] and first[0] != first[1]
    parts = run.facts["repeats"][0]["components"]
    assert parts["user"] is not None and not parts["includes"]


def test_the_number_of_user_seeds_is_checked(workspace: Path) -> None:
    path = write_desk(workspace, user={"script": ["hello"], "seeds": 0})
    with pytest.raises(assay.AssayError, match=r"`user\.seeds` must be a whole number above 0"):
        assay.plan(model=ScriptedModel(act, abilities=TOOLS), tasks=[str(path)])
