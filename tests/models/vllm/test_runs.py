"""Whole runs with vLLM, as people start them: a text, a picture and a likelihood task, with the results of the embedded model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.models.remote.vllm_server import ON_A_PROCESSOR
from tests.models.vllm.checkpoints import embedded_for_vllm

import assay

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]

TASKS = ("quickstart_addition", "quickstart_shapes", "quickstart_facts")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedded_for_vllm(tmp_path_factory.mktemp("runs") / "embedded")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "from assay.cli import main; main()"]
    return subprocess.run(
        [*start, *words], capture_output=True, text=True, timeout=800, env={**ON_A_PROCESSOR, **os.environ}
    )


def sampled(run: Any, task: str) -> list[Any]:
    return [(row["document"], row["responses"]) for row in run.documents(task)]


def test_a_run_gets_the_results_of_the_embedded_model(folder: Path, workspace: Path) -> None:
    arguments = f"pretrained={folder},dtype=float32,enforce_eager=True"
    done = command("run", "--model", "vllm", "--model_args", arguments, "--tasks", ",".join(TASKS), "--limit", "40", "--output_path", "out")  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stdout and "INFO" not in done.stdout, "vLLM's messages are not results"
    ours = assay.open_run("latest", root="out") if False else next(iter(_runs(Path("out"))))
    theirs = assay.run(model="embedded", tasks=list(TASKS), limit=40)
    assert ours.failed_requests()[0] == 0
    assert ours.results == theirs.results


def _runs(folder: Path) -> list[Any]:
    return [assay.open_run(path.parent) for path in sorted(folder.rglob("journal*"))]
