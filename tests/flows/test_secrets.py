"""API keys never appear in files, logs or output: on success, when the service echoes them, and in a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.making import write_task
from tests.models.hosted.services import KEY, OpenAIBatches, Reply, serving

_CRASH = """
import sys
from assay.models.remote.endpoint import Endpoint

async def post(self, *arguments, **keywords):
    raise RuntimeError("unexpected: Authorization: Bearer KEY")

Endpoint.post = post
from assay.cli import main
main(sys.argv[1:])
"""


class EchoingService(OpenAIBatches):
    """A service that echoes the key in its replies."""

    status = 200

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        if self.status != 200 and path.endswith("/completions"):
            said = f"you sent {headers.get('authorization')} and that is {KEY}"
            return self.status, {"x-echo": KEY}, {"error": {"message": said, "code": KEY}}
        return super().reply(method, path, headers, body)


@pytest.fixture
def service() -> Iterator[EchoingService]:
    with serving(EchoingService()) as running:
        yield running


def command(workspace: Path, service: Any, *words: str, code: str = "") -> list[str]:
    write_task(workspace / "tasks")
    arguments = (
        f"model=some-model,base_url={service.url}/v1,max_retries=1,retry_backoff_s=0.01,total_timeout=20"
    )
    task = ["--tasks", "sums", "--include_path", "tasks", "--output_path", "out", "--apply_chat_template"]
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "assay"]
    return [
        *start,
        "run",
        "--model",
        "openai",
        "--model_args",
        arguments,
        *task,
        "--verbosity",
        "DEBUG",
        *words,
    ]


def call(workspace: Path, words: list[str]) -> tuple[int, bytes]:
    done = subprocess.run(
        words,
        cwd=workspace,
        env={**os.environ, "OPENAI_API_KEY": KEY, "ASSAY_HOME": str(workspace / "home")},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def assert_nowhere(workspace: Path, output: bytes) -> None:
    """Check that no file and no output contains the key."""
    assert KEY.encode() not in output, output[-2000:]
    files = [file for file in workspace.rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert KEY.encode() not in file.read_bytes(), file


def test_a_run_that_succeeds_leaves_no_key(workspace: Path, service: EchoingService) -> None:
    code, output = call(workspace, command(workspace, service))
    assert code == 0, output
    for words in (
        ["runs", "show", "latest", "--in", "out"],
        ["export", "latest", "--in", "out", "--format", "jsonl"],
    ):
        code, shown = call(workspace, [sys.executable, "-m", "assay", *words])
        output += shown
    assert list((workspace / "out").rglob("results_*.json"))
    assert service.asked("/v1/chat/completions"), "the server was never called"
    assert_nowhere(workspace, output)


@pytest.mark.parametrize("status", [401, 400, 500])
def test_a_service_that_echoes_the_key_leaves_none(
    workspace: Path, service: EchoingService, status: int
) -> None:
    service.status = status
    code, output = call(workspace, command(workspace, service))
    assert code != 0
    assert service.asked("/v1/chat/completions"), "the server was never called"
    assert b"***" in output
    assert_nowhere(workspace, output)


def test_a_crash_leaves_no_key(workspace: Path, service: EchoingService) -> None:
    code, output = call(workspace, command(workspace, service, code=_CRASH.replace("KEY", KEY)))
    assert code != 0
    assert b"unexpected: Authorization: Bearer ***" in output, "the traceback does not show the redacted key"
    assert_nowhere(workspace, output)


def test_a_run_that_is_killed_leaves_no_key(workspace: Path, service: EchoingService) -> None:
    with (workspace / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command(workspace, service),
            cwd=workspace,
            env={**os.environ, "OPENAI_API_KEY": KEY, "ASSAY_HOME": str(workspace / "home")},
            stdout=output,
            stderr=output,
        )
        deadline = time.monotonic() + 60
        while not service.asked("/v1/chat/completions") and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert service.asked("/v1/chat/completions"), "the server was never called"
    assert_nowhere(workspace, b"")


def test_a_key_in_the_arguments_is_an_error_and_is_not_stored(
    workspace: Path, service: EchoingService
) -> None:
    code, output = call(workspace, command(workspace, service, "--judge", f"openai,model=x,api_key={KEY}"))
    assert code == 2, output
    code, more = call(
        workspace,
        command(
            workspace, service, "--model_args", f"model=x,api_key={KEY}", "--judge_args", f"api_key={KEY}"
        ),
    )
    assert code == 2, more
    assert b"OPENAI_API_KEY" in output + more
    assert_nowhere(workspace, output + more)
