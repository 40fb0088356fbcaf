"""One writer per run: a lock that dies with the process that holds it."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from assay.core.errors import BadOutput, RunHeld

__all__ = ["RunLock"]


class RunLock:
    """Holds `<run>/lock`. The kernel lets go of it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            RunHeld: Another process has it; the message says which.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise BadOutput(
                f"cannot write into `{self.path.parent}`: {error.strerror}",
                hint="choose another --output_path",
            ) from None
        try:
            _lock(file)
        except OSError:
            file.seek(0)
            holder = _describe(file.read())
            file.close()
            raise RunHeld(
                f"this run is being written by {holder}",
                where=str(self.path.parent),
                hint="wait for it, or give another --output_path",
            ) from None
        self._file = file
        note = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        with suppress(OSError):  # a full disk: the lock holds all the same, only its note is missing
            file.seek(0)
            file.truncate()
            file.write(note)
            file.flush()

    def release(self) -> None:
        """Let go. The file stays; its lock does not."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


def _lock(file: IO[str]) -> None:
    """Lock without waiting; OSError when somebody has it. Systems without `fcntl` (Windows) go without a lock."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _describe(text: str) -> str:
    try:
        holder = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        return f"process {holder['pid']} on {holder['host']} since {since}"
    except (ValueError, KeyError, TypeError):
        return "another process"
