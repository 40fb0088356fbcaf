"""External agents as the solver of a task: repeats, checks, limits, a kill, rescoring and comparing, as for other agents."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import yaml
from tests.making import write_task

import assay
from assay.api import score
from assay.core.errors import AssayError, BudgetExceeded
from assay.core.ports import Ability
from assay.core.records.programs import SandboxError
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Response, Usage
from assay.core.records.tools import ToolCall
from assay.sandboxes.sessions import SandboxSession
from assay.sandboxes.snapshots import SnapshotStore
from assay.store.documents.details import read_document
from assay.testing import ScriptedModel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandbox sessions need Linux")

AGENT = """
import json, os, sys, urllib.request

messages = [{"role": "user", "content": sys.argv[1]}]
for step in range(int(sys.argv[2])):
    body = json.dumps({"model": "m", "messages": messages}).encode()
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    text = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "more"}]
    with open("steps.txt", "a") as file:
        file.write(text + chr(10))
print("wrote", sys.argv[2], "steps")
sys.exit(int(sys.argv[3]))
"""

ROWS = [
    {"id": "a", "word": "apple", "steps": 2, "code": 0},
    {"id": "b", "word": "pear", "steps": 3, "code": 5},
]


@pytest.fixture(autouse=True, scope="module")
def _need_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        SandboxSession(SnapshotStore(tmp_path_factory.mktemp("probe"))).open().close()
    except SandboxError as problem:
        pytest.skip(problem.what)


def write_program_task(
    folder: Path,
    rows: list[dict[str, Any]] | None = None,
    *,
    solver: dict[str, Any] | None = None,
    **keys: Any,
) -> Path:
    command = ["python", "agent.py", "{prompt}", "{steps}", "{code}"]
    return write_task(
        folder,
        "program",
        ROWS if rows is None else rows,
        **{
            "output_type": "agent",
            "repeats": 1,
            "doc_to_text": "Write about {{word}}.",
            "doc_to_target": None,
            "solver": {"name": "external", "command": command, **(solver or {})},
            "environment": {
                "class": "sandbox",
                "files": {"agent.py": AGENT},
                "checks": {"two": "test $(wc -l < steps.txt) = 2", "some": "test -s steps.txt"},
            },
            "metric_list": [{"metric": "task_success"}, {"metric": "milestones"}],
            **keys,
        },
    )


def answer(request: Request) -> Response:
    assert isinstance(request, Generate)
    usage = Usage(input_tokens=5, output_tokens=2, cost_usd=0.01)
    return Response(request_id="", value=f"r{request.repeat}t{request.round}", usage=usage)


def answer_without_cost(request: Request) -> Response:
    return replace(answer(request), usage=Usage(input_tokens=5, output_tokens=2))


def run_task(
    folder: Path, answers: Callable[[Request], Any] = answer, *, task: Path | None = None, **options: Any
) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(answers, window=1, in_flight=4)
    path = task or write_program_task(folder)
    run = assay.run(
        model=model, tasks=[str(path)], output_path=str(folder / "runs"), use_cache=None, **options
    )
    return run, model


class PricedModel(ScriptedModel):
    """A model with a price."""

    billed_as = "paid"


def read_ends(run: Any, task: str = "program") -> list[dict[str, Any]]:
    return [content for _, _, content in run.journal.read_agent_ends(task)]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ScriptedModel]:
    return run_task(tmp_path_factory.mktemp("repeated"), repeats=2)


def test_files_are_scored_by_the_checks_in_every_repeat(repeated: tuple[Any, ScriptedModel]) -> None:
    run, model = repeated
    assert run.outcomes("program") == {"scored": 2}
    assert run.results["program"]["task_success,none"] == 0.5
    assert run.results["program"]["milestones,none"] == 0.75
    assert len(model.asked) == 2 * (2 + 3)
    assert {request.repeat for request in model.asked} == {0, 1}
    (facts,) = [row for row in run.facts["repeats"] if row["metric"] == "task_success"]
    assert facts["repeats"] == 2


def test_the_end_has_calls_costs_exit_and_reasons(repeated: tuple[Any, ScriptedModel]) -> None:
    ends = read_ends(repeated[0])
    assert [(end["end"], end["exit_code"], end["turns"]) for end in ends] == [
        ("exited", 0, 2),
        ("exited", 0, 2),
        ("exited", 5, 3),
        ("exited", 5, 3),
    ]
    assert ends[0]["cost_usd"] == pytest.approx(0.02) and ends[0]["tokens"] == 14
    assert ends[0]["output"] == "wrote 2 steps\n" and ends[2]["why"] == "exit code 5"
    assert "+r1t1" in ends[1]["diff"] and ends[1]["changes"][0]["path"] == "files.steps.txt"
    assert ends[2]["check_reports"]["two"]["reason"] == "exit code 1"
    roles = [(entry["role"], entry["text"]) for entry in ends[0]["transcript"]]
    assert roles == [
        ("user", "Write about apple."),
        ("assistant", "r0t0"),
        ("user", "more"),
        ("assistant", "r0t1"),
        ("program", "wrote 2 steps\n\n[exit code 0]"),
    ]
    (summary,) = repeated[0].facts["agents"]
    assert summary["turns_per_solved"] == 5.0 and summary["cost_per_solved_usd"] == pytest.approx(0.05)


def test_finished_programs_do_not_run_again(repeated: tuple[Any, ScriptedModel]) -> None:
    folder = Path(repeated[0].folder).parents[1]
    again, model = run_task(folder, repeats=2, task=folder / "program.yaml")
    assert again.folder == repeated[0].folder and not model.asked


def test_a_rescored_run_starts_no_program(repeated: tuple[Any, ScriptedModel]) -> None:
    rescored = score(str(repeated[0].folder))
    found = {estimate.metric: estimate.value for estimate in rescored.run.estimates}
    assert found == {"task_success": 0.5, "milestones": 0.75}


def test_calls_are_requests_of_the_document(repeated: tuple[Any, ScriptedModel]) -> None:
    record = read_document(repeated[0].journal, "program", 1)
    assert record is not None and len(record.asked) == 6 and len(record.agents) == 2


LIMITS: list[tuple[dict[str, Any], Callable[[Request], Any], str, str]] = [
    ({"max_turns": 1}, answer, "turn-limit", ""),
    ({"max_tokens": 7}, answer, "token-limit", ""),
    ({"max_cost": 0.01}, answer, "cost-limit", ""),
]


@pytest.mark.parametrize(("limits", "answers", "outcome", "why"), LIMITS, ids=[row[2] for row in LIMITS])
def test_limits_stop_the_program_and_its_files_are_scored(
    workspace: Path, limits: dict[str, Any], answers: Callable[[Request], Any], outcome: str, why: str
) -> None:
    task = write_program_task(workspace, ROWS[:1], limits=limits)
    run, _ = run_task(workspace, answers, task=task)
    assert run.outcomes("program") == {outcome: 1}
    assert run.results["program"]["milestones,none"] == 0.5
    assert run.results["program"]["task_success,none"] == 0.0


def test_a_program_that_does_not_end_reaches_its_time_limit(workspace: Path) -> None:
    solver = {"command": ["sleep", "600"]}
    task = write_program_task(workspace, ROWS[:1], solver=solver, limits={"max_seconds": 0.3})
    run, model = run_task(workspace, task=task)
    assert run.outcomes("program") == {"time-limit": 1} and not model.asked


def test_a_failed_call_fails_the_document_and_a_resumed_run_repeats_only_it(workspace: Path) -> None:
    def fail(request: Request) -> Any:
        assert isinstance(request, Generate)
        return (
            Failure(request_id="", kind="server error", message="busy")
            if request.round == 1
            else answer(request)
        )

    task = write_program_task(workspace, ROWS[:1])
    failed, _ = run_task(workspace, fail, task=task)
    assert failed.outcomes("program") == {"failed": 1}
    resumed, model = run_task(workspace, task=task)
    assert resumed.outcomes("program") == {"scored": 1}
    assert [request.round for request in model.asked if isinstance(request, Generate)] == [1]


COMPACTING_AGENT = """
import json, os, sys, urllib.error, urllib.request

def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

for text in sys.argv[1:]:
    try:
        print(ask(text))
    except urllib.error.HTTPError as error:
        print(error.code, json.load(error)["error"]["code"])
"""


def reject_long(request: Request) -> Any:
    text = request.prompt.text
    if "long" in text:
        return Failure(request_id="", kind="too long", message="maximum context length is 8192")
    return (
        Failure(request_id="", kind="bad request", message="bad role") if "bad" in text else answer(request)
    )


def write_compacting_task(folder: Path, words: list[str], **keys: Any) -> Path:
    return write_program_task(
        folder,
        ROWS[:1],
        solver={"command": ["python", "agent.py", *words]},
        environment={"class": "sandbox", "files": {"agent.py": COMPACTING_AGENT}},
        **keys,
    )


def test_a_program_gets_the_errors_its_requests_cause_and_continues(workspace: Path) -> None:
    task = write_compacting_task(workspace, ["long", "short", "bad"])
    run, _ = run_task(workspace, reject_long, task=task)
    assert run.outcomes("program") == {"scored": 1}
    (end,) = read_ends(run)
    assert end["output"] == "400 context_length_exceeded\nr0t1\n400 bad_request\n"
    _, again = run_task(workspace, reject_long, task=task)
    assert not again.asked


def test_a_program_that_repeats_rejected_requests_reaches_its_turn_limit(workspace: Path) -> None:
    task = write_compacting_task(workspace, ["long"] * 4, limits={"max_turns": 3})
    run, _ = run_task(workspace, reject_long, task=task)
    assert run.outcomes("program") == {"turn-limit": 1}


def test_a_model_that_rejects_every_request_as_invalid_fails_the_document(workspace: Path) -> None:
    run, _ = run_task(workspace, reject_long, task=write_compacting_task(workspace, ["bad"]))
    assert run.outcomes("program") == {"failed": 1}
    ((_, _, why),) = run.journal.read_outcomes("program", only="failed")
    assert why == "bad request: bad role"


def test_an_exhausted_budget_stops_programs_and_a_resumed_run_continues(workspace: Path) -> None:
    prices = workspace / "prices.toml"
    prices.write_text('date = "2031-02-03"\n[prices]\n"paid" = { input = 0, output = 10000 }')
    keys: dict[str, Any] = {"generation_kwargs": {"max_gen_toks": 2}}
    task = write_program_task(workspace, **keys)
    model = PricedModel(answer_without_cost, window=1, in_flight=1)
    with pytest.raises(BudgetExceeded):
        assay.run(model=model, tasks=[str(task)], use_cache=None, max_cost=0.07, prices=str(prices))
    spent = len(model.asked)
    assert 0 < spent < 5
    run = assay.run(model=model, tasks=[str(task)], use_cache=None, prices=str(prices))
    assert run.outcomes("program") == {"scored": 2} and len(model.asked) == 5


TOOL_AGENT = """
import json, os, subprocess, sys, urllib.request

tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}
messages = [{"role": "user", "content": sys.argv[1]}]
for step in range(3):
    body = json.dumps({"model": "m", "messages": messages, "tools": [tool]}).encode()
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append({"role": "assistant", "content": None, "tool_calls": message.get("tool_calls")})
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        done = subprocess.run(json.loads(call["function"]["arguments"])["command"], shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
"""


def test_a_model_without_tools_gets_them_as_text(workspace: Path) -> None:
    prompts: list[str] = []

    def write_call(request: Request) -> str:
        assert isinstance(request, Generate)
        prompts.append(request.prompt.text)
        done = "Done, there is an answer."
        return (
            '[{"name": "bash", "arguments": {"command": "echo 2 | tee answer.txt"}}]'
            if request.round == 0
            else done
        )

    environment = {
        "class": "sandbox",
        "files": {"agent.py": TOOL_AGENT},
        "checks": {"written": "grep -qx 2 answer.txt"},
    }
    solver = {"command": ["python", "agent.py", "{prompt}"]}
    task = write_program_task(workspace, ROWS[:1], solver=solver, environment=environment)
    model = ScriptedModel(write_call, abilities=frozenset(("generate", "chat")), window=1)
    run = assay.run(model=model, tasks=[str(task)], use_cache=None)
    assert run.results["program"]["task_success,none"] == 1.0, read_ends(run)
    assert "You can call these functions" in prompts[0]
    assert '"command": "echo 2 | tee answer.txt"' in prompts[1] and "2" in prompts[1].partition("tee")[2]
    (end,) = read_ends(run)
    assert (end["turns"], end["tool_calls"]) == (2, 1)


def test_an_image_for_a_model_without_images_fails_the_document(workspace: Path) -> None:
    agent = AGENT.replace(
        '"content": sys.argv[1]', '"content": [{"type": "image_url", "image_url": {"url": sys.argv[1]}}]'
    )
    content = io.BytesIO()
    PIL.Image.new("RGB", (2, 2)).save(content, "PNG")
    url = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    task = write_program_task(
        workspace,
        [{**ROWS[0], "url": url}],
        solver={"command": ["python", "agent.py", "{url}", "{steps}", "{code}"]},
        environment={"class": "sandbox", "files": {"agent.py": agent}},
    )
    model = ScriptedModel(answer, abilities=frozenset(("generate", "chat")))
    run = assay.run(model=model, tasks=[str(task)], use_cache=None)
    assert run.outcomes("program") == {"failed": 1} and not model.asked
    ((_, _, why),) = run.journal.read_outcomes("program", only="failed")
    assert "accepts no images" in why
    seeing, _ = run_task(workspace, task=task)
    assert seeing.outcomes("program") == {"scored": 1}


def test_without_checks_the_exit_code_is_the_check(workspace: Path) -> None:
    task = write_program_task(workspace, environment={"class": "sandbox", "files": {"agent.py": AGENT}})
    run, _ = run_task(workspace, task=task)
    assert run.results["program"]["task_success,none"] == 0.5
    assert read_ends(run)[1]["check_reports"]["exit"]["reason"] == "exit code 5"


NOISY = """
import sys
sys.stdout.buffer.write(bytes([255]) + b"x" * 50_000_000 + b"end")
"""


def test_a_program_that_prints_50_mb_of_bytes_is_scored_and_its_output_is_cut(workspace: Path) -> None:
    environment = {"class": "sandbox", "files": {"agent.py": NOISY}}
    solver = {"command": ["python", "agent.py"]}
    task = write_program_task(workspace, ROWS[:1], solver=solver, environment=environment)
    run, _ = run_task(workspace, task=task)
    (end,) = read_ends(run)
    assert run.outcomes("program") == {"scored": 1} and end["output"].endswith("end")
    assert len(end["output"]) < 200_000


DEAF = """
import http.client, os, urllib.parse
address = urllib.parse.urlparse(os.environ["OPENAI_BASE_URL"])
while True:
    connection = http.client.HTTPConnection(address.hostname, address.port)
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    connection.request("POST", "/v1/chat/completions", b"{}", headers)
    connection.getresponse().read()
"""


def test_a_program_that_sends_malformed_requests_for_ever_reaches_its_time_limit(workspace: Path) -> None:
    task = write_program_task(
        workspace,
        ROWS[:1],
        solver={"command": ["python", "agent.py"]},
        environment={"class": "sandbox", "files": {"agent.py": DEAF}},
        limits={"max_seconds": 0.5},
    )
    run, model = run_task(workspace, task=task)
    assert run.outcomes("program") == {"time-limit": 1} and not model.asked


BAD: list[tuple[dict[str, Any], str]] = [
    ({"solver": {"name": "external"}}, "command"),
    ({"solver": {"name": "external", "command": []}}, "command"),
    ({"solver": {"name": "external", "command": "agent 'x"}}, "quot"),
    ({"environment": None}, "sandbox"),
    ({"user": {"script": ["hello"]}}, "`user` has no effect"),
    ({"solver": {"name": "external", "command": ["/no/such/agent"]}}, "/no/such/agent"),
]


@pytest.mark.parametrize(("keys", "message"), BAD, ids=[message for _, message in BAD])
def test_the_plan_names_what_is_wrong_with_an_external_agent(
    workspace: Path, keys: dict[str, Any], message: str
) -> None:
    solver = keys.get("solver")
    path = write_program_task(workspace, **{key: value for key, value in keys.items() if key != "solver"})
    if solver is not None:
        path = _replace_solver(path, solver)
    with pytest.raises(AssayError) as caught:
        run_task(workspace, task=path)
    assert message in str(caught.value)


def _replace_solver(path: Path, solver: dict[str, Any]) -> Path:
    config = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**config, "solver": solver}), "utf-8")
    return path


def test_a_program_that_is_not_installed_stops_the_run(workspace: Path) -> None:
    task = write_program_task(workspace, solver={"command": ["no-such-agent"]})
    with pytest.raises(AssayError, match="no-such-agent"):
        run_task(workspace, task=task)


ABILITIES: frozenset[Ability] = frozenset(("generate", "chat", "tools"))
MINI = os.environ.get("ASSAY_TEST_MINI_SWE_AGENT", "")
"""The program `mini` of the package mini-swe-agent, in an environment of its own."""

CLIENTS = os.environ.get("ASSAY_TEST_AGENT_CLIENTS", "")
"""A Python with the packages `openai` and `anthropic`."""

CLIENT_AGENT = """
import os, subprocess, sys
from anthropic import Anthropic
from openai import OpenAI

text = sys.argv[1]
tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}
done = OpenAI().chat.completions.create(model="any", messages=[{"role": "user", "content": text}], tools=[tool])
call = done.choices[0].message.tool_calls[0].function
import json
subprocess.run(json.loads(call.arguments)["command"], shell=True, check=True)
same = {"name": "bash", "input_schema": tool["function"]["parameters"]}
done = Anthropic().messages.create(model="any", max_tokens=99, messages=[{"role": "user", "content": text}], tools=[same])
subprocess.run([one for one in done.content if one.type == "tool_use"][0].input["command"], shell=True, check=True)
"""


def make_tool_model(commands: list[str], kill_at: int = -1) -> ScriptedModel:
    def script(request: Request) -> Response:
        assert isinstance(request, Generate) and request.tools is not None
        if request.round == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        call = ToolCall("bash", json.dumps({"command": commands[request.round]}))
        return Response(request_id="", value="Next step.", tool_calls=(call,), finish="stop")

    return ScriptedModel(script, window=1, abilities=ABILITIES)


def write_real_task(folder: Path, python: str, command: list[str], **solver: Any) -> Path:
    environment = {
        "class": "sandbox",
        "files": {"answer.txt": "1\n", "agent.py": CLIENT_AGENT},
        "checks": {"replaced": "grep -qx 2 answer.txt"},
        "limits": {"memory_bytes": 8 << 30},
    }
    solver = {"command": command, "readable": [str(Path(python).parents[1])], **solver}
    rows = [{"word": "two"}]
    keys = {"environment": environment, "doc_to_text": "Replace 1 by {{word}} in answer.txt."}
    return write_program_task(folder, rows, solver=solver, **keys)


def write_mini_task(folder: Path) -> Path:
    command = [MINI, "--model", "openai/scripted", "--task", "{prompt}", "--yolo", "--exit-immediately"]
    variables = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return write_real_task(folder, MINI, [*command, "--cost-limit", "0"], env=variables)


MINI_COMMANDS = ["sed -i s/1/2/ answer.txt", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]

KILLED_MINI = """
import sys
from tests.engine.running.test_external_agents import MINI_COMMANDS, make_tool_model
import assay
from assay.api import score
assay.run(model=make_tool_model(MINI_COMMANDS, kill_at=1), tasks=[sys.argv[1]], output_path=sys.argv[2], use_cache=None)
"""


@pytest.mark.skipif(not MINI, reason="set ASSAY_TEST_MINI_SWE_AGENT to the program `mini` of mini-swe-agent")
def test_mini_swe_agent_solves_a_task_of_a_run_that_was_killed(workspace: Path) -> None:
    task, runs = write_mini_task(workspace), str(workspace / "runs")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_MINI, str(task), runs],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    model = make_tool_model(MINI_COMMANDS)
    run = assay.run(model=model, tasks=[str(task)], output_path=runs, use_cache=None)
    assert run.results["program"]["task_success,none"] == 1.0, read_ends(run)
    assert [request.round for request in model.asked if isinstance(request, Generate)] == [1]
    (end,) = read_ends(run)
    assert (end["end"], end["turns"], end["tool_calls"]) == ("exited", 2, 2)


@pytest.mark.skipif(
    not CLIENTS, reason="set ASSAY_TEST_AGENT_CLIENTS to a Python with `openai` and `anthropic`"
)
def test_the_packages_of_openai_and_anthropic_reach_the_model_of_the_run(workspace: Path) -> None:
    task = write_real_task(workspace, CLIENTS, [CLIENTS, "agent.py", "{prompt}"])
    model = make_tool_model(["sed -i s/1/3/ answer.txt", "sed -i s/3/2/ answer.txt"])
    run = assay.run(model=model, tasks=[str(task)], use_cache=None)
    assert run.results["program"]["task_success,none"] == 1.0, read_ends(run)
    assert [request.prompt.text for request in model.asked] == ["Replace 1 by two in answer.txt."] * 2


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.engine.running.test_external_agents import answer, run_task

def die(request):
    if (request.repeat, request.round) == (1, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(request)

folder = Path(sys.argv[1])
run_task(folder, die, task=folder / "program.yaml", repeats=2)
"""


def test_a_killed_run_continues_with_the_same_result(
    workspace: Path, repeated: tuple[Any, ScriptedModel]
) -> None:
    task = write_program_task(workspace)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(workspace)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run, model = run_task(workspace, task=task, repeats=2)
    assert 0 < len(model.asked) < 10
    assert run.results["program"] == repeated[0].results["program"]
    times = ("seconds",)
    expected = [
        {key: value for key, value in end.items() if key not in times} for end in read_ends(repeated[0])
    ]
    assert [
        {key: value for key, value in end.items() if key not in times} for end in read_ends(run)
    ] == expected
