"""`limits`: resource limits and a seccomp filter, for machines without namespaces."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from assay.core.programs import Execution, IsolationReport, Program, SandboxError
from assay.sandboxes.inspection import inspect_sandbox
from assay.sandboxes.launch_spec import (
    build_launch_spec,
    is_readable_by_all,
    launcher_arguments,
    pick_unused_user,
)
from assay.sandboxes.process import LaunchRequest, run_launcher

__all__ = ["LimitsSandbox", "count_tasks"]


class LimitsSandbox:
    """Limits on time, memory, files and processes, without namespaces. As root, each program has its own user."""

    name = "limits"

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    async def inspect(self) -> IsolationReport:
        _require_posix(self.name)
        if self._user() is not None:
            shared: tuple[str, ...] = ()
        elif os.geteuid() == 0:
            shared = ("root's own files (the interpreter is in a folder that only root can read)",)
        else:
            shared = ("the number of processes of this user, which all programs share",)
        return await inspect_sandbox(
            self.name,
            self.execute,
            isolated=() if shared else ("the number of processes",),
            not_isolated=("files that everybody may read", "the sum of its files", *shared),
        )

    async def execute(self, program: Program) -> Execution:
        user = self._user()
        folder = tempfile.mkdtemp(prefix="assay-program-", dir=_program_parent(user))
        try:
            if user is not None:
                os.chown(folder, user, user)
            spec = partial(
                build_launch_spec,
                program,
                mode="limits",
                folder=folder,
                uid=user,
                own_user=user is not None,
                interpreter=self._python,
                shared_tasks=count_tasks() if user is None else 0,
            )
            return await run_launcher(
                LaunchRequest(
                    sandbox=self.name,
                    command=(sys.executable, *launcher_arguments()),
                    build_spec=lambda pipes: spec(pipes=pipes),
                    program=program,
                )
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _user(self) -> int | None:
        return pick_unused_user() if is_readable_by_all(self._python) else None


def _program_parent(user: int | None) -> str:
    """Return the parent of program folders, which another user must be able to reach."""
    usual = tempfile.gettempdir()
    if user is None:
        return usual
    places = [Path(place) for place in (usual, "/tmp", "/var/tmp") if Path(place).is_dir()]
    reached = (place for place in places if all(way.stat().st_mode & 0o1 for way in (place, *place.parents)))
    return str(next(reached, usual))


def count_tasks() -> int:
    """Count the processes and threads of this user, which all count against the kernel's limit."""
    count, mine = 0, os.getuid()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == mine:
                count += int((folder / "stat").read_text().rpartition(")")[2].split()[17])
        except (OSError, ValueError, IndexError):
            continue
    return count


def _require_posix(name: str) -> None:
    if not hasattr(os, "fork"):
        raise SandboxError(f"the sandbox `{name}` needs a POSIX system", hint="use --sandbox docker")
