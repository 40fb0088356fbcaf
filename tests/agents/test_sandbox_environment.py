"""The environment `sandbox`: files, setup, checks, state and snapshots of one document."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task

import assay
from assay.agents.sandbox_environment import CheckError, SandboxEnvironment
from assay.agents.tools import CheckReport, EnvironmentContext, SupportsChecks, SupportsSnapshots
from assay.core.errors import AssayError, ErrorGroup, TaskError
from assay.core.records.programs import SandboxError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandbox sessions need Linux")


def open_environment(
    folder: Path, options: dict[str, Any], document: dict[str, Any] | None = None
) -> SandboxEnvironment:
    context = EnvironmentContext(
        document=document or {}, repeat=0, seed=1, folder=folder / "environment", options=options
    )
    try:
        return SandboxEnvironment(context)
    except SandboxError as problem:
        pytest.skip(problem.what)


def read_scores(environment: SandboxEnvironment) -> dict[str, float]:
    return {name: report.score for name, report in environment.checks().items()}


def test_a_document_from_its_files_to_its_checks(tmp_path: Path) -> None:
    options = {
        "files": {"readme.txt": "hello"},
        "setup": "mkdir -p out && head -c 5000 /dev/zero > big",
        "checks": {"greets": "grep -q hello out/result", "is_long": "test $(wc -c < out/result) -gt 100"},
        "tools": ["bash"],
    }
    environment = open_environment(tmp_path, options, {"files": {"a/b.txt": "given"}})
    try:
        assert isinstance(environment, SupportsSnapshots) and isinstance(environment, SupportsChecks)
        (bash,) = environment.tools()
        before = environment.snapshot()
        bash.call({"command": "cat readme.txt > out/result"}, environment)
        assert read_scores(environment) == {"greets": 1.0, "is_long": 0.0}
        state = environment.state()["files"]
        assert state["out/result"] == "hello" and state["a/b.txt"] == "given"
        assert state["big"]["size"] == 5000 and state["out"] == {"kind": "folder"}
        environment.restore(before)
        assert read_scores(environment) == {"greets": 0.0, "is_long": 0.0}
        assert "out/result" not in environment.state()["files"]
    finally:
        environment.close()


def test_the_state_covers_files_that_it_does_not_list(tmp_path: Path) -> None:
    environment = open_environment(tmp_path, {"setup": "touch f{000..250}", "tools": ["bash"]})
    try:
        (bash,) = environment.tools()
        first = environment.state()
        assert first["more_files"] == 51 and environment.state() == first
        bash.call({"command": "echo changed > f249"}, environment)
        assert environment.state() != first
    finally:
        environment.close()


def test_checks_say_why_they_failed_and_run_with_their_own_files(tmp_path: Path) -> None:
    options = {
        "limits": {"time_s": 1.0},
        "files": {"tests/test.sh": "exit 1", "answer": "exit 127"},
        "check_files": {"tests/test.sh": "echo from the task; exit 3"},
        "checks": {
            "tests": "bash tests/test.sh",
            "slow": "sleep 60",
            "absent": "./never_written",
            "agent": "bash answer",
            "good": "true",
        },
        "tools": ["bash"],
    }
    environment = open_environment(tmp_path, options)
    try:
        (bash,) = environment.tools()
        bash.call({"command": "rm tests/test.sh && mkfifo tests/test.sh"}, environment)
        reports = environment.checks()
        scores = {name: report.score for name, report in reports.items()}
        assert scores == {"tests": 0.0, "slow": 0.0, "absent": 0.0, "agent": 0.0, "good": 1.0}
        assert reports["tests"] == CheckReport(0.0, "exit code 3", "from the task\n")
        assert reports["slow"].reason == "time limit of 1 s"
        assert reports["absent"].reason == "exit code 127" and "never_written" in reports["absent"].output
        assert reports["agent"].reason == "exit code 127" and reports["good"] == CheckReport(1.0)
        bash.call({"command": "rm -r tests && touch tests"}, environment)
        good = environment.checks()["good"]
        assert good.score == 0.0 and "tests/test.sh" in good.reason
    finally:
        environment.close()


def test_a_check_whose_program_is_not_installed_is_no_score(tmp_path: Path) -> None:
    environment = open_environment(tmp_path, {"checks": {"tests": "cd . && pytst -q"}, "tools": []})
    try:
        with pytest.raises(CheckError, match="the check `tests` needs `pytst`"):
            environment.checks()
    finally:
        environment.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param({"tool": ["bash"]}, "unknown option `tool`", id="unknown option"),
        pytest.param({"tools": ["bush"]}, "no sandbox tool is called `bush`", id="unknown tool"),
        pytest.param({"tools": "bash"}, "`tools` must be a list", id="tools as a text"),
        pytest.param({"sandbox": "docker"}, "the sandbox `docker` has no sessions", id="unknown sandbox"),
        pytest.param({"limits": {"ram": 1}}, "unknown limit `ram`", id="unknown limit"),
        pytest.param({"limits": {"time_s": "x"}}, "`time_s` must be a number", id="limit as a text"),
        pytest.param({"files": ["a"]}, "`files` must be a mapping", id="files as a list"),
        pytest.param({"check_files": {"../a": ""}}, "not a path in the workspace", id="outside"),
        pytest.param({"setup": "echo broken; exit 4"}, "`setup` failed .exited 4.: broken", id="setup fails"),
    ],
)
def test_mistakes_in_the_task_are_errors(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TaskError, match=problem):
        open_environment(tmp_path, options)


def test_mistakes_in_the_options_are_errors_of_the_plan(workspace: Path) -> None:
    environment = {"class": "sandbox", "tols": ["bash"], "mcp": {"a": {"comand": ["x"]}}}
    task = write_task(workspace, output_type="agent", environment=environment)
    with pytest.raises(AssayError) as caught:
        assay.plan(model="dummy", tasks=[str(task)])
    assert isinstance(caught.value, ErrorGroup)
    option, entry = caught.value.errors
    assert option.hint == "did you mean `tools`?" and "unknown entry `comand`" in entry.what
    assert "sums.yaml:" in option.where and option.where.endswith(", environment.tols")
    assert "sums.yaml:" in entry.where and entry.where.endswith(", environment.mcp.a")
