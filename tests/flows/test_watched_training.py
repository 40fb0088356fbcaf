from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests import training_folders
from tests.command_server import start_command
from tests.making import write_task
from tests.training_folders import MODEL, ROWS, build_safetensors, write_checkpoint

from assay.store.runs.lookup import find_run_folders
from assay.store.runs.run import Run

STEPS = range(10, 70, 10)


def train(folder: Path) -> None:
    """Write checkpoints as a training does that is killed and continued: each is first cut off, then written again."""
    for step in STEPS:
        path = write_checkpoint(folder, step, range(step // 2))
        complete = (path / "model.safetensors").read_bytes()
        (path / "trainer_state.json").unlink()
        (path / "model.safetensors").write_bytes(complete[:-4])  # killed here
        time.sleep(0.15)
        (path / "model.safetensors").write_bytes(complete)
        time.sleep(0.05)
        (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    doomed = folder / "checkpoint-5"
    doomed.mkdir()
    (doomed / "model.safetensors").write_bytes(build_safetensors())
    time.sleep(0.3)
    shutil.rmtree(doomed)


@pytest.mark.slow
def test_killed_watch_evaluates_each_checkpoint_of_a_killed_training_once(tmp_path: Path) -> None:
    task = write_task(tmp_path, rows=ROWS)
    checkpoints = tmp_path / "out"
    checkpoints.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "ASSAY_HOME": str(tmp_path / "home"),
    }
    command = [
        "watch", str(checkpoints), "--tasks", str(task), "--include_path", str(training_folders.__file__), "--model", MODEL,
        "--model_args", "pretrained={checkpoint},delay_ms=10", "--no_cache", "--settle", "0.2", "--poll", "0.1",
        "--order", "oldest", "--until", str(STEPS[-1]), "-o", "runs",
    ]  # fmt: skip
    draw = random.Random(4)
    training = threading.Thread(target=train, args=(checkpoints,))
    training.start()
    kills = 0
    while True:
        with start_command(command, cwd=tmp_path, env=environment) as process:
            try:
                _, err = process.communicate(timeout=draw.uniform(0.8, 2.5) if kills < 4 else 120)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
                continue
        assert process.returncode == 0, err
        break
    training.join()
    assert kills >= 2
    found: dict[str, list[float]] = {}
    for path in find_run_folders([tmp_path / "runs"]):
        run = Run(path)
        name = Path(run.facts["spec"]["model_args"]["pretrained"]).name
        found.setdefault(name, []).append(float(run.estimates[0].value))
        assert run.finished and run.complete
        run.close()
    expected = {f"checkpoint-{step}": [1 - step // 2 / len(ROWS)] for step in STEPS}
    assert found == expected
