"""Agents with the environment `sandbox` through the whole engine: files, checks, and a kill between two commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task

import assay
from assay.core.records.programs import SandboxError
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall
from assay.sandboxes.sessions import SandboxSession
from assay.sandboxes.snapshots import SnapshotStore
from assay.testing import ScriptedModel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandbox sessions need Linux")

COMMANDS = ["cat start.txt > log.txt", "echo two >> log.txt", "echo three >> log.txt"]


@pytest.fixture(autouse=True, scope="module")
def _need_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        SandboxSession(SnapshotStore(tmp_path_factory.mktemp("probe"))).open().close()
    except SandboxError as problem:
        pytest.skip(problem.what)


def make_model(kill_at: int = -1) -> ScriptedModel:
    def answer(request: Request) -> Response | str:
        assert isinstance(request, Generate)
        if request.round == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if request.round == len(COMMANDS):
            return "Done."
        call = ToolCall("bash", json.dumps({"command": COMMANDS[request.round]}), f"c{request.round}")
        return Response(request_id="", value="", tool_calls=(call,))

    return ScriptedModel(answer, abilities=frozenset({"generate", "chat", "tools"}), window=1)


def write_sandbox_task(folder: Path) -> Path:
    environment: dict[str, Any] = {
        "class": "sandbox",
        "tools": ["bash"],
        "files": {"start.txt": "one\n"},
        "checks": {
            "all": 'test "$(cat log.txt)" = "$(printf \'one\\ntwo\\nthree\')"',
            "exists": "test -f log.txt",
            "never": "false",
        },
    }
    return write_task(
        folder,
        "files",
        [{"wanted": 1}],
        output_type="agent",
        repeats=1,
        doc_to_text="Write the log.",
        doc_to_target=None,
        environment=environment,
        metric_list=[{"metric": "milestones"}],
    )


def run_task(folder: Path, kill_at: int = -1) -> tuple[Any, ScriptedModel]:
    model = make_model(kill_at)
    task = folder / "files.yaml"
    path = task if task.is_file() else write_sandbox_task(folder)
    return assay.run(model=model, tasks=[str(path)], output_path=str(folder / "runs"), use_cache=None), model


def check_run(run: Any) -> None:
    (end,) = [content for _, _, content in run.journal.read_agent_ends("files")]
    assert end["checks"] == {"all": 1.0, "exists": 1.0, "never": 0.0}, end
    assert run.results["files"]["milestones,none"] == pytest.approx(2 / 3)


def test_commands_change_the_workspace_and_checks_score_it(workspace: Path) -> None:
    run, _ = run_task(workspace)
    assert run.outcomes("files") == {"scored": 1}
    check_run(run)


KILLED = """
import sys
from pathlib import Path
from tests.engine.running.test_sandbox_agents import run_task
run_task(Path(sys.argv[1]), kill_at=2)
"""


def test_a_killed_agent_continues_in_the_restored_workspace(workspace: Path) -> None:
    write_sandbox_task(workspace)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(workspace)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run, model = run_task(workspace)
    assert [request.round for request in model.asked if isinstance(request, Generate)] == [2, 3]
    check_run(run)


def test_an_agent_cannot_avoid_its_score_with_files_that_no_snapshot_holds(workspace: Path) -> None:
    def answer(request: Request) -> Response | str:
        command = json.dumps({"command": "for i in 1 2 3 4 5; do truncate -s 64M f$i; done"})
        return Response(request_id="", value="", tool_calls=(ToolCall("bash", command, "c"),))

    model = ScriptedModel(answer, abilities=frozenset({"generate", "chat", "tools"}))
    run = assay.run(model=model, tasks=[str(write_sandbox_task(workspace))], use_cache=None)
    assert run.outcomes("files") == {"workspace-limit": 1}
    assert run.results["files"]["milestones,none"] == 0.0
