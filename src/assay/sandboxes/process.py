"""Run one launcher process: start it, send the launch specification, read limited output, enforce the time limit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from assay.core.records.programs import Execution, ExitReason, Program, SandboxError
from assay.sandboxes.cgroups import Cgroup, create_cgroup
from assay.sandboxes.launch_spec import Descriptors

__all__ = ["LaunchRequest", "run_launcher"]

_GRACE_S = 3.0
"""Time for the launcher to clean up before it is killed. The launcher enforces the program's time limit itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """How to start a launcher process."""

    sandbox: str
    command: Sequence[str]
    build_spec: Callable[[Descriptors], bytes]
    """Builds the launch specification from the descriptors that the launcher inherits."""

    program: Program
    pipes: bool = True
    """Whether the launcher can have a status pipe and a control pipe. Closing the control pipe stops it."""

    start_s: float = 10.0
    """Time limit for starting the program."""


class _Reader:
    """Keeps the first bytes of a stream and calls back when there are more."""

    def __init__(self, stream: asyncio.StreamReader, limit: int, on_limit: Callable[[], None]) -> None:
        self._stream, self._limit, self._on_limit = stream, limit, on_limit
        self.kept = bytearray()

    async def read(self) -> None:
        while piece := await self._stream.read(1 << 16):
            self.kept += piece[: self._limit + 1 - len(self.kept)]
            if len(self.kept) > self._limit:
                self._on_limit()

    @property
    def text(self) -> str:
        return bytes(self.kept[: self._limit]).decode("utf-8", "replace")


class _Pipes:
    """The status pipe, the control pipe and the cgroup of a launcher. Descriptors are -1 without pipes."""

    def __init__(self, request: LaunchRequest) -> None:
        self.status, self.status_writer = os.pipe() if request.pipes else (-1, -1)
        self.control, self.control_writer = os.pipe() if request.pipes else (-1, -1)
        self.cgroup: Cgroup | None = create_cgroup(request.program.limits) if request.pipes else None

    @property
    def launcher_ends(self) -> Descriptors:
        return Descriptors(self.status_writer, self.control, self.cgroup.procs if self.cgroup else -1)

    def close_launcher_ends(self) -> None:
        self._close("status_writer", "control")

    def release(self) -> None:
        """Close the control pipe: the launcher kills the program and all its processes."""
        self._close("control_writer")

    def read(self) -> dict[str, Any]:
        """Return the reports of the launcher merged, later values last."""
        if self.status < 0:
            return {}
        os.set_blocking(self.status, False)
        try:
            lines = os.read(self.status, 1 << 16).splitlines()
            report = {key: value for line in lines for key, value in json.loads(line).items()}
        except (OSError, ValueError):
            return {}
        if "signal" in report and self.cgroup is not None and self.cgroup.ran_out_of_memory:
            return {"ended": "memory"}
        return report

    def close(self) -> None:
        self._close("status", "status_writer", "control", "control_writer")
        if self.cgroup is not None:
            self.cgroup.remove()

    def _close(self, *names: str) -> None:
        for name in names:
            number = getattr(self, name)
            setattr(self, name, -1)
            if number >= 0:
                os.close(number)


async def run_launcher(request: LaunchRequest) -> Execution:
    """Run a program through its launcher.

    Raises:
        SandboxError: The program did not start.
    """
    pipes = _Pipes(request)
    try:
        return await _run(request, pipes)
    except OSError as problem:
        raise SandboxError(f"cannot start `{request.command[0]}`: {problem}") from None
    finally:
        pipes.close()


async def _run(request: LaunchRequest, pipes: _Pipes) -> Execution:
    started = time.monotonic()
    process = await _start_shielded(request, pipes)
    spec = request.build_spec(pipes.launcher_ends)
    pipes.close_launcher_ends()
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    stop_reasons: list[str] = []

    def end(reason: str) -> None:
        if not stop_reasons:
            stop_reasons.append(reason)
            _stop(process, pipes)

    limit = request.program.limits.output_bytes
    out = _Reader(process.stdout, limit, lambda: end("output"))
    err = _Reader(process.stderr, limit, lambda: end("output"))
    readers = [asyncio.create_task(out.read()), asyncio.create_task(err.read())]
    try:
        process.stdin.write(spec)
        with suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.drain()
        process.stdin.close()
        await _wait(process, request, end)
    finally:
        process.stdin.close()
        if process.returncode is None:  # cancelled: stop the program
            _stop(process, pipes)
            await _reap(process)
        await _finish(readers)
    seconds = time.monotonic() - started
    return _execution(request, pipes.read(), stop_reasons, process.returncode, (out.text, err.text), seconds)


async def _start_shielded(request: LaunchRequest, pipes: _Pipes) -> asyncio.subprocess.Process:
    """Start the launcher. A cancellation waits for the start, because a process cannot be stopped before."""
    starting = asyncio.ensure_future(_start(request, pipes))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        assert process.stdin is not None
        process.stdin.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its children too: they hold the same pipes
        await process.communicate()
        raise


async def _start(request: LaunchRequest, pipes: _Pipes) -> asyncio.subprocess.Process:
    path = os.defpath if request.pipes else os.environ.get("PATH", os.defpath)
    return await asyncio.create_subprocess_exec(
        *request.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=[number for number in pipes.launcher_ends if number >= 0],
        cwd="/",
        env={"PATH": path},
        start_new_session=True,
    )


async def _wait(
    process: asyncio.subprocess.Process, request: LaunchRequest, end: Callable[[str], None]
) -> None:
    try:
        await asyncio.wait_for(process.wait(), request.program.limits.time_s + request.start_s)
    except TimeoutError:
        end("time")
        await _reap(process)


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for a process to exit, and kill it after a grace period."""
    try:
        await asyncio.wait_for(process.wait(), _GRACE_S)
    except TimeoutError:
        with suppress(ProcessLookupError, PermissionError):
            process.terminate()
            await asyncio.sleep(0.1)
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _stop(process: asyncio.subprocess.Process, pipes: _Pipes) -> None:
    if pipes.control_writer >= 0:
        pipes.release()
    else:
        with suppress(ProcessLookupError):
            process.terminate()


async def _finish(readers: Sequence[asyncio.Task[None]]) -> None:
    """Read the last output, and stop waiting if a process still holds the pipes."""
    _, late = await asyncio.wait(readers, timeout=1.0)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


def _execution(
    request: LaunchRequest,
    report: dict[str, Any],
    stop_reasons: Sequence[str],
    code: int | None,
    output: tuple[str, str],
    seconds: float,
) -> Execution:
    if "refused" in report:
        raise SandboxError(f"the sandbox `{request.sandbox}` does not work here: {report['refused']}")
    ending, exit_code, ended_by = _ending(report, stop_reasons, code, request)
    if ending == "exited" and exit_code and output[1].rstrip().rpartition("\n")[2].startswith("MemoryError"):
        ending = "memory"
    if request.pipes and not report and not stop_reasons:
        raise SandboxError(
            f"the sandbox `{request.sandbox}` exited without a report ({code}): {output[1][-500:]}"
        )
    return Execution(
        exit_reason=ending,
        exit_code=exit_code if ending == "exited" else None,
        signal=ended_by,
        stdout=output[0],
        stderr=output[1],
        seconds=seconds,
        sandbox=request.sandbox,
    )


def _ending(
    report: dict[str, Any], stop_reasons: Sequence[str], code: int | None, request: LaunchRequest
) -> tuple[ExitReason, int | None, int | None]:
    """Return why the program ended: our own reasons first, then the reports of the launcher."""
    if "output" in stop_reasons:
        return "output", None, None
    if "exit" in report:
        return "exited", int(report["exit"]), None
    if "signal" in report:
        number = int(report["signal"])
        return ("time" if number == signal.SIGXCPU else "signal"), None, number
    if "time" in stop_reasons or report.get("ended") == "time":
        return "time", None, None
    if report.get("ended") in ("memory", "processes"):
        return report["ended"], None, None
    if not request.pipes and code is not None and code > 128:
        return "signal", None, code - 128
    return ("exited", code, None) if code is None or code >= 0 else ("signal", None, -code)
