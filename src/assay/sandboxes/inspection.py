"""Inspect a sandbox: run a program that tries to escape, and report what is isolated."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from assay.core.programs import Execution, IsolationReport, Program, ResourceLimits, SandboxError

__all__ = ["inspect_sandbox"]

_ESCAPE_PROGRAM = """
import json, os, socket, sys
given, found = json.load(sys.stdin), {}
def attempt(name, work):
    try:
        found[name] = work()
    except BaseException as problem:
        found[name] = None
def write():
    with open(given["file"], "w") as file:
        file.write("here")
    return True
def environment():
    with open("/proc/%d/environ" % given["pid"], "rb") as file:
        return len(file.read()) > 0
def command():
    with open("/proc/%d/cmdline" % given["pid"], "rb") as file:
        return given["command"] in file.read().decode("utf-8", "replace")
attempt("home", lambda: os.listdir(given["home"]))
attempt("write", write)
attempt("environment", environment)
attempt("see", command)
attempt("signal", lambda: os.kill(given["pid"], 0) is None)
attempt("network", lambda: socket.create_connection(("127.0.0.1", given["port"]), 2).close() is None)
print(json.dumps(found))
"""

_LIMITED = "time, memory, output and file size"


async def inspect_sandbox(
    name: str,
    execute: Callable[[Program], Awaitable[Execution]],
    *,
    isolated: Sequence[str] = (),
    not_isolated: Sequence[str] = (),
    visible: Sequence[str] = (),
) -> IsolationReport:
    """Run the escape program and report the result.

    `isolated` and `not_isolated` add what the program cannot test. `visible` are the folders that it may read.

    Raises:
        SandboxError: The sandbox does not work on this machine.
    """
    outside = Path(tempfile.gettempdir()) / f"assay-{uuid.uuid4().hex}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = {
            "home": str(Path.home()),
            "pid": os.getpid(),
            "command": _own_command(),
            "file": str(outside),
            "port": server.getsockname()[1],
        }
        bounds = ResourceLimits(time_s=20.0)
        execution = await execute(
            Program(source=_ESCAPE_PROGRAM, stdin=json.dumps(given).encode(), limits=bounds)
        )
    written = outside.exists()
    outside.unlink(missing_ok=True)
    if not execution.succeeded:
        raise SandboxError(
            f"the sandbox `{name}` does not work here: a simple program ended with {execution.exit_reason} "
            f"{execution.exit_code}: {execution.stderr.strip()[-300:]}"
        )
    found = json.loads(execution.stdout)
    escapes = {
        "network": bool(found["network"]),
        "files of the home folder": _sees_home(found["home"], visible),
        "writing outside of its folder": written,
        "other processes": bool(found["signal"] and found["see"] is not False),
        "the environment of this process": bool(found["environment"] and found["see"]),
    }
    return IsolationReport(
        sandbox=name,
        isolated=(*(what for what, escaped in escapes.items() if not escaped), *isolated, _LIMITED),
        not_isolated=(*(what for what, escaped in escapes.items() if escaped), *not_isolated),
    )


def _own_command() -> str:
    """Return our command line, which identifies our process among equal process ids in other namespaces."""
    try:
        return Path("/proc/self/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return "\0"


def _sees_home(listed: Any, visible: Sequence[str]) -> bool:
    """Return whether the program sees more of the home folder than the path to the interpreter."""
    if not listed:
        return False
    home = Path.home()
    below = [Path(path) for path in visible if Path(path).is_relative_to(home) and Path(path) != home]
    expected = {path.relative_to(home).parts[0] for path in below}
    return bool(set(listed) - expected)
