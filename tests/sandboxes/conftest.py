"""Every sandbox that works on this machine; one that does not is skipped with its reason."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from assay.core.ports import Sandbox
from assay.core.records.programs import Execution, IsolationReport, Program, ResourceLimits, SandboxError
from assay.sandboxes import make_sandbox


def system_python() -> str | None:
    """An interpreter that other users can run, where ours may be in root's own folder."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    return found if found and hasattr(os, "geteuid") and os.geteuid() == 0 else None


def choose_limits_sandbox() -> str:
    """Root runs programs as another user, which needs an interpreter that this user can read."""
    python = system_python()
    has_other = python is not None and Path(python).resolve() != Path(sys.executable).resolve()
    return "limits-other-user" if has_other else "limits"


BOXES = ["bubblewrap", "namespaces", choose_limits_sandbox()]


@dataclass(frozen=True)
class Box:
    """A sandbox with a short way to use it."""

    sandbox: Sandbox
    isolation: IsolationReport
    arguments: dict[str, str]

    def run(self, source: str, **bounds: float) -> Execution:
        """Run a program; the test's own bound is well past the sandbox's."""
        limits = ResourceLimits(**{"time_s": 10.0, **bounds})  # type: ignore[arg-type]
        return self.execute(Program(source=source, limits=limits))

    def execute(self, program: Program) -> Execution:
        return asyncio.run(asyncio.wait_for(self.sandbox.execute(program), program.limits.time_s + 20))

    def keeps(self, what: str) -> bool:
        """Whether it claims to block or limit something; the tests hold it to that."""
        claimed = {*self.isolation.isolated, *self.isolation.limited}
        assert (what in claimed) != (what in self.isolation.not_isolated)
        return what in claimed


@cache
def make_box(name: str) -> Box | str:
    arguments: dict[str, str] = {}
    if name == "limits-other-user":
        name, arguments = "limits", {"python": system_python() or sys.executable}
    sandbox = make_sandbox(name, arguments)
    try:
        return Box(sandbox, asyncio.run(sandbox.inspect()), arguments)
    except SandboxError as reason:
        return str(reason)


@pytest.fixture(params=BOXES)
def box(request: pytest.FixtureRequest) -> Box:
    made = make_box(request.param)
    if isinstance(made, str):
        pytest.skip(made)
    return made


@pytest.fixture
def alive() -> Callable[[str], list[str]]:
    """The processes whose command contains a word."""

    def look(word: str) -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if word in path.read_bytes().decode("utf-8", "replace") and path.parent.name != str(
                    os.getpid()
                ):
                    found.append(path.parent.name)
            except OSError:
                continue
        return found

    return look
