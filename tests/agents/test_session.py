"""One agent: what it does, how it ends, and how it continues after a kill at any event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.notebook import Killed, MemoryLog, Notebook, call, open_session, play, respond, texts

from assay.agents import AgentState, AskModel, AskUser, CallTools, EnvironmentContext, Finished, tool
from assay.agents.session import MAX_OUTPUT_CHARACTERS
from assay.agents.users import ScriptedUser, UserReply
from assay.core.errors import AssayError, TaskError
from assay.core.records.agents import AgentEvent, AgentLimits, AgentResult, AgentSpec
from assay.core.records.requests import Generate
from assay.core.records.responses import Response, Usage
from assay.core.records.tools import ToolCall
from assay.sandboxes.sessions import WorkspaceError

SPEC = AgentSpec(environment=Notebook)
RESPONSES = [
    respond("", call("write", name="a.txt", text="one"), call("count")),
    respond("now the letter", call("post", text="hello"), call("read", name="a.txt")),
    respond("", call("write", name="a.txt", text="two"), call("count")),
    respond("All done."),
]


def box(folder: Path) -> list[str]:
    file = folder / "box.txt"
    return file.read_text().splitlines() if file.exists() else []


def strip_times(result: AgentResult) -> AgentResult:
    return replace(result, seconds=0.0)


def test_an_agent_calls_tools_until_it_answers(tmp_path: Path) -> None:
    result = play(open_session(SPEC, tmp_path), RESPONSES)
    assert (result.end, result.answer, result.said) == ("answered", "All done.", ("All done.",))
    assert (result.turns, result.tool_calls, result.tool_errors) == (4, 6, 0)
    assert texts(result, "tool") == ["written", "1", "posted", "one\n", "written", "2"]
    assert result.state == {"files": {"a.txt": "one\ntwo\n"}, "counter": 2}
    assert result.state_digest == result.expected_digest and not result.missing
    assert {change["path"]: change["after"] for change in result.changes} == {
        "files.a.txt": "one\ntwo\n",
        "counter": 2,
    }
    assert box(tmp_path) == ["hello"]


def test_the_request_has_the_conversation_and_the_tools(tmp_path: Path) -> None:
    session = open_session(SPEC, tmp_path, system="Be brief.")
    step = session.advance(RESPONSES[:1])
    assert isinstance(step, Generate) and step.tools is not None
    assert step.tools.names == ("write", "count", "read", "post") and step.round == 1
    assert [message.role for message in step.prompt.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert [one.id for one in step.prompt.messages[2].tool_calls] == ["call_0_0", "call_0_1"]
    assert step.tools.tools[0].parameters["required"] == ["name", "text"]


def test_a_model_without_tools_gets_the_calls_and_results_as_text(tmp_path: Path) -> None:
    session = open_session(SPEC, tmp_path, system="Be brief.", syntax="json", chat=False)
    step = session.advance([respond('[{"name": "count"}]', call("count"))])
    assert isinstance(step, Generate) and step.prompt.plain is not None
    assert "You can call these functions" in step.prompt.plain
    assert step.prompt.plain.endswith(
        'User: Go.\n\nAssistant: [{"name": "count"}]\n\nUser: Result of `count`:\n1\n\nAssistant:'
    )


# --- kills ---------------------------------------------------------------------------------------------


def list_kill_points() -> list[tuple[int, bool]]:
    return [(number, after) for number in range(14) for after in (False, True)]


@pytest.mark.parametrize(("number", "after"), list_kill_points())
def test_a_kill_at_any_event_changes_nothing(tmp_path: Path, number: int, after: bool) -> None:
    whole_log = MemoryLog()
    whole = play(open_session(SPEC, tmp_path / "whole", log=whole_log), RESPONSES)
    assert len(whole_log.events) == 14
    log = MemoryLog(kill_at=number, after=after)
    with pytest.raises(Killed):
        play(open_session(SPEC, tmp_path / "killed", log=log), RESPONSES)
    again = MemoryLog(log.events)
    result = play(open_session(SPEC, tmp_path / "killed", log=again), RESPONSES)
    posted = box(tmp_path / "killed")
    if log.events and log.events[-1].kind == "call" and log.events[-1].content["effect"] == "once":
        assert result.end == "in-doubt" and "`post`" in result.why
        assert len(posted) <= 1, "it is unknown whether it took effect, but it never takes effect twice"
    else:
        assert strip_times(result) == strip_times(whole)
        assert posted == ["hello"]
        assert [(one.kind, one.content.get("text")) for one in again.events] == [
            (one.kind, one.content.get("text")) for one in whole_log.events
        ]


def test_a_call_in_doubt_can_be_reported_to_the_model(tmp_path: Path) -> None:
    log = MemoryLog(kill_at=5)
    with pytest.raises(Killed):
        play(open_session(SPEC, tmp_path, log=log), RESPONSES)
    assert log.events[-1].content["name"] == "post"
    result = play(
        open_session(replace(SPEC, in_doubt="report"), tmp_path, log=MemoryLog(log.events)), RESPONSES
    )
    assert result.end == "answered" and result.tool_errors == 1
    assert "unknown whether it took effect" in texts(result, "tool")[2]
    assert box(tmp_path) == [], "it was not run again"


def test_a_document_in_doubt_stays_in_doubt_when_it_is_opened_again(tmp_path: Path) -> None:
    killed = MemoryLog(kill_at=5)
    with pytest.raises(Killed):
        play(open_session(SPEC, tmp_path, log=killed), RESPONSES)
    resumed = MemoryLog(killed.events)
    result = play(open_session(SPEC, tmp_path, log=resumed), RESPONSES)
    assert result.end == "in-doubt" and [one.kind for one in resumed.events[-2:]] == ["call", "end"]
    for recorded in (False, True):
        log = MemoryLog(resumed.events)
        again = play(open_session(SPEC, tmp_path, log=log, recorded=recorded), RESPONSES)
        assert again == result and log.events == resumed.events
    assert box(tmp_path) == []


class Memory:
    """An environment without snapshots: its repeatable calls run again in order."""

    opened = 0

    def __init__(self, context: EnvironmentContext) -> None:
        Memory.opened += 1
        self.items: list[str] = []

    def tools(self) -> Sequence[Any]:
        return [self.add]

    def add(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    def state(self) -> Any:
        return self.items

    def close(self) -> None:
        pass


def test_an_environment_without_snapshots_is_built_again(tmp_path: Path) -> None:
    spec = AgentSpec(environment=Memory)
    responses = [respond("", call("add", item=name)) for name in "abc"] + [respond("done")]
    log = MemoryLog(kill_at=5)
    with pytest.raises(Killed):
        play(open_session(spec, tmp_path, log=log), responses)
    before = Memory.opened
    result = play(open_session(spec, tmp_path, log=MemoryLog(log.events)), responses)
    assert result.state == ["a", "b", "c"] and texts(result, "tool") == ["1", "2", "3"]
    assert Memory.opened == before + 1


def test_a_tool_with_the_effect_once_needs_snapshots(tmp_path: Path) -> None:
    class Careless(Memory):
        def tools(self) -> Sequence[Any]:
            return [tool(effect="once")(lambda: "sent")]

    result = play(open_session(AgentSpec(environment=Careless), tmp_path), [])
    assert result.end == "environment-failed" and "no `snapshot`" in result.why


def test_a_finished_agent_runs_nothing_again(tmp_path: Path) -> None:
    log = MemoryLog()
    whole = play(open_session(SPEC, tmp_path, log=log), RESPONSES)
    again = play(
        open_session(SPEC, tmp_path / "elsewhere", log=MemoryLog(log.events), recorded=True), RESPONSES
    )
    assert again == whole and not (tmp_path / "elsewhere").exists()


def test_a_solver_that_does_something_else_is_an_error(tmp_path: Path) -> None:
    log = MemoryLog(kill_at=3)
    with pytest.raises(Killed):
        play(open_session(SPEC, tmp_path, log=log), RESPONSES)
    other = [respond("", call("count")), *RESPONSES[1:]]
    with pytest.raises(AssayError, match="is a call of `write`, not of `count`"):
        play(open_session(SPEC, tmp_path, log=MemoryLog(log.events)), other)


def test_missing_events_are_in_doubt(tmp_path: Path) -> None:
    log = MemoryLog()
    play(open_session(SPEC, tmp_path, log=log), RESPONSES)
    holes = MemoryLog([one for one in log.events if one.number not in (5, 6)])
    result = play(open_session(SPEC, tmp_path, log=holes), RESPONSES)
    assert result.end == "in-doubt" and box(tmp_path) == ["hello"]


@pytest.mark.parametrize("left", [0, 1, 5, 13])
def test_events_lost_at_the_end_repeat_no_effect(tmp_path: Path, left: int) -> None:
    whole = MemoryLog()
    play(open_session(SPEC, tmp_path, log=whole), RESPONSES)
    log = MemoryLog(whole.events[:left])
    result = play(open_session(SPEC, tmp_path, log=log, repaired=True), RESPONSES)
    assert result.end == "in-doubt" and "repaired" in result.why and box(tmp_path) == ["hello"]
    for recorded in (False, True):
        again = open_session(SPEC, tmp_path, log=MemoryLog(log.events), repaired=True, recorded=recorded)
        assert play(again, RESPONSES) == result


def test_a_repaired_journal_is_enough_for_agents_that_ended_or_can_repeat_their_calls(tmp_path: Path) -> None:
    log = MemoryLog()
    whole = play(open_session(SPEC, tmp_path, log=log), RESPONSES)
    assert play(open_session(SPEC, tmp_path, log=log, repaired=True), RESPONSES) == whole
    spec, responses = AgentSpec(environment=Memory), [respond("", call("add", item="a")), respond("done")]
    memory = MemoryLog()
    play(open_session(spec, tmp_path, log=memory), responses)
    cut = MemoryLog(memory.events[:2])
    assert play(open_session(spec, tmp_path, log=cut, repaired=True), responses).state == ["a"]


# --- limits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        (AgentLimits(max_turns=3), "turn-limit"),
        (AgentLimits(max_tokens=25), "token-limit"),
        (AgentLimits(max_cost=0.02), "cost-limit"),
        (AgentLimits(max_seconds=4.0), "time-limit"),
    ],
)
def test_every_limit_is_an_end_of_its_own(tmp_path: Path, limits: AgentLimits, end: str) -> None:
    usage = Usage(input_tokens=8, output_tokens=2, cost_usd=0.01)
    responses = [respond("", call("count"), usage=usage, seconds=2.0) for _ in range(9)]
    result = play(open_session(replace(SPEC, limits=limits), tmp_path), responses)
    assert result.end == end and result.turns < 9
    assert result.state["counter"] >= 1, "the state counts although the agent was stopped"


@pytest.mark.parametrize("step", [CallTools(()), AskUser("")], ids=["no calls", "a user that ended"])
def test_a_solver_that_never_asks_the_model_is_stopped(tmp_path: Path, step: CallTools | AskUser) -> None:
    class Stuck:
        def next(self, state: AgentState) -> AskModel | CallTools | AskUser:
            return step if state.turns else AskModel()

    user = ScriptedUser(["Count, please."], "###STOP###")
    log = MemoryLog()
    session = open_session(replace(SPEC, solver=Stuck), tmp_path, user=user, question="", log=log)
    result = play(session, [respond("hello")])
    assert result.end == "step-limit" and not result.is_fault
    assert len(log.events) < 300
    again = open_session(
        replace(SPEC, solver=Stuck),
        tmp_path,
        user=user,
        question="",
        log=MemoryLog(log.events),
        recorded=True,
    )
    assert play(again, [respond("hello")]) == result


FOREVER = {
    "unknown tools": call("destroy"),
    "malformed arguments": ToolCall("count", "{broken"),
    "no name": ToolCall("", "count()"),
    "wrong arguments": call("write", name=3),
    "missing arguments": call("write"),
}


@pytest.mark.parametrize("wrong", FOREVER.values(), ids=FOREVER.keys())
def test_a_model_that_errs_for_ever_is_stopped(tmp_path: Path, wrong: ToolCall) -> None:
    result = play(open_session(SPEC, tmp_path), [respond("", wrong)] * 40)
    assert result.end == "tool-error-limit" and result.tool_errors == 10
    assert all(text.startswith("Error: ") for text in texts(result, "tool"))


# --- bad tools -----------------------------------------------------------------------------------------


def raise_error() -> str:
    raise RuntimeError("the printer is on fire")


def return_much() -> str:
    return "x" * 50_000_000


def return_bytes() -> bytes:
    return b"\xff\xfe\x00"


BAD_TOOLS = {
    "raises": (raise_error, "Error: RuntimeError: the printer is on fire", True),
    "bytes": (return_bytes, "the tool returned 3 bytes that are not text", True),
}


@pytest.mark.parametrize(("function", "said", "error"), BAD_TOOLS.values(), ids=BAD_TOOLS.keys())
def test_a_bad_tool_is_a_line_in_the_transcript(
    tmp_path: Path, function: Any, said: str, error: bool
) -> None:
    result = play(
        open_session(AgentSpec(tools=(function,)), tmp_path),
        [respond("", call(function.__name__)), respond("I give up.")],
    )
    assert result.end == "answered" and texts(result, "tool") == [said]
    assert result.tool_errors == int(error)


def test_a_huge_result_is_cut(tmp_path: Path) -> None:
    result = play(
        open_session(AgentSpec(tools=(return_much,)), tmp_path),
        [respond("", call("return_much")), respond("long!")],
    )
    (text,) = texts(result, "tool")
    assert len(text) < MAX_OUTPUT_CHARACTERS + 200 and "the result has 50000000 characters" in text


class Broken(Memory):
    """An environment that fails where it is told to."""

    def __init__(self, context: EnvironmentContext) -> None:
        super().__init__(context)
        self.where = context.options["where"]
        if self.where == "open":
            raise OSError("no disk")

    def tools(self) -> Sequence[Any]:
        if self.where == "tools":
            raise OSError("no disk")
        return super().tools()

    def state(self) -> Any:
        if self.where == "end" and self.items:
            raise OSError("no disk")
        return super().state()


@pytest.mark.parametrize("where", ["open", "tools", "end"])
def test_a_broken_environment_is_an_end_of_its_own(tmp_path: Path, where: str) -> None:
    spec = AgentSpec(environment=Broken, environment_options={"where": where})
    result = play(open_session(spec, tmp_path), [respond("", call("add", item="a")), respond("done")])
    assert result.end == "environment-failed" and "OSError: no disk" in result.why
    assert result.is_fault


class Overfull(Notebook):
    """A notebook that cannot store a file called `huge`, as a sandbox cannot store too many files."""

    def snapshot(self) -> str:
        self.check_files()
        return super().snapshot()

    def state(self) -> Any:
        self.check_files()
        return super().state()

    def check_files(self) -> None:
        if (self.files / "huge").exists():
            raise WorkspaceError("too large for a snapshot")


@pytest.mark.parametrize("kill_at", [None, 3, 4, 5])
def test_files_that_cannot_be_stored_are_an_end_of_the_agent(tmp_path: Path, kill_at: int | None) -> None:
    spec = AgentSpec(environment=Overfull)
    responses = [respond("", call("write", name=name, text="x")) for name in ("a.txt", "huge")]
    log = MemoryLog()
    if kill_at is not None:
        killed = MemoryLog(kill_at=kill_at)
        with pytest.raises(Killed):
            play(open_session(spec, tmp_path, log=killed), responses)
        log = MemoryLog(killed.events)
    result = play(open_session(spec, tmp_path, log=log), responses)
    assert result.end == "workspace-limit" and not result.is_fault
    assert result.why == "snapshot: too large for a snapshot"
    assert result.state == {"files": {"a.txt": "x\n"}, "counter": 0}, "the last one that was stored"
    again = open_session(spec, tmp_path, log=MemoryLog(log.events), recorded=True)
    assert play(again, responses) == result


def test_files_that_appear_after_the_last_call_are_an_end_of_the_agent(tmp_path: Path) -> None:
    session = open_session(AgentSpec(environment=Overfull), tmp_path)
    session.advance([])
    (tmp_path / "agent" / "files" / "huge").touch()  # by a process in the background
    result = session.advance([respond("done")])
    assert isinstance(result, AgentResult) and result.end == "workspace-limit"
    assert result.state == {"files": {}, "counter": 0}


# --- users ---------------------------------------------------------------------------------------------


def test_the_user_speaks_first_and_ends_the_conversation(tmp_path: Path) -> None:
    user = ScriptedUser(["Count, please.", "Once more.", "Thanks ###STOP###"], "###STOP###")
    responses = [
        respond("", call("count")),
        respond("It is 1."),
        respond("", call("count")),
        respond("It is 2."),
    ]
    log = MemoryLog()
    result = play(open_session(SPEC, tmp_path, user=user, question="", log=log), responses)
    assert result.end == "user-ended" and result.user_turns == 3
    assert [entry["role"] for entry in result.transcript] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert result.said == ("It is 1.", "It is 2.")
    assert [one.content["speaker"] for one in log.events if one.kind == "user"] == ["script"] * 3


def test_a_user_that_ends_at_once_is_not_the_fault_of_the_agent(tmp_path: Path) -> None:
    user = ScriptedUser(["###STOP###"], "###STOP###")
    result = play(open_session(SPEC, tmp_path, user=user, question=""), [])
    assert result.end == "user-left" and result.is_fault and result.turns == 0


def test_a_user_model_that_fails_is_counted_apart(tmp_path: Path) -> None:
    class Absent:
        def reply(self, entries: Sequence[Any], turn: int) -> UserReply:
            return UserReply(failure="timeout: no answer in 120 s", speaker="second")

    result = play(open_session(SPEC, tmp_path, user=Absent(), question=""), [])
    assert result.end == "user-failed" and result.why == "second: timeout: no answer in 120 s"


# --- solvers -------------------------------------------------------------------------------------------


def test_react_continues_until_the_model_submits(tmp_path: Path) -> None:
    spec = replace(SPEC, solver="react")
    session = open_session(spec, tmp_path)
    responses = [
        respond("I think", call("count")),
        respond("Let me see."),
        respond("", call("count"), call("submit", answer="2")),
    ]
    first = session.advance([])
    assert isinstance(first, Generate) and first.tools is not None and "submit" in first.tools.names
    third = session.advance(responses[:2])
    assert isinstance(third, Generate) and third.prompt.messages[-1].text.startswith("Continue.")
    result = play(session, responses)
    assert (result.end, result.answer, result.state["counter"]) == ("submitted", "2", 2)


def test_a_task_can_bring_its_own_solver(tmp_path: Path) -> None:
    class Twice:
        """Asks twice and joins the answers."""

        def __init__(self, glue: str) -> None:
            self.glue = glue

        def next(self, state: Any) -> Any:
            said = [entry.text for entry in state.entries if entry.role == "assistant"]
            return (
                AskModel(note="Again." if said else "") if len(said) < 2 else Finished(self.glue.join(said))
            )

    spec = AgentSpec(solver=Twice, solver_options={"glue": "+"})
    assert play(open_session(spec, tmp_path), [respond("a"), respond("b")]).answer == "a+b"


def test_a_solver_that_returns_something_else_is_an_error(tmp_path: Path) -> None:
    class Lost:
        def next(self, state: Any) -> Any:
            return "ask"

    with pytest.raises(TaskError, match="the solver returned 'ask'"):
        open_session(AgentSpec(solver=Lost), tmp_path).advance([])


def test_only_the_first_call_counts_if_the_solver_wants_that(tmp_path: Path) -> None:
    spec = replace(SPEC, solver_options={"first_call_only": True})
    result = play(open_session(spec, tmp_path), [respond("", call("count"), call("count")), respond("ok")])
    assert result.state["counter"] == 1


def test_the_reasoning_of_a_response_is_in_the_transcript(tmp_path: Path) -> None:
    response = Response(request_id="", value="4", reasoning="two and two")
    result = play(open_session(AgentSpec(), tmp_path), [response])
    assert result.transcript[-1]["reasoning"] == "two and two"


def test_a_result_survives_the_journal(tmp_path: Path) -> None:
    result = play(open_session(SPEC, tmp_path), RESPONSES)
    content: Mapping[str, Any] = AgentEvent(0, "end", result.to_json()).content
    assert AgentResult.from_json(content) == result
