"""Processes that must not outlive us: vLLM's engine goes on for ever when its parent is killed outright.

A small process waits at a pipe whose other end only we hold. When we die, however that happens, the pipe closes, and the
processes it was told of are ended.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Watchdog"]

_SCRIPT = """
import os, signal, sys, time
def began(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return None
watched = {int(pid): began(pid) for pid in sys.argv[1:]}
signal.signal(signal.SIGINT, signal.SIG_IGN)
if sys.stdin.buffer.read():  # a byte: all is well, nobody is to be ended
    sys.exit()
for sign in (signal.SIGTERM, signal.SIGKILL):
    for pid, start in watched.items():
        if start is not None and began(pid) == start:  # not another process with an old number
            try:
                os.kill(pid, sign)
            except OSError:
                pass
    until = time.monotonic() + 5
    while time.monotonic() < until and any(start is not None and began(pid) == start for pid, start in watched.items()):
        time.sleep(0.1)
"""


class Watchdog:
    """Ends some processes when this one dies. Does nothing where there is no `/proc` to look at."""

    def __init__(self, pids: Iterable[int]) -> None:
        named = [str(pid) for pid in pids]
        self._process: subprocess.Popen[bytes] | None = None
        if named and Path("/proc/self/stat").exists():
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _SCRIPT, *named],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )

    def call_off(self) -> None:
        """The processes were ended in the usual way."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate(b".")
