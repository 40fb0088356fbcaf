"""Watched processes end when their parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.models.vllm.watchdog import Watchdog

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")

PARENT = """
import subprocess, sys, time
from assay.models.vllm.watchdog import Watchdog
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
watchdog = Watchdog([child.pid])
print(child.pid, watchdog.process.pid, flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int, within_s: float = 20) -> bool:
    until = time.monotonic() + within_s
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_alive(pid)


def test_a_child_is_ended_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child, watchdog = (int(part) for part in parent.stdout.readline().split())
    assert is_alive(child)
    time.sleep(0.5)  # the watchdog has to have seen the child
    parent.kill()
    parent.communicate()
    try:
        assert wait_until_gone(child) and wait_until_gone(watchdog)
    finally:
        if is_alive(child):
            os.kill(child, signal.SIGKILL)


def test_a_dismissed_watchdog_ends_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        watchdog = Watchdog([child.pid])
        process = watchdog.process
        assert process is not None
        watchdog.dismiss()
        assert process.returncode == 0
        assert child.poll() is None
        child.kill()


def test_no_watchdog_starts_without_processes() -> None:
    watchdog = Watchdog([])
    assert watchdog.process is None
    watchdog.dismiss()
