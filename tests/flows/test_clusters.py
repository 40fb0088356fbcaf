"""Replicas on a cluster with a killed driver: Ray stops and no answers are lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.flows.running import CommandRunner, kill, read_committed_fingerprints, read_tables, wait_until

from assay.models.replicas.cleanup_process import FOLDER_VARIABLE

pytestmark = pytest.mark.ray
ROOT = Path(__file__).resolve().parents[2]


def test_a_run_survives_a_node_that_leaves_and_uses_a_node_that_joins(tmp_path: Path) -> None:
    """Run an image task on two nodes; one is removed during the run and another is added."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    script = Path(__file__).with_name("two_machines.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    saw = json.loads(done.stdout)
    assert saw["same"], "the same bits as one replica gives"
    assert saw["processes"] == 3, "whoever came for the lost one was asked, on the new machine"
    assert saw["answered"] == 80 and saw["repeated"] <= 10, "no more than the lost one answered"
    assert saw["stored"] == 2, "two pictures for 80 requests are put into the object store twice"
    assert max(saw["places"]) <= 2, "and brought to each machine once"


def find_ray_processes(folder: Path) -> list[int]:
    """Return the processes that use this folder: Ray, its workers, and the driver."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # the process has ended
            continue
    return [pid for pid in found if _state(pid) not in ("Z", "")]


def read_process_info(pid: int) -> tuple[str, str, bool]:
    """Return the name of a process, its state, and whether it belongs to a Ray that Assay started."""
    try:
        words = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
        return words[:120], _state(pid), FOLDER_VARIABLE.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return "gone", "", False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes as Linux shows them")
def test_a_killed_driver_leaves_no_processes_and_the_run_can_resume(tmp_path: Path) -> None:
    """Kill the driver after two replicas have answered ten requests each."""
    runner, hold = CommandRunner(tmp_path), tmp_path / "hold"
    task = runner.write_tasks(documents=40)[0]
    whole = runner.finish(runner.build_command("--tasks", task, "--no_cache", "--output_path", "whole"))
    assert whole.returncode == 0, whole.stderr
    needed = len(runner.read_request_ids())
    runner.clear_logs()
    options = ("--tasks", task, "--no_cache", "--output_path", "killed")
    command = runner.build_command(*options, delay_ms=15, hold=hold, free=10)
    hold.touch()
    process = runner.start([*command, "--replicas", "2"])
    try:
        assert wait_until(lambda: runner.has_requests(20), process, timeout_s=120)
        assert wait_until(
            lambda: len(read_committed_fingerprints(runner.find_run_folder("killed"))) == 20, process
        )
        assert len(find_ray_processes(tmp_path)) > 4
    finally:
        kill(process)
        hold.unlink()
    deadline = time.monotonic() + 60
    while left := find_ray_processes(tmp_path):
        assert time.monotonic() < deadline, f"still there: {[read_process_info(pid) for pid in left]}"
        time.sleep(0.1)
    rest = runner.finish(command)  # without replicas: their number is not part of the run id
    assert rest.returncode == 0, rest.stderr
    assert read_tables(runner.find_run_folder("killed")) == read_tables(runner.find_run_folder("whole"))
    assert len(runner.read_request_ids()) == len(set(runner.read_request_ids())) == needed, (
        "nothing is asked again"
    )
