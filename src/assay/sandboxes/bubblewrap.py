"""`bubblewrap`: the isolation of `namespaces`, set up by `bwrap`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from assay.core.records.programs import (
    Execution,
    IsolationReport,
    Program,
    ResourceLimits,
    SandboxError,
)
from assay.sandboxes.inspection import inspect_sandbox
from assay.sandboxes.launch_spec import (
    build_launch_spec,
    launcher_arguments,
    link_targets,
    pick_unused_user,
    readable_folders,
)
from assay.sandboxes.process import LaunchRequest, run_launcher

__all__ = ["BubblewrapSandbox", "bubblewrap_command"]


class BubblewrapSandbox:
    """bubblewrap (`bwrap`): no network, no other processes, no files but the interpreter's."""

    name = "bubblewrap"

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    async def inspect(self) -> IsolationReport:
        if shutil.which("bwrap") is None:
            raise SandboxError("`bwrap` is not installed", hint="install the package `bubblewrap`")
        return await inspect_sandbox(
            self.name,
            self.execute,
            tool=_read_version(),
            visible=readable_folders(self._python),
        )

    async def execute(self, program: Program) -> Execution:
        user = pick_unused_user()
        spec = partial(
            build_launch_spec, program, mode="inside", folder="/box", uid=user, interpreter=self._python
        )
        command = bubblewrap_command(program.limits, self._python, root=user is not None)
        return await run_launcher(
            LaunchRequest(
                sandbox=self.name,
                command=(*command, sys.executable, *launcher_arguments()),
                build_spec=lambda descriptors: spec(descriptors=descriptors),
                program=program,
            )
        )


def bubblewrap_command(
    limits: ResourceLimits,
    python: str,
    *,
    root: bool,
    session: bool = False,
    network: bool = False,
    readable: Sequence[str] = (),
) -> list[str]:
    """Return the `bwrap` command. As root it needs no user namespace and can become another user.

    The first process of a `session` may create more namespaces and ends by itself. `network` keeps the network of the machine.
    """
    command = [shutil.which("bwrap") or "bwrap", "--as-pid-1"]
    command += [] if session else ["--die-with-parent"]
    for kind in ("pid", "ipc", "uts", *(() if network else ("net",))):
        command.append(f"--unshare-{kind}")
    if root:
        command += [
            "--cap-drop",
            "ALL",
        ]  # except those that the launcher needs to become and to inspect another user
        for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SYS_PTRACE"):
            command += ["--cap-add", name]
        if session:
            command += ["--cap-add", "CAP_SYS_ADMIN"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        command += ["--disable-userns"] if _supports("--disable-userns") else []
        command += ["--cap-add", "CAP_SYS_ADMIN"] if session else []
    visible = list(dict.fromkeys([*readable_folders(python), *readable_folders(), *readable]))
    for folder in _list_parents(visible):  # `bwrap` would create them without access for other users
        command += [*(["--perms", "0755"] if _supports("--perms") else []), "--dir", folder]
    for path in visible:
        command += ["--ro-bind", path, path]
    for link, target in link_targets().items():
        command += ["--symlink", target, link]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(limits.file_bytes)] if _supports("--size") else []
    command += [*(["--perms", "1777"] if _supports("--perms") else []), "--tmpfs", "/box"]
    if "/tmp" not in (*visible, *_list_parents(visible)):
        command += ["--symlink", "box", "/tmp"]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/box", "--"]


def _list_parents(paths: Sequence[str]) -> list[str]:
    """Return the parent folders of these paths."""
    return sorted({str(folder) for path in paths for folder in Path(path).parents} - {"/"})


def _read_version() -> str:
    """Return the name and version of `bwrap`."""
    done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "bwrap"


@cache
def _supports(option: str) -> bool:
    """Return whether this version of `bwrap` supports an option."""
    help_text = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    return option in help_text.stdout + help_text.stderr
