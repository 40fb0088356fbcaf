"""Runs with a batch API: killed during a batch, then resumed without repeated requests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.command_server import start_command
from tests.flows.running import Process
from tests.making import write_task
from tests.models.hosted.services import KEY, Anthropic, OpenAIBatches, serving

import assay


@pytest.fixture(params=[OpenAIBatches, Anthropic], ids=["openai", "anthropic"])
def service(request: pytest.FixtureRequest) -> Iterator[Any]:
    with serving(request.param()) as running:
        yield running


def start(workspace: Path, service: Any) -> Process:
    name = "openai" if isinstance(service, OpenAIBatches) else "anthropic"
    arguments = f"model=some-model,base_url={service.url}/v1,poll_s=0.05"
    words = [
        "run",
        "--model",
        name,
        "--model_args",
        arguments,
        "--batch_api",
        "--tasks",
        "sums",
        "--apply_chat_template",
    ]
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    return start_command(
        [*words, "--include_path", "tasks", "--output_path", "out"],
        cwd=workspace,
        env={**os.environ, **keys},
        merge_output=True,
    )


def test_a_killed_run_resumes_its_batch(workspace: Path, service: Any) -> None:
    write_task(workspace / "tasks", filter_list=[{"name": "none", "filter": [{"function": "take_first"}]}])
    service.seconds = 600
    process = start(workspace, service)
    deadline = time.monotonic() + 60
    while not service.batches and time.monotonic() < deadline:
        time.sleep(0.02)
    assert service.batches, process.communicate(timeout=5)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    service.seconds = 0
    again = start(workspace, service)
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    assert len(service.batches) == 1
    (folder,) = [path.parent for path in (workspace / "out").glob("*/journal.sqlite")]
    done = assay.open_run(folder)
    assert done.results["sums"]["exact_match,none"] == 1.0
    assert done.spent.requests == 6
    done.close()
    assert KEY not in output
