"""`assay show RUN`: wrong answers, endings and single documents of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Assay
from tests.making import Function, answer_correctly, write_choices, write_task

import assay
from assay import models
from assay.core.errors import AssayError
from assay.core.records.requests import Likelihood, Request
from assay.core.records.responses import Failure, LogProbability, Response, Usage
from assay.testing import ScriptedModel

MakeRun = Callable[..., str]
NUMBER_FILTER = [
    {
        "name": "number",
        "filter": [{"function": "regex", "regex_pattern": "(\\d+)"}, {"function": "take_first"}],
    }
]


def test_wrong_answers_show_prompt_response_answer_target_and_score(
    assay_command: Assay, make_run: MakeRun, workspace: Path
) -> None:
    write_task(workspace, filter_list=NUMBER_FILTER)
    run = make_run("half", lambda document: document in (1, 4), "sums.yaml")
    called = assay_command("show", run, "--wrong", "-n", "1")
    assert called.code == 0, called.err
    assert called.out == (
        "── sums, document 1 ────────────────────────────────────────\n"
        "prompt\n"
        "  Question: What is 1 + 1?\n"
        "  Answer:\n"
        "response\n"
        "  ?\n"
        "answer  (regex → take_first)  number: '[invalid]'\n"
        "target   '2'\n"
        "score    exact_match,number 0.0000\n"
        "ending   unparsed\n"
        "\n"
    )
    assert called.err == "1 shown; 2 of 6 documents are wrong; -n shows more\n"


def test_run_without_conditions_shows_its_first_documents(
    assay_command: Assay, make_run: MakeRun, workspace: Path
) -> None:
    write_task(workspace)
    run = make_run("good", lambda document: False, "sums.yaml")
    called = assay_command("show", run, "--limit", "2")
    assert [line for line in called.out.splitlines() if line.startswith("──")] == [
        f"── sums, document {number} {'─' * 40}" for number in (0, 1)
    ]
    assert "2 shown of 6; -n shows more" in called.err
    assert assay_command("show", run, "--wrong").err == "no documents are wrong; the run has 6 documents\n"


def test_an_unfinished_run_says_how_many_documents_are_done(assay_command: Assay, workspace: Path) -> None:
    def fail(prompt: str) -> str:
        raise ValueError("no connection")

    with pytest.raises(AssayError):
        assay.run(model=fail, tasks=[str(write_task(workspace))])
    called = assay_command("show", "latest", "--wrong")
    assert re.search(r"the run has 6 documents \(unfinished: [0-5] of 6 are done\)\n$", called.err)


def test_documents_of_several_tasks_are_taken_evenly(
    assay_command: Assay, make_run: MakeRun, workspace: Path
) -> None:
    write_task(workspace / "tasks", "one")
    write_task(workspace / "tasks", "two")
    run = make_run("bad", lambda document: True, "tasks/one.yaml", "tasks/two.yaml")
    shown = json.loads(assay_command("show", run, "--wrong", "-n", "3", "--json").out)
    assert [(one["task"], one["document"]) for one in shown] == [("one", 0), ("one", 1), ("two", 0)]
    shown = json.loads(assay_command("show", run, "--wrong", "--tasks", "two", "--json").out)
    assert {one["task"] for one in shown} == {"two"}


def test_options_of_runs_do_not_work_for_task_files(assay_command: Assay, workspace: Path) -> None:
    write_task(workspace)
    called = assay_command("show", "sums.yaml", "--document", "0")
    assert called.code == 2
    assert "`sums.yaml` is a task" in called.err and "`-n N` shows the first N documents" in called.err


def test_a_truncated_prompt_is_noted(
    assay_command: Assay, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(workspace)
    usage = Usage(44, 3, truncated_tokens=1301)
    model = ScriptedModel(lambda request: Response(request_id=request.id, value="7", usage=usage))
    assay.run(model=model, tasks=["sums.yaml"], limit=1)
    note = "prompt  (truncated: the model read the last 44 of 1345 tokens"
    assert note in assay_command("show", "latest", "--document", "0").out


def test_ending_selects_documents(
    assay_command: Assay, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(workspace, filter_list=NUMBER_FILTER)

    def answer(request: Request) -> str | Response | Failure:
        if request.document == 2:
            return Response(request_id=request.id, value="let us see", finish="length")
        if request.document == 3:
            return Failure(request_id=request.id, kind="model error", message="out of memory")
        return answer_correctly(request)

    model = ScriptedModel(answer)
    monkeypatch.setitem(models.MODELS._items, "mixed", lambda: model)
    finished = assay_command("run", "sums.yaml", "--model", "mixed", "--max_failures", "1")
    assert "next: `assay show latest --ending" in finished.out
    truncated = assay_command("show", "latest", "--ending", "truncated")
    assert "response  (ended by the token limit)\n  let us see\n" in truncated.out
    assert truncated.err == "1 shown; 1 of 6 documents is truncated\n"
    failed = assay_command("show", "latest", "--ending", "failed")
    assert "response  (no response was received)\n  model error: out of memory\n" in failed.out
    (both,) = {
        tuple(one["document"] for one in json.loads(output))
        for output in (
            assay_command("show", "latest", "--ending", "truncated,failed", "--json").out,
            assay_command("show", "latest", "--document", "2,3", "--json").out,
        )
    }
    assert both == (2, 3)


def test_choices_show_log_probabilities_the_chosen_one_and_the_target(
    assay_command: Assay, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_choices(workspace)

    def answer(request: Request) -> LogProbability:
        is_no = isinstance(request, Likelihood) and request.continuation == " no"
        return LogProbability(-1.0 if is_no else -2.0, False)

    model = ScriptedModel(answer)
    monkeypatch.setitem(models.MODELS._items, "no", lambda: model)
    assert assay_command("run", "choices.yaml", "--model", "no").code == 0
    called = assay_command("show", "latest", "--wrong", "-n", "1")
    assert "  0    -1.0000  ' no'  ← chosen\n  1    -2.0000  ' yes'  ← target\n" in called.out


def test_long_prompts_show_their_end_unless_full(
    assay_command: Assay, make_run: MakeRun, workspace: Path
) -> None:
    start = "\n".join(f"line {number}" for number in range(100))
    write_task(workspace, doc_to_text=f"{start}\nQuestion: {{{{question}}}}\nAnswer:")
    run = make_run("good", lambda document: False, "sums.yaml")
    short = assay_command("show", run, "--document", "0").out
    assert "line 99" in short
    assert "line 50" not in short
    assert "characters before it not shown" in short
    assert "line 50" in assay_command("show", run, "--document", "0", "--full").out


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["--ending", "truncatd"], "no ending is called `truncatd`", "did you mean `truncated`?"),
        (["--document", "99"], "the run has no document 99", "numbers 0 to 5"),
        (["--document", "two"], "`two` is not a document number", "for example"),
        (["--tasks", "sum"], "no task of the run is called `sum`", "did you mean `sums`?"),
        (["--wrong", "--metric", "acc"], "no metric of the run is called `acc`", "exact_match,none"),
    ],
    ids=["ending", "document", "number", "task", "metric"],
)
def test_unknown_names_have_a_hint(
    assay_command: Assay, make_run: MakeRun, workspace: Path, arguments: list[str], what: str, hint: str
) -> None:
    write_task(workspace)
    run = make_run("good", lambda document: False, "sums.yaml")
    called = assay_command("show", run, *arguments)
    assert called.code == 2
    assert what in called.err
    assert hint in called.err


def test_low_score_offers_wrong_answers(assay_command: Assay, make_run: MakeRun, workspace: Path) -> None:
    write_task(workspace)
    run = make_run("bad", lambda document: document < 5, "sums.yaml")
    called = assay_command("resume", run)
    assert f"next: `assay show {run} --wrong -n 5` shows wrong answers\n" in called.out
    assert "`assay view` shows everything in a browser" in called.out


def test_filter_expressions_select_documents(
    assay_command: Assay, make_run: MakeRun, workspace: Path
) -> None:
    write_task(workspace, filter_list=NUMBER_FILTER)
    run = make_run("half", lambda document: document in (1, 4), "sums.yaml")
    called = assay_command("show", run, "--where", "wrong and document>2", "--json")
    assert [one["document"] for one in json.loads(called.out)] == [4]
    called = assay_command("show", run, "--where", r"answer~/\d+/ and not document=0", "-n", "1")
    assert (
        called.err
        == r"1 shown; 3 of 6 documents match `answer~/\d+/ and not document=0`; -n shows more" + "\n"
    )
    called = assay_command("show", run, "--where", "document>90")
    assert called.err == "no documents match `document>90`; the run has 6 documents\n"
    called = assay_command("show", run, "--where", "right and scor<1")
    assert called.code == 2
    assert (
        "unknown name `scor`\n  at --where, column 11\n    right and scor<1\n              ^^^^" in called.err
    )
    assert "did you mean `score`?" in called.err


def test_tools_expected_calls_and_earlier_calls_are_shown(assay_command: Assay, workspace: Path) -> None:
    (workspace / "utils.py").write_text(
        "def messages(document):\n"
        "    return [\n"
        "        {'role': 'user', 'content': [{'type': 'text', 'text': document['question']}]},\n"
        "        {'role': 'assistant', 'content': 'I try.', 'tool_calls': [{'name': 'area', 'arguments': {'base': 2}}]},\n"
        "        {'role': 'tool', 'content': 'too small'},\n"
        "    ]\n"
    )
    expected = [{"name": "area", "arguments": {"base": 3}}]
    write_task(
        workspace,
        rows=[{"question": "Area?", "answer": expected}],
        tools=[
            {"name": "area", "parameters": {"type": "object", "properties": {"base": {"type": "number"}}}}
        ],
        doc_to_messages=Function("utils.messages"),
        doc_to_target="answer",
        metric_list=[{"metric": "tool_call_match"}],
    )
    shown = assay_command("show", "sums.yaml", "--tool_calls", "native")
    assert '[assistant] I try.\n<tool call area {"base": 2}>\n[tool] too small' in shown.out, shown.err
    assert assay_command("run", "--model", "oracle", "--tasks", "sums.yaml", "-o", "out").code == 0
    run = next(path.parent for path in (workspace / "out").glob("*/journal*"))
    called = assay_command("show", str(run))
    assert "\ntools    area\n" in called.out, called.err
    assert f"\ntarget   {json.dumps(expected)}\n" in called.out
    assert "Result of `area`: too small" in called.out
    (document,) = json.loads(assay_command("show", str(run), "--json").out)
    assert document["requests"][0]["tools"]["tools"][0]["name"] == "area"
    model = ScriptedModel(lambda _: "none", abilities=frozenset({"generate", "chat", "tools"}))
    native = assay.run(model=model, tasks=["sums.yaml"])
    assert '[assistant] I try.\n  area({"base": 2})\n' in assay_command("show", str(native.folder)).out
