"""End the processes of vLLM when this process is killed; otherwise they would run forever.

A small process reads from a pipe whose other end only this process holds. When this process dies for any reason, the
pipe closes and the watched processes are terminated.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Watchdog"]

_SCRIPT = """
import os, signal, sys, time
def start_time(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return None
watched = {int(pid): start_time(pid) for pid in sys.argv[1:]}
signal.signal(signal.SIGINT, signal.SIG_IGN)
if sys.stdin.buffer.read():  # a byte: dismissed
    sys.exit()
for signal_number in (signal.SIGTERM, signal.SIGKILL):
    for pid, start in watched.items():
        if start is not None and start_time(pid) == start:  # not another process with a reused pid
            try:
                os.kill(pid, signal_number)
            except OSError:
                pass
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(start is not None and start_time(pid) == start for pid, start in watched.items()):
        time.sleep(0.1)
"""


class Watchdog:
    """Ends some processes when this one dies. Does nothing on systems without `/proc`."""

    def __init__(self, pids: Iterable[int]) -> None:
        arguments = [str(pid) for pid in pids]
        self.process: subprocess.Popen[bytes] | None = None
        if arguments and Path("/proc/self/stat").exists():
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _SCRIPT, *arguments],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """Stop watching: the processes have ended."""
        process, self.process = self.process, None
        if process is not None:
            process.communicate(b".")
