"""Ends what is left of a Ray of our own when its driver is gone, and removes its folder.

Run as a script beside the driver, with a pipe as its standard input: the pipe's end is the driver's end, however it came.
Ray ends most of its processes itself; its agents wait for a minute to report to a server that is gone.
Needs nothing but the standard library, so that it starts at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "ASSAY_RAY_FOLDER"
"""The variable by which the processes of one Ray are known."""


DONE = b"done"
"""What the driver says when it has ended its Ray in an orderly way."""

_PATIENCE_S = 3.0
"""How long nothing must have been found after a driver's sudden end: a process that is just being started shows no mark."""

_LONGEST_S = 20.0


def keep(folder: str) -> None:
    """Wait for the end of the driver, then clear up."""
    patience_s = 0.0 if sys.stdin.buffer.read() == DONE else _PATIENCE_S
    begin = last = time.monotonic()
    while True:
        left = marked(folder)
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        now = time.monotonic()
        last = now if left else last
        if now - begin > _LONGEST_S or (not left and now - last >= patience_s):
            break
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def marked(folder: str) -> list[int]:
    """Processes that were started with the mark, or call themselves Ray's and write into the folder.

    The mark alone would not do: a process that gives itself a title writes it over the variables it was started with, and
    which of them are lost depends on their order. None are found where the system does not show such things.
    """
    found = []
    with suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if _has_mark(entry, folder) or (_is_titled(entry) and _has_open(entry, folder)):
                        found.append(int(entry.name))
    return found


def _has_mark(process: Path, folder: str) -> bool:
    return f"{MARK}={folder}".encode() in (process / "environ").read_bytes().split(b"\0")


def _is_titled(process: Path) -> bool:
    return (process / "cmdline").read_bytes().startswith(b"ray::")


def _has_open(process: Path, folder: str) -> bool:
    """Whether it has a file of the folder open; a log of Ray's is one from a process's start to its end."""
    for entry in (process / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if str(entry.readlink()).startswith(folder + os.sep):
                return True
    return False


if __name__ == "__main__":
    keep(sys.argv[1])
