"""Commands that are forked from one process behave as those that `subprocess` starts."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.command_server import CAN_FORK, run_command, start_command

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="commands are forked on Linux only")


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def waiting(tmp_path: Path) -> list[str]:
    """The arguments of a command that waits forever: nothing writes the config file that it reads."""
    os.mkfifo(tmp_path / "config.yaml")
    return ["run", "--config", str(tmp_path / "config.yaml")]


def test_a_command_ends_with_its_supervisor(tmp_path: Path, waiting: list[str]) -> None:
    process = start_command(waiting, cwd=tmp_path, env=os.environ)
    assert process.poll() is None
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_a_timeout_leaves_neither_descriptors_nor_the_process(tmp_path: Path, waiting: list[str]) -> None:
    run_command(["--version"], cwd=tmp_path, env=os.environ)  # starts the server
    before = count_descriptors()
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(waiting, cwd=tmp_path, env=os.environ, timeout=0.01)
    assert count_descriptors() <= before  # less if objects of earlier tests are deleted meanwhile


def test_threads_get_their_own_commands(tmp_path: Path, waiting: list[str]) -> None:
    with ThreadPoolExecutor(8) as threads:
        processes = list(
            threads.map(lambda _: start_command(waiting, cwd=tmp_path, env=os.environ), range(8))
        )
    while processes:
        process = processes.pop()
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert [other.poll() for other in processes] == [None] * len(processes)
