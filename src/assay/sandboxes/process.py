"""One launcher process: started, fed its order, read up to a bound, ended in time."""

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

from assay.core.programs import Execution, ExitReason, Program, SandboxError

__all__ = ["LaunchRequest", "run_launcher"]

_GRACE_S = 3.0
"""For starting, and for cleaning up: the launcher keeps the program's time itself, this is for when it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """How to start a launcher."""

    sandbox: str
    command: Sequence[str]
    order: Callable[[tuple[int, int]], bytes]
    """The launcher's message, given the numbers of its pipes."""

    program: Program
    pipes: bool = True
    """It can have two pipes to us: one to say what happened, one whose end tells it to end."""

    start_s: float = 10.0
    """Seconds it may take until the program starts."""


class _Reader:
    """Keeps the first bytes of a stream, and says when there are more."""

    def __init__(self, stream: asyncio.StreamReader, most: int, full: Callable[[], None]) -> None:
        self._stream, self._most, self._full = stream, most, full
        self.kept = bytearray()

    async def read(self) -> None:
        while piece := await self._stream.read(1 << 16):
            self.kept += piece[: self._most + 1 - len(self.kept)]
            if len(self.kept) > self._most:
                self._full()

    @property
    def text(self) -> str:
        return bytes(self.kept[: self._most]).decode("utf-8", "replace")


class _Pipes:
    """The launcher's word to us, and our hold on it. Without them, both numbers are -1."""

    def __init__(self, wanted: bool) -> None:
        self.status, self.told = os.pipe() if wanted else (-1, -1)
        self.control, self.hold = os.pipe() if wanted else (-1, -1)

    @property
    def theirs(self) -> tuple[int, int]:
        return self.told, self.control

    def close_theirs(self) -> None:
        self._close("told", "control")

    def release(self) -> None:
        """Let go: the launcher ends the program and everything it started."""
        self._close("hold")

    def read(self) -> dict[str, Any]:
        """What the launcher said, the last word on each matter."""
        if self.status < 0:
            return {}
        os.set_blocking(self.status, False)
        try:
            lines = os.read(self.status, 1 << 16).splitlines()
            return {key: value for line in lines for key, value in json.loads(line).items()}
        except (OSError, ValueError):
            return {}

    def close(self) -> None:
        self._close("status", "told", "control", "hold")

    def _close(self, *names: str) -> None:
        for name in names:
            number = getattr(self, name)
            setattr(self, name, -1)
            if number >= 0:
                os.close(number)


async def run_launcher(how: LaunchRequest) -> Execution:
    """Run a program through its launcher.

    Raises:
        SandboxError: It did not come to running the program.
    """
    pipes = _Pipes(how.pipes)
    try:
        return await _run(how, pipes)
    except OSError as problem:
        raise SandboxError(f"`{how.command[0]}` cannot be started: {problem}") from None
    finally:
        pipes.close()


async def _run(how: LaunchRequest, pipes: _Pipes) -> Execution:
    started = time.monotonic()
    process = await _started(how, pipes)
    order = how.order(pipes.theirs)
    pipes.close_theirs()
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    over: list[str] = []

    def end(reason: str) -> None:
        if not over:
            over.append(reason)
            _stop(process, pipes)

    most = how.program.limits.output_bytes
    out = _Reader(process.stdout, most, lambda: end("output"))
    err = _Reader(process.stderr, most, lambda: end("output"))
    readers = [asyncio.create_task(out.read()), asyncio.create_task(err.read())]
    try:
        process.stdin.write(order)
        with suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.drain()
        process.stdin.close()
        await _wait(process, how, end)
    finally:
        process.stdin.close()
        if process.returncode is None:  # cancelled: nothing may go on without us
            _stop(process, pipes)
            await _reap(process)
        await _finish(readers)
    seconds = time.monotonic() - started
    return _execution(how, pipes.read(), over, process.returncode, (out.text, err.text), seconds)


async def _started(how: LaunchRequest, pipes: _Pipes) -> asyncio.subprocess.Process:
    """A process that is half started cannot be stopped: whoever cancels waits until it is there."""
    starting = asyncio.ensure_future(_start(how, pipes))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        process.kill()
        await process.communicate()
        raise


async def _start(how: LaunchRequest, pipes: _Pipes) -> asyncio.subprocess.Process:
    path = os.defpath if how.pipes else os.environ.get("PATH", os.defpath)
    return await asyncio.create_subprocess_exec(
        *how.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=[number for number in pipes.theirs if number >= 0],
        cwd="/",
        env={"PATH": path},
        start_new_session=True,
    )


async def _wait(process: asyncio.subprocess.Process, how: LaunchRequest, end: Callable[[str], None]) -> None:
    try:
        await asyncio.wait_for(process.wait(), how.program.limits.time_s + how.start_s)
    except TimeoutError:
        end("time")
        await _reap(process)


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that was told to end; insist after a while."""
    try:
        await asyncio.wait_for(process.wait(), _GRACE_S)
    except TimeoutError:
        with suppress(ProcessLookupError, PermissionError):
            process.terminate()
            await asyncio.sleep(0.1)
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _stop(process: asyncio.subprocess.Process, pipes: _Pipes) -> None:
    if pipes.hold >= 0:
        pipes.release()
    else:
        with suppress(ProcessLookupError):
            process.terminate()


async def _finish(readers: Sequence[asyncio.Task[None]]) -> None:
    """The last output. Nobody should hold the pipes any more; if somebody does, we do not wait for it."""
    _, late = await asyncio.wait(readers, timeout=1.0)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


def _execution(
    how: LaunchRequest,
    fact: dict[str, Any],
    over: Sequence[str],
    code: int | None,
    output: tuple[str, str],
    seconds: float,
) -> Execution:
    if "refused" in fact:
        raise SandboxError(f"the sandbox `{how.sandbox}` does not work here: {fact['refused']}")
    ending, exit_code, ended_by = _ending(fact, over, code, how)
    if ending == "exited" and exit_code and output[1].rstrip().rpartition("\n")[2].startswith("MemoryError"):
        ending = "memory"
    if how.pipes and not fact and not over:
        raise SandboxError(f"the sandbox `{how.sandbox}` ended without a word ({code}): {output[1][-500:]}")
    return Execution(
        exit_reason=ending,
        exit_code=exit_code if ending == "exited" else None,
        signal=ended_by,
        stdout=output[0],
        stderr=output[1],
        seconds=seconds,
        sandbox=how.sandbox,
    )


def _ending(
    fact: dict[str, Any], over: Sequence[str], code: int | None, how: LaunchRequest
) -> tuple[ExitReason, int | None, int | None]:
    """What ended it: what we did comes first, then what the launcher saw."""
    if "output" in over:
        return "output", None, None
    if "exit" in fact:
        return "exited", int(fact["exit"]), None
    if "signal" in fact:
        number = int(fact["signal"])
        return ("time" if number == signal.SIGXCPU else "signal"), None, number
    if "time" in over or fact.get("ended") == "time":
        return "time", None, None
    if fact.get("ended") in ("memory", "processes"):
        return fact["ended"], None, None
    if not how.pipes and code is not None and code > 128:
        return "signal", None, code - 128
    return ("exited", code, None) if code is None or code >= 0 else ("signal", None, -code)
