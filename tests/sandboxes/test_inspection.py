"""Tests of the inspection of sandboxes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.core.records.programs import Execution, Program, SandboxError
from assay.sandboxes.inspection import inspect_sandbox
from assay.sandboxes.probes import ESCAPES, LIMIT_PROBES, PROBE_PROGRAM


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


BLOCKED: dict[str, Any] = {attempt: None for attempts in ESCAPES.values() for attempt in attempts}


def inspect(found: dict[str, Any], limits: dict[str, Execution] | None = None, **options: Any) -> Any:
    """Inspect a sandbox in which the probe program finds this; without `limits`, every limit works."""

    async def execute(program: Program) -> Execution:
        if program.source == PROBE_PROGRAM:
            if found.get("write"):
                Path(json.loads(program.stdin)["file"]).touch()
            return execution(found)
        limit = next(name for name, probe in LIMIT_PROBES.items() if probe.source == program.source)
        reasons: Any = LIMIT_PROBES[limit].exit_reasons
        kept = Execution(exit_reason=reasons[0] if reasons else "exited", exit_code=0, stdout="0")
        return (limits or {}).get(limit, kept)

    return asyncio.run(inspect_sandbox("x", execute, **options))


def test_everything_blocked_is_isolated() -> None:
    report = inspect(BLOCKED, not_isolated=("a hole",), tool="a tool 1.0")
    assert report.isolated == tuple(ESCAPES)
    assert report.limited == tuple(LIMIT_PROBES)
    assert report.not_isolated == ("a hole",)
    assert str(report).startswith("x (a tool 1.0); blocked: network, ")
    assert str(report).endswith("; NOT BLOCKED: a hole")


@pytest.mark.parametrize(
    ("escape", "attempt"), [(key, one) for key, names in ESCAPES.items() for one in names]
)
def test_an_escape_is_reported_as_open(escape: str, attempt: str) -> None:
    seen = {"home": ["secrets"]} if attempt == "home" else {attempt: True}
    (Path.home() / "secrets").mkdir(parents=True, exist_ok=True)
    report = inspect({**BLOCKED, **seen})
    assert report.not_isolated == (escape,) and escape not in report.isolated


@pytest.mark.parametrize("limit", LIMIT_PROBES)
def test_a_limit_that_can_be_exceeded_is_reported_as_open(limit: str) -> None:
    done = Execution(exit_reason="exited", exit_code=0, stdout=f"{1 << 40}")
    report = inspect(BLOCKED, {limit: done})
    assert report.not_isolated == (limit,) and limit not in report.limited


@pytest.mark.skipif(sys.platform != "linux", reason="attacks Linux")
def test_probe_program_escapes_where_nothing_stops_it() -> None:
    (Path.home() / "secret").mkdir(parents=True, exist_ok=True)

    async def execute(program: Program) -> Execution:
        if program.source != PROBE_PROGRAM:
            return Execution(exit_reason="time", stdout="0")
        done = subprocess.run(
            [sys.executable, "-c", program.source], input=program.stdin, capture_output=True, check=True
        )
        return Execution(exit_reason="exited", exit_code=0, stdout=done.stdout.decode())

    report = asyncio.run(inspect_sandbox("none", execute))
    assert {
        "network",
        "files of the home folder",
        "writing outside of its folder",
        "other processes",
        "the environment of other processes",
    } <= {*report.not_isolated}


def test_path_to_the_interpreter_is_no_escape() -> None:
    (Path.home() / "venv").mkdir(parents=True, exist_ok=True)
    visible = (str(Path.home() / "venv" / "bin"),)
    assert "files of the home folder" in inspect({**BLOCKED, "home": ["venv"]}, visible=visible).isolated


def test_a_sandbox_that_runs_nothing_is_an_error() -> None:
    async def execute(program: Program) -> Execution:
        return execution({}, exit_code=1)

    with pytest.raises(
        SandboxError, match="does not work here: a simple program ended with exited 1: broken"
    ):
        asyncio.run(inspect_sandbox("x", execute))
