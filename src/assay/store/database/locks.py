"""One writer per run: a lock that dies with the process that holds it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from assay.core.errors import OutputError, RunLocked

__all__ = ["RunLock", "file_lock", "is_locked"]


class RunLock:
    """Holds `<run>/lock`. The kernel lets go of it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            RunLocked: Another process has it; the message says which.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise OutputError(
                f"cannot write into `{self.path.parent}`: {error.strerror}",
                hint="choose another --output_path",
            ) from None
        try:
            _lock_with_retries(file)
        except OSError:
            file.seek(0)
            holder = _describe_holder(file.read())
            file.close()
            raise RunLocked(
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


def is_locked(folder: Path) -> bool:
    """Whether some process is writing the run in a folder just now."""
    try:
        with (folder / "lock").open("r", encoding="utf-8") as file:
            _lock(file, shared=True)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks, a file that may not be read
        return False
    return False


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Wait for a lock on a file made for it, and hold it."""
    with path.open("a+", encoding="utf-8") as file:
        _lock(file, wait=True)
        yield


def _lock_with_retries(file: IO[str]) -> None:
    """Lock, trying again for a moment: somebody who only looks (`is_held`) lets go at once."""
    for _ in range(4):
        with suppress(OSError):
            return _lock(file)
        time.sleep(0.02)
    return _lock(file)


def _lock(file: IO[str], *, shared: bool = False, wait: bool = False) -> None:
    """Lock, by default without waiting: OSError when somebody has it. Systems without `fcntl` (Windows) go without a lock."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)


def _describe_holder(text: str) -> str:
    try:
        holder = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        return f"process {holder['pid']} on {holder['host']} since {since}"
    except (ValueError, KeyError, TypeError):
        return "another process"
