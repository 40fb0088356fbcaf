"""File locks that the kernel releases when the process ends: one writer per run."""

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
    """The lock of a run, on `<run>/lock`. The kernel releases it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Acquire the lock.

        Raises:
            RunLocked: Another process holds it; the message says which.
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
                f"the run is locked by {holder}",
                where=str(self.path.parent),
                hint="wait until it ends, or choose another --output_path",
            ) from None
        self._file = file
        note = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        with suppress(OSError):  # disk full: the lock works without the note
            file.seek(0)
            file.truncate()
            file.write(note)
            file.flush()

    def release(self) -> None:
        """Release the lock. The file remains."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


def is_locked(folder: Path) -> bool:
    """Whether a process is writing to the run in a folder."""
    try:
        with (folder / "lock").open("r", encoding="utf-8") as file:
            _lock(file, shared=True)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks, or an unreadable file
        return False
    return False


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file inside the `with` block; wait for it if necessary."""
    with path.open("a+", encoding="utf-8") as file:
        _lock(file, wait=True)
        yield


def _lock_with_retries(file: IO[str]) -> None:
    """Lock, with a few retries: `is_locked` in another process holds the lock only briefly."""
    for _ in range(4):
        with suppress(OSError):
            return _lock(file)
        time.sleep(0.02)
    return _lock(file)


def _lock(file: IO[str], *, shared: bool = False, wait: bool = False) -> None:
    """Lock; without `wait`, raise OSError if it is held. Systems without `fcntl` (Windows) have no lock."""
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
