"""External agents on documents: files and exits are scored, calls are journalled, and a killed run continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.engine.running.test_external_agents import TOOL_AGENT

from assay.agents.external.bridge_server import BridgeServer
from assay.agents.external.external_agent import AgentProgram
from assay.agents.sandbox_environment import SandboxEnvironment
from assay.agents.tools import CheckReport
from assay.core.errors import TaskError, UnsupportedRequest
from assay.core.ports import Ability
from assay.core.records.programs import SandboxError
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Response, Usage
from assay.core.records.tools import ToolCall
from assay.engine.bridging import BridgeDocument, BridgeRun, run_bridge, serve_bridge
from assay.sandboxes.sessions import SandboxSession
from assay.sandboxes.snapshots import SnapshotStore
from assay.store.journal.journal import Journal
from assay.testing import ScriptedModel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandbox sessions need Linux")

AGENT = """
import json, os, sys, urllib.request

def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

word = sys.argv[1]
for step in range(int(sys.argv[2])):
    word = ask(f"{step}: {word}")
    with open("steps.txt", "a") as file:
        file.write(word + chr(10))
print("done")
"""
"""An agent that needs nothing but the standard library."""


@pytest.fixture(autouse=True, scope="module")
def _need_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        SandboxSession(SnapshotStore(tmp_path_factory.mktemp("probe"))).open().close()
    except SandboxError as problem:
        pytest.skip(problem.what)


def answer(request: Request) -> Response:
    assert isinstance(request, Generate)
    return Response(
        request_id="", value=f"<{request.prompt.text}>", usage=Usage(input_tokens=5, output_tokens=2)
    )


def make_run(
    folder: Path, documents: list[dict[str, Any]], answers: Callable[[Request], Any] = answer, **more: Any
) -> tuple[BridgeRun, ScriptedModel]:
    model = ScriptedModel(answers, window=1, in_flight=4)
    options = {"timeout_s": 60.0, **more.pop("program", {})}
    command = ("python", "agent.py", "{word}", "{steps}")
    program = AgentProgram(command=command, environment={}, **options)
    environment = {"files": {"agent.py": AGENT}}
    run = BridgeRun(
        model=model, program=program, folder=folder, documents=documents, environment=environment, **more
    )
    return run, model


def run_all(run: BridgeRun) -> list[BridgeDocument]:
    return run_bridge(run, lambda _: None)


def test_files_and_exits_are_scored_and_calls_are_journalled(tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [
        {
            "id": "good",
            "word": "a",
            "steps": 2,
            "checks": {"two": "test $(wc -l < steps.txt) = 2", "no": "false"},
        },
        {"id": "exit", "word": "b", "steps": 1},
        {"id": "bad", "word": "c", "steps": "x"},
    ]
    run, model = make_run(tmp_path, documents, concurrency=2)
    good, exits, bad = run_all(run)
    assert (good.name, good.score, good.checks) == ("good", 0.5, {"two": 1.0, "no": 0.0})
    assert (good.result.end, good.result.exit_code, good.result.turns, good.result.tokens) == (
        "exited",
        0,
        2,
        14,
    )
    assert "+<1: <0: a>>" in good.changes and good.result.output == "done\n"
    assert exits.score == 1.0
    assert (bad.score, bad.result.exit_code) == (0.0, 1) and "ValueError" in bad.result.output
    assert len(model.asked) == 3
    journal = Journal.open_readonly(tmp_path)
    try:
        ((count,),) = journal.query("SELECT count(*) FROM answered")
        assert count == 3
    finally:
        journal.close()


def test_finished_documents_do_not_run_again(tmp_path: Path) -> None:
    documents = [{"word": "a", "steps": 2}]
    run, _ = make_run(tmp_path, documents)
    first = run_all(run)
    run, model = make_run(tmp_path, documents)
    assert run_all(run) == first and model.asked == []


def test_documents_share_no_samples_and_no_results(tmp_path: Path) -> None:
    document = {"word": "a", "steps": 1}
    answers = iter("xyz")
    run, model = make_run(tmp_path, [document, document], lambda _: next(answers))
    first, second = run_all(run)
    assert len(model.asked) == 2 and first.changes != second.changes


def test_results_are_not_reused_if_the_program_or_its_files_changed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    show = "import os, sys; print(os.environ.get('WORD'), open(sys.argv[1]).read())"

    def print_word(**variables: str) -> str:
        program = AgentProgram(command=("python", "-c", show, str(data / "a.txt")), environment=variables)
        environment = {"readable": [str(data)]}
        model = ScriptedModel()
        run = BridgeRun(
            model=model, program=program, folder=tmp_path / "run", documents=[{}], environment=environment
        )
        return run_all(run)[0].result.output

    (data / "a.txt").write_text("1")
    assert print_word(WORD="x") == "x 1\n"
    assert print_word(WORD="y") == "y 1\n"
    (data / "a.txt").write_text("2")
    assert print_word(WORD="y") == "y 2\n"


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        pytest.param({"max_turns": 2}, "turn-limit", id="turns"),
        pytest.param({"max_tokens": 10}, "token-limit", id="tokens"),
        pytest.param({"timeout_s": 1.0}, "time-limit", id="time"),
    ],
)
def test_limits_end_the_program_and_its_files_are_scored(
    tmp_path: Path, limits: dict[str, Any], end: str
) -> None:
    document = {"word": "a", "steps": 100_000, "checks": {"started": "test -s steps.txt"}}
    run, _ = make_run(tmp_path, [document], program={"max_turns": None, **limits})
    (done,) = run_all(run)
    assert (done.result.end, done.result.exit_code) == (end, None)
    assert done.score == 1.0 or end == "time-limit"


def test_a_model_that_fails_is_not_the_fault_of_the_agent(tmp_path: Path) -> None:
    document = {"word": "a", "steps": 3}
    run, _ = make_run(
        tmp_path, [document], lambda _: Failure(request_id="", kind="server error", message="down")
    )
    (done,) = run_all(run)
    assert (done.score, done.result.end, done.result.why) == (None, "model-failed", "server error: down")
    run, _ = make_run(tmp_path, [document])
    assert run_all(run)[0].score == 1.0


def test_a_document_whose_sandbox_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents: list[dict[str, Any]] = [
        {"id": "setup", "word": "a", "steps": 1, "setup": "echo no compiler; exit 3"},
        {"id": "files", "word": "a", "steps": 1, "files": ["a.txt"]},
        {"id": "checks", "word": "a", "steps": 1, "checks": {"broken": "true"}},
        {"id": "good", "word": "a", "steps": 1},
    ]
    run_checks = SandboxEnvironment.checks

    def fail_once(environment: SandboxEnvironment) -> Mapping[str, CheckReport]:
        if environment._checks:
            raise SandboxError("the sandbox session ended unexpectedly")
        return run_checks(environment)

    monkeypatch.setattr(SandboxEnvironment, "checks", fail_once)
    done = run_all(make_run(tmp_path, documents)[0])
    assert [(row.score, row.result.end) for row in done] == [
        (None, "environment-failed"),
        (None, "environment-failed"),
        (None, "environment-failed"),
        (1.0, "exited"),
    ]
    assert "no compiler" in done[0].result.why and "must be a mapping" in done[1].result.why
    assert "ended unexpectedly" in done[2].result.why and done[2].result.turns == 1


def test_files_that_are_too_large_for_a_snapshot_are_still_scored(tmp_path: Path) -> None:
    fill = "import os; [os.truncate(os.open(str(n), os.O_CREAT | os.O_RDWR), 64 << 20) for n in range(5)]"
    program = AgentProgram(command=("python", "-c", fill), environment={})
    documents = [{"checks": {"no": "false", "yes": "true"}}, {"checks": {"yes": "true"}}]
    run = BridgeRun(model=ScriptedModel(), program=program, folder=tmp_path, documents=documents)
    done = run_all(run)
    assert [(row.score, row.result.end) for row in done] == [(0.5, "exited"), (1.0, "exited")]
    assert "too large for a snapshot" in done[0].changes


def test_a_program_that_does_not_exist_is_an_error_and_not_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = AgentProgram(command=("/no/such/agent",), environment={})
    opened = []
    start = SandboxSession.open

    def count(session: SandboxSession) -> SandboxSession:
        opened.append(session)
        return start(session)

    monkeypatch.setattr(SandboxSession, "open", count)
    run = BridgeRun(model=ScriptedModel(), program=program, folder=tmp_path, documents=[{}, {}, {}])
    with pytest.raises(TaskError, match="cannot run `/no/such/agent`: No such file"):
        run_all(run)
    assert len(opened) == 1  # the documents in the queue are dropped


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        pytest.param("x" * 200_000, "Argument list too long", id="too long"),
        pytest.param("a\0b", "contains a NUL character", id="NUL"),
    ],
)
def test_a_document_that_no_command_line_can_hold_is_not_scored(
    tmp_path: Path, word: str, problem: str
) -> None:
    documents = [{"word": word, "steps": 1, "checks": {"yes": "true"}}, {"word": "a", "steps": 1}]
    bad, good = run_all(make_run(tmp_path, documents)[0])
    assert (bad.score, bad.result.end, bad.result.exit_code) == (None, "not-started", None)
    assert problem in bad.result.why and good.score == 1.0


def test_a_model_without_chat_is_refused(tmp_path: Path) -> None:
    model = ScriptedModel(abilities=frozenset(("generate",)))
    program = AgentProgram(command=("true",), environment={})
    with pytest.raises(UnsupportedRequest, match="does not chat"):
        run_all(BridgeRun(model=model, program=program, folder=tmp_path, documents=[{}]))


def test_an_interrupt_stops_the_endpoint_while_it_waits(tmp_path: Path) -> None:
    released, ended = threading.Event(), threading.Event()

    def announce(server: BridgeServer) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(20)
        ended.set()

    run, _ = make_run(tmp_path, [])
    try:
        with pytest.raises(KeyboardInterrupt):
            serve_bridge(run, announce)
        assert not ended.is_set()
    finally:
        released.set()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.engine.test_bridging import answer, make_run, run_all

def kill(request):
    if request.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(request)

run, _ = make_run(Path(sys.argv[1]), [{"word": "a", "steps": 5}], kill)
run_all(run)
"""


def test_a_killed_run_continues_with_the_answers_of_the_journal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    run, model = make_run(tmp_path, [{"word": "a", "steps": 5}])
    (resumed,) = run_all(run)
    assert [request.round for request in model.asked if isinstance(request, Generate)] == [3, 4]
    whole, _ = make_run(tmp_path / "other", [{"word": "a", "steps": 5}])
    (expected,) = run_all(whole)
    assert resumed == expected


ABILITIES: frozenset[Ability] = frozenset(("generate", "chat", "tools"))
MINI = os.environ.get("ASSAY_TEST_MINI_SWE_AGENT", "")
"""The program `mini` of the package mini-swe-agent, in an environment of its own."""


def make_mini_run(folder: Path, kill_at: int = -1) -> tuple[BridgeRun, ScriptedModel]:
    commands = ["sed -i s/1/2/ answer.txt", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]

    def script(request: Request) -> Response:
        assert isinstance(request, Generate) and request.tools is not None
        if request.round == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        call = ToolCall("bash", json.dumps({"command": commands[request.round]}))
        return Response(request_id="", value="Next step.", tool_calls=(call,), finish="stop")

    command = (MINI, "--model", "openai/scripted", "--task", "{instruction}", "--yolo", "--exit-immediately")
    variables = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    model = ScriptedModel(script, window=1, abilities=ABILITIES)
    run = BridgeRun(
        model=model,
        program=AgentProgram(command=(*command, "--cost-limit", "0"), environment=variables, timeout_s=250.0),
        folder=folder,
        documents=[
            {
                "instruction": "Replace 1 by 2 in answer.txt.",
                "files": {"answer.txt": "1\n"},
                "checks": {"replaced": "grep -qx 2 answer.txt"},
            }
        ],
        environment={
            "readable": [str(Path(MINI).parents[1])],
            "limits": {"memory_bytes": 8 << 30, "processes": 256, "open_files": 1024},
        },
    )
    return run, model


KILLED_MINI = """
import sys
from pathlib import Path
from tests.engine.test_bridging import make_mini_run, run_all
run_all(make_mini_run(Path(sys.argv[1]), kill_at=1)[0])
"""


@pytest.mark.skipif(not MINI, reason="set ASSAY_TEST_MINI_SWE_AGENT to the program `mini` of mini-swe-agent")
def test_mini_swe_agent_solves_a_task_with_a_scripted_model_after_a_kill(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_MINI, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run, model = make_mini_run(tmp_path)
    (done,) = run_all(run)
    assert done.score == 1.0 and (done.result.end, done.result.exit_code) == ("exited", 0), done.result
    assert done.result.turns == 2
    assert [request.round for request in model.asked if isinstance(request, Generate)] == [1]
    assert "Replace 1 by 2" in model.asked[0].prompt.text


@pytest.mark.parametrize(("mode", "score"), [("auto", 1.0), ("native", None)])
def test_a_model_without_tools_gets_them_as_text_unless_they_must_be_native(
    tmp_path: Path, mode: str, score: float | None
) -> None:
    def write_call(request: Request) -> str:
        assert isinstance(request, Generate)
        call = '[{"name": "bash", "arguments": {"command": "echo 2 > answer.txt"}}]'
        return call if request.round == 0 else "Done."

    model = ScriptedModel(write_call, window=1, abilities=frozenset(("generate", "chat")))
    run = BridgeRun(
        model=model,
        program=AgentProgram(command=("python", "agent.py", "Write 2."), environment={}, timeout_s=60.0),
        folder=tmp_path,
        documents=[{"checks": {"written": "grep -qx 2 answer.txt"}}],
        environment={"files": {"agent.py": TOOL_AGENT}},
        tool_calls=mode,
    )
    (done,) = run_all(run)
    assert done.score == score
    if score is None:
        assert done.result.end == "model-failed" and "does not call tools" in done.result.why
    else:
        assert "You can call these functions" in model.asked[0].prompt.text
