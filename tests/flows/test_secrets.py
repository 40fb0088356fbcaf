"""API keys never appear in files, logs or output: on success, when the service echoes them, and in a crash."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.command_server import run_command
from tests.flows.running import ASSAY
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
    start = [sys.executable, "-c", code] if code else ASSAY
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
    environment = {**os.environ, "OPENAI_API_KEY": KEY, "ASSAY_HOME": str(workspace / "home")}
    if words[: len(ASSAY)] == ASSAY:
        done = run_command(words[len(ASSAY) :], cwd=workspace, env=environment)
    else:
        done = subprocess.run(
            words, cwd=workspace, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    return done.returncode, (done.stdout + done.stderr).encode()


def assert_nowhere(workspace: Path, output: bytes, keys: Sequence[str] = (KEY,)) -> None:
    """Check that no file and no output contains a key."""
    files = [file for file in workspace.rglob("*") if file.is_file()]
    assert files
    for key in keys:
        assert key.encode() not in output, output[output.index(key.encode()) - 200 :][:400]
        for file in files:
            assert key.encode() not in file.read_bytes(), (key, file)


def test_a_run_that_succeeds_leaves_no_key(workspace: Path, service: EchoingService) -> None:
    code, output = call(workspace, command(workspace, service))
    assert code == 0, output
    for words in (
        ["runs", "show", "latest", "--in", "out"],
        ["export", "latest", "--in", "out", "--format", "jsonl"],
    ):
        code, shown = call(workspace, [*ASSAY, *words])
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


class ParrotService(OpenAIBatches):
    """A service that puts everything it was sent into all parts of its answers and errors."""

    def reply(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        status, more, value = super().reply(method, path, headers, body)
        if not path.endswith("/chat/completions"):
            return status, more, value
        sent = json.loads(body)
        echo = f"{headers} {sent}"
        if "3 + 1" in str(sent["messages"]):
            return 400, {"x-echo": str(headers.get("x-team"))}, {"error": {"message": echo, "code": echo}}
        choice = value["choices"][0]
        choice["message"] |= {"content": f"5 {echo}", "reasoning_content": echo}
        value["model"], value["system_fingerprint"] = echo, echo
        return status, more, value


PLANTED = {
    "header": "planted-header-000001",
    "api_key": "planted-apikey-000002",
    "password": 'planted-"quoted"\\-000003',
    "user": "planteduser000004",
    "query": "planted-query-000005",
    "shape": "sk-planted-shape-000006",
    "judge": "planted-judge-000007",
    "metadata": "planted-metadata-000008",
    "environment": "planted-environment-000009",
    "json": "planted-json-in-text-000010",
}


def read_pages(viewer: Any) -> list[str]:
    """Return the pages of the viewer, following its links."""
    pages: dict[str, str] = {}
    waiting = ["/"]
    while waiting and len(pages) < 40:
        path = waiting.pop(0)
        if path in pages:
            continue
        answer = viewer.get(path)
        pages[path] = answer.body.decode("utf-8", "replace")
        if "html" in str(answer.headers):
            waiting += [link for link in re.findall(r'href="(/[^"#]*)"', pages[path]) if "static" not in link]
    return list(pages.values())


@pytest.mark.slow
def test_keys_planted_everywhere_are_found_nowhere(workspace: Path) -> None:
    """Keys in headers, bodies, URLs, judges and metadata, all of which the server echoes in its answers."""
    extra_body = {
        "api_key": PLANTED["api_key"],
        "client": [{"deep": {"password": PLANTED["password"]}}],
        "callback": f"https://me:{PLANTED['user']}@example.test/hook?x=1&access_token={PLANTED['query']}",
        "note": f"use {PLANTED['shape']} please",
        "text": json.dumps({"client_secret": PLANTED["json"]}),
    }
    with serving(ParrotService()) as service:
        arguments = {
            "model": "some-model",
            "base_url": f"{service.url}/v1",
            "max_retries": 0,
            "header": {"X-Team": PLANTED["header"]},
            "extra_body": extra_body,
        }
        judge = {"base_url": f"{service.url}/v1", "extra_body": {"auth_token": PLANTED["judge"]}}
        judged = [{"metric": "good", "judge": {"kind": "binary"}}, {"metric": "exact_match"}]
        write_task(workspace / "tasks", metric_list=judged)
        words = [
            sys.executable,
            "-m",
            "assay",
            "run",
            "--model",
            "openai",
            "--model_args",
            json.dumps(arguments),
        ]
        words += ["--judge", "openai,model=judge", "--judge_args", json.dumps(judge), "--tasks", "sums"]
        words += [
            "--include_path",
            "tasks",
            "--output_path",
            "out",
            "--apply_chat_template",
            "--verbosity",
            "DEBUG",
        ]
        words += ["--metadata", json.dumps({"auth": {"token": PLANTED["metadata"]}})]
        words += ["--sink", "jsonl,path=telemetry.jsonl"]
        environment = {"SOME_SERVICE_API_KEY": PLANTED["environment"]}
        write_echo = workspace / "tasks" / "sums.jsonl"
        write_echo.write_text(
            write_echo.read_text() + json.dumps({"question": "What?", "answer": "1"}) + "\n"
        )
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            code, output = call(workspace, words)
            assert b"Traceback" not in output, output[-3000:]
            assert service.asked("/v1/chat/completions")
            everything = str(service.asked("/v1/chat/completions"))
            for name in ("api_key", "query", "shape", "judge"):
                assert PLANTED[name] in everything, "the key was sent"
            for more in (
                ["runs", "show", "latest", "--in", "out"],
                ["export", "latest", "--in", "out", "--format", "jsonl", "-o", "export.jsonl"],
                ["report", "latest", "--in", "out", "-o", "report.html"],
                ["plan", *(word for word in words[4:] if word not in ("--verbosity", "DEBUG"))],
            ):
                _, shown = call(workspace, [sys.executable, "-m", "assay", *more])
                output += shown
    assert code in (0, 1), output[-3000:]
    assert (workspace / "telemetry.jsonl").stat().st_size
    assert b"***" in (workspace / "export.jsonl").read_bytes(), "the echo is stored, without the keys"
    forms = [form for key in (*PLANTED.values(), KEY) for form in {key, json.dumps(key)[1:-1]}]
    assert_nowhere(workspace, output, forms)
    pytest.importorskip("starlette")
    from tests.viewer.web.viewer_server import serve_runs

    with serve_runs([workspace / "out"]) as viewer:
        pages = read_pages(viewer)
    assert len(pages) > 2
    for form in forms:
        assert not any(form in page for page in pages)
