"""Agents through the whole engine: events in the journal, ends of documents, repeats, scoring again."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, write_task

import assay
from assay import api
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Response, Usage
from assay.core.records.tools import ToolCall
from assay.engine.running import agents as running_agents
from assay.store.database.schema import JOURNAL_SCHEMA
from assay.store.integrity.repair import repair_database
from assay.store.journal.journal import JOURNAL_FILE, Journal
from assay.tasks.files.task_loader import load_task
from assay.testing import ScriptedModel
from assay.viewer.results.notes import format_notes

HELPERS = '''
import os
import time
from assay.agents import tool
from assay.agents.functions import FunctionTool


class Counter:
    def __init__(self, context):
        self.wanted, self.value = context.document["wanted"], 0
        if context.document.get("broken"):
            raise OSError("no disk")

    def tools(self):
        return [self.add]

    def add(self, amount: int) -> int:
        """Add a number."""
        self.value += amount
        return self.value

    def state(self):
        return {"value": self.value}

    def snapshot(self):
        return str(self.value)

    def restore(self, snapshot):
        self.value = int(snapshot)

    def close(self):
        if log := os.environ.get("CLOSED_LOG"):
            with open(log, "a") as file:
                file.write(f"{self.wanted}\\n")

    def expected_state(self):
        return {"value": self.wanted}


def hang() -> str:
    """Never returns."""
    while True:
        time.sleep(0.01)


class ThreadedCounter(Counter):
    def tools(self):
        block = FunctionTool(block_in_c, effect="once")
        block.in_thread = True
        return [self.add, block]


def block_in_c() -> str:
    """Block where Python cannot stop it, until the pipe has a byte."""
    os.read(int(os.environ["BLOCKED_PIPE"]), 1)
    return "released"


@tool(effect="once")
def post_letter() -> str:
    with open(os.environ["LETTERS"], "a") as file:
        file.write("posted\\n")
    return "posted"


class HangingSolver:
    made = 0

    def __init__(self):
        HangingSolver.made += 1
        if HangingSolver.made > 1:  # the first one is made by the plan
            hang()

    def next(self, state):
        raise AssertionError


def hanging_script(doc):
    hang()


def user_script(doc):
    return ["Add up to " + str(doc["wanted"]), "Thanks ###STOP###"]
'''
ROWS = [{"wanted": number} for number in range(1, 5)]


def write_counter(folder: Path, name: str = "counter", rows: Any = ROWS, **keys: Any) -> Path:
    defaults = {
        "output_type": "agent",
        "repeats": 1,
        "doc_to_text": "Add up to {{wanted}}.",
        "doc_to_target": None,
        "environment": Function("utils.Counter"),
        "metric_list": [{"metric": "task_success"}, {"metric": "state_match"}],
    }
    return write_task(folder, name, rows, helpers=HELPERS, **{**defaults, **keys})


def add_up(request: Request) -> Response | str:
    """Add 1 in each turn until the wanted number is reached."""
    assert isinstance(request, Generate)
    asked = next(message.text for message in request.prompt.messages if message.role == "user")
    wanted = int(asked.strip(".").split()[-1])
    if request.round < wanted:
        return Response(
            request_id="", value="", tool_calls=(ToolCall("add", '{"amount": 1}', f"c{request.round}"),)
        )
    return f"It is {wanted}."


def model(answers: Any = add_up, **options: Any) -> ScriptedModel:
    return ScriptedModel(answers, abilities=frozenset({"generate", "chat", "tools"}), **options)


def test_agents_run_their_tools_and_are_scored_by_their_state(workspace: Path) -> None:
    agent = model()
    run = assay.run(model=agent, tasks=[str(write_counter(workspace))])
    assert run.outcomes("counter") == {"scored": 4}
    assert run.results["counter"]["task_success,none"] == 1.0
    assert len(agent.asked) == 2 + 3 + 4 + 5
    ends = {document: content for document, _, content in run.journal.read_agent_ends("counter")}
    assert [ends[number]["turns"] for number in range(4)] == [2, 3, 4, 5]
    events = run.journal.read_agent_events("counter", 0)[0]
    assert [event.kind for event in events] == ["opened", "call", "result", "end"]
    assert run.journal.count_rows("requests") == 14


def test_a_wrong_state_is_wrong_and_the_difference_is_stored(workspace: Path) -> None:
    def stop_early(request: Request) -> Response | str:
        return add_up(request) if isinstance(request, Generate) and request.round < 1 else "Done."

    run = assay.run(model=model(stop_early), tasks=[str(write_counter(workspace))])
    assert run.results["counter"]["state_match,none"] == 0.25
    ends = [content for _, _, content in run.journal.read_agent_ends("counter")]
    assert ends[2]["missing"] == [{"path": "value", "before": 3, "after": 1}]


@pytest.mark.parametrize(("window", "in_flight"), [(1, 1), (64, 1), (3, 4)])
def test_agents_finish_with_any_window_size(workspace: Path, window: int, in_flight: int) -> None:
    rows = [{"wanted": 1 + number % 3} for number in range(9)]
    run = assay.run(
        model=model(window=window, in_flight=in_flight), tasks=[str(write_counter(workspace, rows=rows))]
    )
    assert run.results["counter"]["task_success,none"] == 1.0


def test_a_limit_is_the_ending_of_the_document(workspace: Path) -> None:
    run = assay.run(model=model(), tasks=[str(write_counter(workspace, limits={"max_turns": 3}))])
    assert run.outcomes("counter") == {"scored": 2, "turn-limit": 2}
    assert run.results["counter"]["task_success,none"] == 0.5
    whys = {why for _, outcome, why in run.journal.read_outcomes("counter") if outcome == "turn-limit"}
    assert whys == {"3 turns (max_turns)"}


def test_a_tool_that_hangs_is_stopped_and_the_agent_continues(workspace: Path) -> None:
    def call_hang(request: Request) -> Response | str:
        if isinstance(request, Generate) and request.round == 0:
            return Response(request_id="", value="", tool_calls=(ToolCall("hang"),))
        return "It hangs."

    path = write_counter(
        workspace, rows=ROWS[:1], tools=[Function("utils.hang")], limits={"tool_seconds": 0.2}
    )
    began = time.monotonic()
    run = assay.run(model=model(call_hang), tasks=[str(path)])
    assert run.outcomes("counter") == {"scored": 1} and time.monotonic() - began < 60
    result = run.journal.read_agent_events("counter", 0)[0][2]
    assert result.content["text"] == "Error: the tool did not finish within 0.2 s" and result.content["error"]


def test_a_tool_in_a_thread_that_cannot_be_stopped_is_abandoned(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call_block(request: Request) -> Response | str:
        if isinstance(request, Generate) and request.round == 0:
            return Response(request_id="", value="", tool_calls=(ToolCall("block_in_c"),))
        return "It blocks."

    path = write_counter(
        workspace,
        rows=ROWS[:1],
        environment=Function("utils.ThreadedCounter"),
        limits={"tool_seconds": 0.1},
    )
    reading, writing = os.pipe()
    monkeypatch.setenv("BLOCKED_PIPE", str(reading))
    monkeypatch.setattr(running_agents, "ABANDON_AFTER_S", 0.1)
    try:
        run = assay.run(model=model(call_block), tasks=[str(path)])
    finally:
        os.write(writing, b"x")
        for thread in threading.enumerate():
            if thread.name == "assay-tool":
                thread.join(60)
        os.close(writing)
        os.close(reading)
    assert run.outcomes("counter") == {"scored": 1}
    result = run.journal.read_agent_events("counter", 0)[0][2]
    assert result.content["error"] and result.content["text"] == (
        "Error: the tool did not finish within 0.1 s; it is unknown whether it took effect"
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"solver": Function("utils.HangingSolver")},
        {"user": {"script": Function("utils.hanging_script"), "starts": True}},
    ],
    ids=["solver", "script"],
)
def test_code_that_hangs_before_the_first_step_fails_the_document(
    workspace: Path, keys: dict[str, Any]
) -> None:
    path = write_counter(workspace, rows=ROWS[:1], **keys)
    run = assay.run(model=model(), tasks=[str(path)], helper_timeout=0.5)
    ((_, outcome, why),) = run.journal.read_outcomes("counter")
    assert outcome == "failed" and "0.5 s" in why


def test_a_failed_response_fails_the_document_and_resuming_continues_it(workspace: Path) -> None:
    broken = True

    def fail_late(request: Request) -> Any:
        if broken and isinstance(request, Generate) and request.round == 2:
            return Failure(request_id="", kind="timeout", message="no answer")
        return add_up(request)

    path = write_counter(workspace)
    first = assay.run(model=model(fail_late), tasks=[str(path)])
    assert first.outcomes("counter") == {"scored": 1, "failed": 3}
    broken = False
    agent = model(fail_late)
    second = assay.run(model=agent, tasks=[str(path)])
    assert second.outcomes("counter") == {"scored": 4}
    assert second.results["counter"]["task_success,none"] == 1.0
    assert {request.round for request in agent.asked if isinstance(request, Generate)} == {2, 3, 4}
    kinds = [event.kind for event in second.journal.read_agent_events("counter", 3)[0]]
    assert kinds == ["opened", *["call", "result"] * 4, "end"]


def test_environments_are_closed_once_also_if_the_run_stops_early(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = workspace / "closed.log", write_counter(workspace)
    monkeypatch.setenv("CLOSED_LOG", str(log))

    def break_down(request: Request) -> Response | str:
        if isinstance(request, Generate) and request.round == 2:
            raise assay.AssayError("the model broke down")
        return add_up(request)

    with pytest.raises(assay.AssayError, match="broke down"):
        assay.run(model=model(break_down), tasks=[str(path)])
    assert sorted(log.read_text().split()) == ["1", "2", "3", "4"]
    log.unlink()
    assay.run(model=model(), tasks=[str(path)])
    closed = log.read_text().split()
    assert len(closed) == len(set(closed))


def test_the_environment_is_closed_if_a_request_fails(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = workspace / "closed.log", write_counter(workspace)
    monkeypatch.setenv("CLOSED_LOG", str(log))

    def fail_late(request: Request) -> Any:
        if isinstance(request, Generate) and request.round == 2:
            return Failure(request_id="", kind="timeout", message="no answer")
        return add_up(request)

    run = assay.run(model=model(fail_late), tasks=[str(path)])
    assert run.outcomes("counter") == {"scored": 1, "failed": 3}
    assert sorted(log.read_text().split()) == ["1", "2", "3", "4"]


def test_a_run_whose_journal_lost_its_last_events_repeats_no_effect(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def post(request: Request) -> Response | str:
        if isinstance(request, Generate) and request.round == 0:
            return Response(request_id="", value="", tool_calls=(ToolCall("post_letter"),))
        return "Posted."

    letters = workspace / "letters.log"
    monkeypatch.setenv("LETTERS", str(letters))
    path = write_counter(workspace, rows=ROWS[:1], tools=[Function("utils.post_letter")])
    folder = assay.run(model=model(post), tasks=[str(path)], use_cache=None).folder
    with closing(sqlite3.connect(folder / JOURNAL_FILE)) as connection:
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("DELETE FROM agent_events WHERE number > 0")
        connection.commit()
    repair_database(folder / JOURNAL_FILE, JOURNAL_SCHEMA)
    run = assay.run(model=model(post), tasks=[str(path)], use_cache=None)
    assert run.folder == folder and run.outcomes("counter") == {"in-doubt": 1}
    assert letters.read_text() == "posted\n"


def test_a_broken_environment_is_not_a_zero(workspace: Path) -> None:
    rows = [{"wanted": 1, "broken": False}, {"wanted": 1, "broken": True}]
    run = assay.run(model=model(), tasks=[str(write_counter(workspace, rows=rows))])
    assert run.outcomes("counter") == {"scored": 1, "environment-failed": 1}
    assert run.results["counter"]["task_success,none"] == 1.0


def test_repeats_are_averaged_and_give_pass_at_k(workspace: Path) -> None:
    def every_other(request: Request) -> Any:
        wrong = isinstance(request, Generate) and request.repeat == 1 and "2" in request.prompt.text
        return "No." if wrong else add_up(request)

    path = write_counter(workspace, rows=ROWS[:2])
    run = assay.run(model=model(every_other), tasks=[str(path)], repeats=2)
    assert run.results["counter"]["task_success,none"] == 0.75
    (facts,) = [one for one in run.facts["repeats"] if one["metric"] == "task_success"]
    numbers = {name: number["value"] for name, number in facts["numbers"].items()}
    assert (numbers["mean"], numbers["pass@2"], numbers["pass^2"]) == (0.75, 1.0, 0.5)


def test_turns_and_costs_per_solved_task_are_reported(workspace: Path) -> None:
    def answer(request: Request) -> Response:
        said = "No." if "3" in request.prompt.messages[0].text else add_up(request)
        made = said if isinstance(said, Response) else Response(request_id="", value=said)
        return replace(made, usage=Usage(input_tokens=10, output_tokens=2, cost_usd=0.01))

    run = assay.run(model=model(answer), tasks=[str(write_counter(workspace, rows=ROWS[:3]))])
    (facts,) = run.facts["agents"]
    assert (facts["agents"], facts["solved"], facts["ends"]) == (3, 2.0, {"answered": 3})
    assert (facts["turns"], facts["tool_calls"], facts["tokens"]) == (6, 3, 72)
    assert facts["turns_per_solved"] == 3.0 and facts["cost_per_solved_usd"] == pytest.approx(0.03)
    (line,) = [line for line in format_notes(run) if line.startswith("counter: ")]
    assert line == (
        "counter: 3 agents (3 answered); 2.0 turns, 1.0 tool calls each;"
        " 3.0 turns per solved task (task_success), $0.0300 per solved task"
    )


def test_limits_that_cannot_apply_are_noted(workspace: Path) -> None:
    path = str(write_counter(workspace, rows=ROWS[:1], limits={"max_tokens": 5, "max_cost": 0.01}))
    (note,) = [note for note in assay.plan(model=model(), tasks=[path]).notes if "max_cost" in note]
    assert "`scripted` has no price, so `max_cost` stops no agent" in note
    run = assay.run(model=model(), tasks=[path])
    assert run.facts["agents"][0]["limits_without_effect"] == ["max_tokens", "max_cost"]
    line = "counter: `max_tokens` and `max_cost` had no effect: the responses have no token counts or costs"
    assert line in format_notes(run)

    def answer(request: Request) -> Response:
        said = add_up(request)
        made = said if isinstance(said, Response) else Response(request_id="", value=said)
        return replace(made, usage=Usage(input_tokens=10, output_tokens=2, cost_usd=0.02))

    path = str(write_counter(workspace, "limited", rows=ROWS[1:2], limits={"max_tokens": 5}))
    limited = assay.run(model=model(answer), tasks=[path])
    assert limited.outcomes("limited") == {"token-limit": 1}
    assert limited.facts["agents"][0]["limits_without_effect"] == []


def test_scoring_again_runs_no_tool(workspace: Path) -> None:
    path = write_counter(workspace)
    run = assay.run(model=model(), tasks=[str(path)])
    helpers = (workspace / "utils.py").read_text()
    (workspace / "utils.py").write_text(helpers.replace("self.value += amount", "raise SystemError"))
    again = api.score(run.folder).run
    assert again.results["counter"]["task_success,none"] == 1.0
    assert [event.kind for event in again.journal.read_agent_events("counter", 0)[0]][-1] == "end"


def test_a_scripted_user_talks_to_the_agent(workspace: Path) -> None:
    path = write_counter(workspace, doc_to_text="", user={"script": Function("utils.user_script")})
    run = assay.run(model=model(), tasks=[str(path)])
    assert run.results["counter"]["task_success,none"] == 1.0
    ends = [content for _, _, content in run.journal.read_agent_ends("counter")]
    assert {content["end"] for content in ends} == {"user-ended"}


def test_the_built_in_shop_desk_is_solved_by_its_targets(workspace: Path) -> None:
    run = assay.run(model="oracle", tasks=["shopdesk", "shopdesk_scripted"], repeats=1)
    for task in ("shopdesk", "shopdesk_scripted"):
        assert run.outcomes(task) == {"scored": 30}
        assert {name: run.results[task][f"{name},none"] for name in ("task_success", "milestones")} == {
            "task_success": 1.0,
            "milestones": 1.0,
        }


def test_the_shop_desk_is_not_solved_by_doing_nothing(workspace: Path) -> None:
    run = assay.run(model=model(lambda request: "Sorry."), tasks=["shopdesk"], repeats=1)
    assert run.results["shopdesk"]["task_success,none"] < 0.2
    kinds = {
        json.loads(fields)["kind"]
        for (_, fields, *_), (_, outcome, verdicts) in zip(
            run.journal.read_documents("shopdesk"), run.journal.read_judged("shopdesk"), strict=True
        )
        if '"task_success","score",1.0' in verdicts
    }
    assert kinds <= {"refuse"}


# --- a model as the user -------------------------------------------------------------------------------


def play_user(request: Request) -> Response | str:
    """Say what is wanted, then thank."""
    assert isinstance(request, Generate)
    wanted = request.prompt.messages[0].text.split()[-1]
    return f"Add up to {wanted}" if request.round == 0 else "Thanks ###STOP###"


USER = {"instructions": "You want {{wanted}}"}


def second(answers: Any = play_user) -> ScriptedModel:
    return ScriptedModel(answers, name="second")


def test_a_second_model_plays_the_user_with_calls_and_faults_of_its_own(workspace: Path) -> None:
    path, user = write_counter(workspace, doc_to_text="", user=USER), second()
    run = assay.run(model=model(), user=user, tasks=[str(path)])
    assert run.results["counter"]["task_success,none"] == 1.0
    assert {request.round for request in user.asked if isinstance(request, Generate)} == {0, 1}
    assert len(user.asked) == 8 and all(one.tools is None for one in user.asked if isinstance(one, Generate))
    assert run.judges["user second"]["requests"] == 8
    speakers = [
        event.content["speaker"]
        for event in run.journal.read_agent_events("counter", 1)[0]
        if event.kind == "user"
    ]
    assert speakers == ["user second"] * 2


def test_a_user_model_that_fails_is_tried_again(workspace: Path) -> None:
    path = write_counter(workspace, doc_to_text="", user=USER)

    def fail(request: Request) -> Any:
        return Failure(request_id="", kind="timeout", message="no answer in 120 s")

    first = assay.run(model=model(), user=second(fail), tasks=[str(path)])
    assert first.outcomes("counter") == {"user-failed": 4}
    (why,) = {why for _, _, why in first.journal.read_outcomes("counter")}
    assert why == "user second: timeout: no answer in 120 s"
    again = assay.run(model=model(), user=second(), tasks=[str(path)])
    assert again.folder == first.folder and again.outcomes("counter") == {"scored": 4}


def test_a_user_that_ends_at_once_is_not_scored(workspace: Path) -> None:
    path = write_counter(workspace, doc_to_text="", user=USER)
    run = assay.run(model=model(), user=second(lambda request: "###STOP###"), tasks=[str(path)])
    assert run.outcomes("counter") == {"user-left": 4}


def test_a_task_with_a_user_needs_a_model_for_it(workspace: Path) -> None:
    path = write_counter(workspace, doc_to_text="", user=USER)
    with pytest.raises(assay.AssayError, match="needs a model that plays the user"):
        assay.run(model=model(), tasks=[str(path)])


def test_another_user_is_another_run(workspace: Path) -> None:
    path = str(write_counter(workspace, doc_to_text="", user=USER))
    first, second_plan = (
        assay.plan(model=model(), user=f"dummy,text={text}", tasks=[path]) for text in ("a", "b")
    )
    assert first.run_id != second_plan.run_id and list(first.judges) == ["user dummy"]
    assert assay.plan(model=model(), user="dummy,text=a", tasks=[path]).run_id == first.run_id


# --- task files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"limits": {"max_turn": 3}}, "there is no limit `max_turn`"),
        ({"limits": {"max_turns": 0}}, "`max_turns` must be a whole number above 0"),
        ({"solver": "reakt"}, "reakt"),
        ({"environment": "Counter"}, "Counter"),
        ({"environment": 3}, "`environment` must be a name or a class"),
        ({"environment": {"class": "sandbox", "folder": "nowhere"}}, "folder not found: 'nowhere'"),
        ({"tools": [3]}, "not a tool of an agent"),
        ({"tools": ["bush"]}, "bush"),
        ({"user": {"instruction": "x"}}, "`user` has no key `instruction`"),
        ({"user": {"stop": "x"}}, "needs `instructions`"),
        ({"in_doubt": "maybe"}, "invalid value for `in_doubt`"),
        ({"output_type": "generate_until"}, "`environment` has no effect"),
    ],
)
def test_a_mistake_in_an_agent_task_is_reported_before_the_first_request(
    workspace: Path, keys: dict[str, Any], problem: str
) -> None:
    agent = model()
    with pytest.raises(assay.AssayError, match=problem):
        assay.run(model=agent, tasks=[str(write_counter(workspace, **keys))])
    assert not agent.asked


def test_the_folder_of_a_workspace_is_beside_the_task_file(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "start").mkdir()
    path = write_counter(workspace, environment={"class": "sandbox", "folder": "start"})
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    agent = load_task(path).agent
    assert agent is not None and agent.environment_options == {"folder": str(workspace / "start")}


def test_agents_read_the_journal_in_one_thread(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading calls checksum functions in Python: a second thread that reads could wait for ever."""
    threads: dict[str, list[int]] = {}

    def note(name: str) -> None:
        read = getattr(Journal, name)

        def read_and_note(journal: Journal, *arguments: Any) -> Any:
            threads.setdefault(name, []).append(threading.get_ident())
            return read(journal, *arguments)

        monkeypatch.setattr(Journal, name, read_and_note)

    note("read_agent_pins")
    note("read_agent_events")
    assay.run(model=model(), tasks=[str(write_counter(workspace))], use_cache=None)
    assert {threads["read_agent_pins"][0]} == set(threads["read_agent_events"])
