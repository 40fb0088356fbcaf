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
from assay.core.programs import Execution, IsolationReport, Program, ResourceLimits, SandboxError
from assay.sandboxes import make_sandbox

BOXES = ["bubblewrap", "namespaces", "limits", "limits-other-user"]


@dataclass(frozen=True)
class Box:
    """A sandbox with a short way to use it."""

    sandbox: Sandbox
    isolation: IsolationReport

    def run(self, source: str, **bounds: float) -> Execution:
        """Run a program; the test's own bound is well past the sandbox's."""
        limits = ResourceLimits(**{"time_s": 10.0, **bounds})  # type: ignore[arg-type]
        return self.execute(Program(source=source, limits=limits))

    def execute(self, program: Program) -> Execution:
        return asyncio.run(asyncio.wait_for(self.sandbox.execute(program), program.limits.time_s + 20))

    def keeps(self, what: str) -> bool:
        """Whether it claims to isolate something; the tests hold it to that."""
        assert (what in self.isolation.isolated) != (what in self.isolation.not_isolated)
        return what in self.isolation.isolated


def system_python() -> str | None:
    """An interpreter that other users can run, where ours may be in root's own folder."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    return found if found and hasattr(os, "geteuid") and os.geteuid() == 0 else None


@cache
def make_box(name: str) -> Box | str:
    arguments = {}
    if name == "limits-other-user":
        python = system_python()
        if python is None or Path(python).resolve() == Path(sys.executable).resolve():
            return "needs root, and an interpreter of the system"
        name, arguments = "limits", {"python": python}
    sandbox = make_sandbox(name, arguments)
    try:
        return Box(sandbox, asyncio.run(sandbox.inspect()))
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
