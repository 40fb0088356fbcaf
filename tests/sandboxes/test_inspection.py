"""Tests of the inspection of sandboxes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from assay.core.programs import Execution, Program, SandboxError
from assay.sandboxes.inspection import inspect_sandbox


def execution(found: dict[str, Any], exit_code: int = 0) -> Execution:
    return Execution(
        exit_reason="exited",
        exit_code=exit_code,
        signal=None,
        stdout=json.dumps(found),
        stderr="broken",
        seconds=0.1,
        sandbox="x",
    )


BLOCKED = dict.fromkeys(("network", "home", "environment", "see", "signal", "write"))


def inspect(found: dict[str, Any], **options: Any) -> Any:
    async def execute(program: Program) -> Execution:
        if found.get("write"):
            Path(json.loads(program.stdin)["file"]).touch()
        return execution(found)

    return asyncio.run(inspect_sandbox("x", execute, **options))


def test_everything_blocked_is_isolated() -> None:
    report = inspect(BLOCKED, isolated=("the number of processes",), not_isolated=("a hole",))
    assert "network" in report.isolated and "the number of processes" in report.isolated
    assert report.not_isolated == ("a hole",)


@pytest.mark.parametrize(
    ("found", "escape"),
    [
        ({"network": True}, "network"),
        ({"home": ["secrets"]}, "files of the home folder"),
        ({"write": True}, "writing outside of its folder"),
        ({"signal": True, "see": True}, "other processes"),
        ({"environment": True, "see": True}, "the environment of this process"),
    ],
)
def test_an_escape_is_reported_as_open(found: dict[str, Any], escape: str) -> None:
    report = inspect({**BLOCKED, **found})
    assert escape in report.not_isolated and escape not in report.isolated


def test_path_to_the_interpreter_is_no_escape() -> None:
    visible = (str(Path.home() / "venv" / "bin"),)
    assert "files of the home folder" in inspect({**BLOCKED, "home": ["venv"]}, visible=visible).isolated


def test_a_sandbox_that_runs_nothing_is_an_error() -> None:
    async def execute(program: Program) -> Execution:
        return execution({}, exit_code=1)

    with pytest.raises(
        SandboxError, match="does not work here: a simple program ended with exited 1: broken"
    ):
        asyncio.run(inspect_sandbox("x", execute))
