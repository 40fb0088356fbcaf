"""Kill the remaining processes of a local Ray cluster after its driver has ended, and delete its folder.

Runs as a script beside the driver, with a pipe as its standard input: the pipe closes when the driver ends for any reason.
Ray ends most of its processes itself, but its agents try for a minute to reach the dead server.
Imports only the standard library, so that it starts fast.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

FOLDER_VARIABLE = "ASSAY_RAY_FOLDER"
"""Environment variable that identifies the processes of one cluster."""

DONE = b"done"
"""Sent by the driver after it has shut down Ray normally."""

_QUIET_PERIOD_S = 3.0
"""After a driver's crash, wait until no process was found for this long: a starting process has no variables yet."""

_MAX_CLEANUP_S = 20.0


def clean_up_after_driver(folder: str) -> None:
    """Wait for the end of the driver, then kill the cluster's processes and delete its folder."""
    quiet_s = 0.0 if sys.stdin.buffer.read() == DONE else _QUIET_PERIOD_S
    begin = last = time.monotonic()
    while True:
        left = find_processes(folder)
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        now = time.monotonic()
        last = now if left else last
        if now - begin > _MAX_CLEANUP_S or (not left and now - last >= quiet_s):
            break
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def find_processes(folder: str) -> list[int]:
    """Return the processes that have the variable, or are Ray processes with an open file in the folder.

    The variable is not sufficient: a process that sets its title overwrites some of its environment variables.
    Returns nothing on systems without `/proc`.
    """
    found = []
    with suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if _has_folder_variable(entry, folder) or (
                        _is_ray_process(entry) and _has_open_file(entry, folder)
                    ):
                        found.append(int(entry.name))
    return found


def _has_folder_variable(process: Path, folder: str) -> bool:
    return f"{FOLDER_VARIABLE}={folder}".encode() in (process / "environ").read_bytes().split(b"\0")


def _is_ray_process(process: Path) -> bool:
    return (process / "cmdline").read_bytes().startswith(b"ray::")


def _has_open_file(process: Path, folder: str) -> bool:
    """Return whether the process has a file in the folder open, such as a Ray log."""
    for entry in (process / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if str(entry.readlink()).startswith(folder + os.sep):
                return True
    return False


if __name__ == "__main__":
    clean_up_after_driver(sys.argv[1])
