"""The sandbox `limits`: resource limits, Landlock and a seccomp filter, for machines without namespaces.

The limits themselves are `ResourceLimits` in `core/records/programs.py`; the launcher of every sandbox enforces them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from assay.core.records.programs import Execution, IsolationReport, Program, SandboxError
from assay.sandboxes.inspection import inspect_sandbox
from assay.sandboxes.launch_spec import (
    build_launch_spec,
    is_readable_by_all,
    launcher_arguments,
    pick_unused_user,
    readable_folders,
)
from assay.sandboxes.process import LaunchRequest, run_launcher

__all__ = ["LimitsSandbox", "count_tasks", "hide_memory", "landlock_version", "remove_user_files"]

_SIGNAL_SCOPE_VERSION = 6
"""The first version of Landlock that stops signals to other processes."""

_PR_SET_DUMPABLE = 4
_SHARED_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp")


class LimitsSandbox:
    """Resource limits, Landlock and seccomp without namespaces. As root, each program has its own user."""

    name = "limits"

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    async def inspect(self) -> IsolationReport:
        if not hasattr(os, "fork"):
            raise SandboxError(f"the sandbox `{self.name}` needs a POSIX system", hint="use --sandbox docker")
        self._pick_user()
        return await inspect_sandbox(
            self.name,
            self.execute,
            tool=f"Landlock {landlock_version()}, seccomp" if landlock_version() else "seccomp",
            not_isolated=("the namespaces of this machine (it has none of its own)",),
            visible=readable_folders(self._python),
        )

    async def execute(self, program: Program) -> Execution:
        user = self._pick_user()
        folder = tempfile.mkdtemp(prefix="assay-program-", dir=_program_parent(user))
        if user is None and not landlock_version():
            hide_memory()
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
                readable=readable_folders(self._python),
                landlock=landlock_version() > 0,
                signals=user is not None or landlock_version() >= _SIGNAL_SCOPE_VERSION,
                shared_tasks=count_tasks() if user is None else 0,
            )
            return await run_launcher(
                LaunchRequest(
                    sandbox=self.name,
                    command=(sys.executable, *launcher_arguments()),
                    build_spec=lambda descriptors: spec(descriptors=descriptors),
                    program=program,
                )
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if user is not None:
                remove_user_files(user)

    def _pick_user(self) -> int | None:
        """Return the user of a program, or None for our own.

        Raises:
            SandboxError: We are root, and another user cannot run the interpreter.
        """
        user = pick_unused_user()
        if user is not None and not is_readable_by_all(self._python):
            raise SandboxError(
                f"only root can read the interpreter `{self._python}`, so programs would run as root",
                hint="--sandbox_args python=/usr/bin/python3 selects another interpreter",
            )
        return user


@cache
def landlock_version() -> int:
    """Return the version of Landlock in this kernel, or 0."""
    if sys.platform != "linux":
        return 0
    library = ctypes.CDLL(None)
    return max(0, int(library.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


@cache
def hide_memory() -> None:
    """Make this process's memory and environment unreadable for programs of the same user."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)


def remove_user_files(user: int, folders: tuple[str, ...] = _SHARED_FOLDERS) -> None:
    """Remove what a user without other files left in the folders that every user may write to."""
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid != user:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        Path(entry.path).unlink()


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
