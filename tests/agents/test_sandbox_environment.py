"""The environment `sandbox`: files, setup, checks, state and snapshots of one document."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.agents.sandbox_environment import SandboxEnvironment
from assay.agents.tools import EnvironmentContext, SupportsChecks, SupportsSnapshots
from assay.core.errors import TaskError
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
        assert environment.checks() == {"greets": 1.0, "is_long": 0.0}
        state = environment.state()["files"]
        assert state["out/result"] == "hello" and state["a/b.txt"] == "given"
        assert state["big"]["size"] == 5000 and state["out"] == {"kind": "folder"}
        environment.restore(before)
        assert environment.checks() == {"greets": 0.0, "is_long": 0.0}
        assert "out/result" not in environment.state()["files"]
    finally:
        environment.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param({"tool": ["bash"]}, "unknown option `tool`", id="unknown option"),
        pytest.param({"tools": ["bush"]}, "no sandbox tool is called `bush`", id="unknown tool"),
        pytest.param({"limits": {"ram": 1}}, "unknown limit", id="unknown limit"),
        pytest.param({"files": ["a"]}, "`files` must be a mapping", id="files as a list"),
        pytest.param({"setup": "echo broken; exit 4"}, "`setup` failed .exited 4.: broken", id="setup fails"),
    ],
)
def test_mistakes_in_the_task_are_errors(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TaskError, match=problem):
        open_environment(tmp_path, options)
