"""Inspect a sandbox: run programs that try to escape or to exceed their limits, and report what was blocked."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.core.records.programs import Execution, IsolationReport, Program, ResourceLimits, SandboxError
from assay.sandboxes.launch_spec import link_targets
from assay.sandboxes.probes import ESCAPES, LIMIT_PROBES, PROBE_PROGRAM

__all__ = ["inspect_sandbox"]

_VICTIM = ("sleep", "120")


async def inspect_sandbox(
    name: str,
    execute: Callable[[Program], Awaitable[Execution]],
    *,
    tool: str = "",
    not_isolated: Sequence[str] = (),
    visible: Sequence[str] = (),
) -> IsolationReport:
    """Run the probe programs and report the result.

    `not_isolated` adds what the probes do not test. `visible` are the folders that a program may read.

    Raises:
        SandboxError: The sandbox does not work on this machine.
    """
    blocked = await _find_escapes(name, execute, visible)
    limits = await _find_exceeded_limits(execute)
    return IsolationReport(
        sandbox=name,
        tool=tool,
        isolated=tuple(what for what, escaped in blocked.items() if not escaped),
        limited=tuple(what for what, exceeds in limits.items() if not exceeds),
        not_isolated=(
            *(what for what, escaped in blocked.items() if escaped),
            *(what for what, exceeds in limits.items() if exceeds),
            *not_isolated,
        ),
    )


async def _find_escapes(
    name: str, execute: Callable[[Program], Awaitable[Execution]], visible: Sequence[str]
) -> dict[str, bool]:
    """Return for each kind of escape whether the probe program managed it."""
    outside = Path(tempfile.gettempdir()) / f"assay-{uuid.uuid4().hex}"
    with socket.create_server(("127.0.0.1", 0)) as server, _start_victim() as victim:
        given = {
            "home": str(Path.home()),
            "processes": [(os.getpid(), _read_command()), (victim, "\0".join(_VICTIM))],
            "file": str(outside),
            "port": server.getsockname()[1],
        }
        execution = await execute(
            Program(
                source=PROBE_PROGRAM, stdin=json.dumps(given).encode(), limits=ResourceLimits(time_s=20.0)
            )
        )
    written = outside.exists()
    outside.unlink(missing_ok=True)
    if not execution.succeeded:
        raise SandboxError(
            f"the sandbox `{name}` does not work here: a simple program ended with {execution.exit_reason} "
            f"{execution.exit_code}: {execution.stderr.strip()[-300:]}"
        )
    found: dict[str, Any] = json.loads(execution.stdout)
    found["home"] = _sees_home(found["home"], visible)
    found["write"] = written
    return {what: any(found[attempt] for attempt in attempts) for what, attempts in ESCAPES.items()}


async def _find_exceeded_limits(execute: Callable[[Program], Awaitable[Execution]]) -> dict[str, bool]:
    """Return for each limit whether a program can exceed it. If one cannot be tested, the others are stopped."""
    tasks = {limit: asyncio.ensure_future(_exceeds_limit(execute, limit)) for limit in LIMIT_PROBES}
    try:
        return {limit: await task for limit, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _exceeds_limit(execute: Callable[[Program], Awaitable[Execution]], limit: str) -> bool:
    """Return whether a program can exceed a limit."""
    probe = LIMIT_PROBES[limit]
    done = await execute(Program(source=probe.source, limits=ResourceLimits(**probe.limits)))
    if done.exit_reason in probe.exit_reasons:
        return False
    words = done.stdout.split()
    return not words or probe.most is None or int(words[0]) > probe.most


@contextmanager
def _start_victim() -> Iterator[int]:
    """Start a process of this user for the probe program to attack."""
    none = subprocess.DEVNULL
    with subprocess.Popen(_VICTIM, stdin=none, stdout=none, stderr=none) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _read_command() -> str:
    """Return our command line, which identifies our process among equal process ids in other namespaces."""
    try:
        return Path("/proc/self/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return "\0"


def _sees_home(listed: Any, visible: Sequence[str]) -> bool:
    """Return whether the program sees more of the home folder than the path to the interpreter."""
    if listed is None:
        return False
    home = Path.home()
    try:
        real = {path.name for path in home.iterdir()}
    except OSError:
        real = set()
    if not real:
        return not listed
    below = [Path(path) for path in visible if Path(path).is_relative_to(home) and Path(path) != home]
    expected = {path.relative_to(home).parts[0] for path in below}
    if home == Path("/"):
        expected |= {"box", "dev", "etc", "proc", "tmp", *(link.strip("/") for link in link_targets())}
    return bool(real.intersection(listed) - expected)
