"""Whole runs with vLLM on a text, an image and a likelihood task equal those of the embedded model."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.models.remote.vllm_server import ON_A_PROCESSOR
from tests.models.vllm.checkpoints import make_embedded_checkpoint

import assay

if find_spec("vllm") is None:
    pytest.skip("not installed: vllm", allow_module_level=True)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]

TASKS = ("quickstart_addition", "quickstart_shapes", "quickstart_facts")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_embedded_checkpoint(tmp_path_factory.mktemp("runs") / "embedded")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "from assay.cli import main; main()"]
    return subprocess.run(
        [*start, *words], capture_output=True, text=True, timeout=800, env={**ON_A_PROCESSOR, **os.environ}
    )


def read_answers(run: Any, task: str) -> list[Any]:
    """Return the answers to each document."""
    return [(one["doc_id"], one["resps"]) for one in run.samples(task)]


def are_equal(one: Any, other: Any) -> bool:
    """Compare answers; likelihoods to a thousandth."""
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return bool(one == pytest.approx(other, abs=1e-3)) if isinstance(one, float) else bool(one == other)


def test_a_run_equals_a_run_of_the_embedded_model(folder: Path, workspace: Path) -> None:
    arguments = f"pretrained={folder},dtype=float32,enforce_eager=True"
    done = command(
        "run", "--model", "vllm", "--model_args", arguments, "--tasks", ",".join(TASKS), "--limit", "40"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stdout and "INFO" not in done.stdout, "vLLM's messages are not results"
    ours = assay.open_run("latest")
    theirs = assay.run(model="embedded", tasks=list(TASKS), limit=40)
    assert ours.failed_requests()[0] == 0
    assert ours.results == theirs.results
    for task in TASKS:
        assert are_equal(read_answers(ours, task), read_answers(theirs, task)), task


@pytest.mark.ray
def test_two_replicas_answer_like_one(folder: Path, workspace: Path) -> None:
    arguments = f"pretrained={folder},dtype=float32,enforce_eager=True"
    tasks = ["quickstart_addition", "quickstart_facts"]
    done = command(
        *("run", "--model", "vllm", "--model_args", arguments, "--tasks", ",".join(tasks)),
        *("--limit", "40", "--replicas", "2"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ours = assay.open_run("latest")
    theirs = assay.run(model="embedded", tasks=tasks, limit=40)
    assert ours.failed_requests()[0] == 0
    assert ours.results == theirs.results
    for task in tasks:
        assert are_equal(read_answers(ours, task), read_answers(theirs, task)), task


def test_an_unknown_argument_is_an_error_before_loading(folder: Path, workspace: Path) -> None:
    arguments = f"pretrained={folder},tensor_paralel_size=2"
    done = command("run", "--model", "vllm", "--model_args", arguments, "--tasks", "quickstart_facts")
    assert done.returncode == 2, done.stderr[-3000:]
    assert "did you mean `tensor_parallel_size`?" in done.stderr and "Traceback" not in done.stderr
