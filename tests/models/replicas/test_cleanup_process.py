"""Processes of a cluster without a driver are killed, others are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.models.replicas import cleanup_process

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs processes as Linux shows them"
)


@pytest.mark.parametrize("farewell", [cleanup_process.DONE, b""])
def test_processes_of_the_cluster_end_with_the_driver(tmp_path: Path, farewell: bytes) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    ours.mkdir()
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    left, foreign = (
        subprocess.Popen(
            sleep, env={**os.environ, cleanup_process.FOLDER_VARIABLE: str(folder)}, stdout=subprocess.PIPE
        )
        for folder in (ours, other)
    )
    with left, foreign:
        for process in (left, foreign):
            assert process.stdout is not None and process.stdout.readline()
        watching = subprocess.Popen(
            [sys.executable, "-I", cleanup_process.__file__, str(ours)], stdin=subprocess.PIPE
        )
        assert left.poll() is None, "the driver is still there"
        watching.communicate(farewell, timeout=30)
        assert left.wait(timeout=10) == -9
        assert foreign.poll() is None
        foreign.kill()
    assert not ours.exists()


WRITES = "import sys, time; log = open(sys.argv[1], 'w'); print(flush=True); time.sleep(60)"


def test_a_process_without_the_variable_is_found_by_its_log(tmp_path: Path) -> None:
    """Like Ray's agents: setting the process title overwrites the environment variables."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    wanted = [(ours, "ray::Agent"), (other, "ray::Agent"), (ours, "tail")]
    started = []
    for n, (folder, title) in enumerate(wanted):
        folder.mkdir(exist_ok=True)
        command = [title, "-c", WRITES, str(folder / f"{n}.log")]
        started.append(subprocess.Popen(command, executable=sys.executable, stdout=subprocess.PIPE))
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline()
        assert cleanup_process.find_processes(str(ours)) == [started[0].pid]
    finally:
        for process in started:
            process.kill()
            process.communicate()
