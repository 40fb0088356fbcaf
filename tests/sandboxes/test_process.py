"""Tests of the launcher process."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from assay.core.records.programs import Program, ResourceLimits, SandboxError
from assay.sandboxes import process
from assay.sandboxes.process import LaunchRequest, run_launcher


def request(source: str, *, pipes: bool = True, limits: ResourceLimits | None = None) -> LaunchRequest:
    """A launcher that runs `source` with the descriptors of its pipes in `status` and `control`."""
    code = "import json, os, sys\nstatus, control, _ = json.loads(sys.stdin.read())\n" + source
    return LaunchRequest(
        sandbox="x",
        command=(sys.executable, "-c", code),
        build_spec=lambda descriptors: json.dumps(descriptors).encode(),
        program=Program(source="pass", limits=limits or ResourceLimits()),
        pipes=pipes,
    )


def report(text: str) -> str:
    return f"os.write(status, {text.encode()!r})\n"


def test_launcher_without_report_or_command_is_a_sandbox_error() -> None:
    launch = LaunchRequest(
        sandbox="x", command=("true",), build_spec=lambda pipes: b"{}", program=Program(source="pass")
    )
    with pytest.raises(SandboxError, match="exited without a report"):
        asyncio.run(run_launcher(launch))
    launch = LaunchRequest(
        sandbox="x",
        command=("no-such-command",),
        build_spec=lambda pipes: b"",
        program=Program(source="pass"),
    )
    with pytest.raises(SandboxError, match="cannot start `no-such-command`"):
        asyncio.run(run_launcher(launch))


@pytest.mark.parametrize(
    ("text", "reason", "code", "number"),
    [
        ('{"exit": 3}\n', "exited", 3, None),
        ('{"signal": 9}\n', "signal", None, 9),
        ('{"signal": 24}\n', "time", None, 24),
        ('{"ended": "memory"}\n', "memory", None, None),
        ('{"ended": "processes"}\n', "processes", None, None),
        ('{"ended": "time"}\n', "time", None, None),
    ],
)
def test_reports_of_the_launcher(text: str, reason: str, code: int | None, number: int | None) -> None:
    done = asyncio.run(run_launcher(request(report(text))))
    assert (done.exit_reason, done.exit_code, done.signal) == (reason, code, number)


def test_refusal_of_the_kernel_is_a_sandbox_error() -> None:
    with pytest.raises(SandboxError, match="unshare: not permitted"):
        asyncio.run(run_launcher(request(report('{"refused": "unshare: not permitted"}\n'))))


def test_output_above_the_limit_stops_the_launcher() -> None:
    source = (
        report('{"started": true}\n')
        + "sys.stdout.write('x' * 100)\nsys.stdout.flush()\nos.read(control, 1)\n"
    )
    done = asyncio.run(run_launcher(request(source, limits=ResourceLimits(output_bytes=10))))
    assert (done.exit_reason, done.stdout) == ("output", "x" * 10)


def test_a_cancelled_start_leaves_no_process_that_holds_the_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process is killed before it could pass the signal on to its children."""
    start = process._start

    async def start_with_child(*arguments: Any) -> asyncio.subprocess.Process:
        started = await start(*arguments)
        assert started.stdout is not None
        assert await started.stdout.readline() == b"ready\n"
        return started

    monkeypatch.setattr(process, "_start", start_with_child)
    launch = LaunchRequest(
        sandbox="x",
        command=("sh", "-c", "sleep 60 & echo ready; wait"),
        build_spec=lambda descriptors: b"",
        program=Program(source="pass"),
    )

    async def cancel() -> None:
        task = asyncio.create_task(run_launcher(launch))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)

    asyncio.run(cancel())


@pytest.mark.parametrize(("status", "reason", "code"), [("5", "exited", 5), ("137", "signal", None)])
def test_exit_code_counts_without_pipes(status: str, reason: str, code: int | None) -> None:
    done = asyncio.run(run_launcher(request(f"sys.exit({status})", pipes=False)))
    assert (done.exit_reason, done.exit_code) == (reason, code)


def test_memory_error_on_standard_error_means_memory() -> None:
    source = report('{"exit": 1}\n') + "sys.stderr.write('Traceback\\nMemoryError: no\\n')\n"
    assert asyncio.run(run_launcher(request(source))).exit_reason == "memory"
