"""File locks that the kernel releases when the process ends: one writer per run."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from assay.core.errors import OutputError, RunLocked

__all__ = ["RunLock", "file_lock", "is_locked"]

_LOG = logging.getLogger(__name__)


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
            has_locks = _lock_with_retries(file)
        except BlockingIOError:
            raise self._build_locked_error(file) from None
        if not has_locks and _is_held_by_note(file):
            raise self._build_locked_error(file)
        if not has_locks:
            _LOG.warning(
                "the file system of `%s` has no file locks: do not start the same run twice", self.path.parent
            )
        self._file = file
        note = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        with suppress(OSError):  # disk full: the lock works without the note
            file.seek(0)
            file.truncate()
            file.write(note)
            file.flush()

    def _build_locked_error(self, file: IO[str]) -> RunLocked:
        file.seek(0)
        holder = _describe_holder(file.read())
        file.close()
        return RunLocked(
            f"the run is locked by {holder}",
            where=str(self.path.parent),
            hint="wait until it ends, or choose another --output_path",
        )

    def release(self) -> None:
        """Release the lock. The file remains, without the note of its holder."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(0)
            with suppress(OSError):
                self._file.close()
            self._file = None


def is_locked(folder: Path) -> bool:
    """Whether a process is writing to the run in a folder."""
    try:
        with (folder / "lock").open("r", encoding="utf-8") as file:
            return not _lock(file, shared=True) and _is_held_by_note(file)
    except BlockingIOError:
        return True
    except OSError:  # no lock file, or an unreadable one
        return False


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file inside the `with` block; wait for it if necessary."""
    with path.open("a+", encoding="utf-8") as file:
        _lock(file, wait=True)
        yield


def _lock_with_retries(file: IO[str]) -> bool:
    """Lock, with a few retries: `is_locked` in another process holds the lock only briefly."""
    for _ in range(4):
        with suppress(BlockingIOError):
            return _lock(file)
        time.sleep(0.02)
    return _lock(file)


def _lock(file: IO[str], *, shared: bool = False, wait: bool = False) -> bool:
    """Lock; return False if the system or the file system has no locks.

    Raises:
        BlockingIOError: Another process holds the lock, and `wait` is not set.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        return False  # Windows
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # some network file systems: ENOLCK, ENOSYS, ENOTSUP, EINVAL
        return False
    return True


def _is_held_by_note(file: IO[str]) -> bool:
    """Whether the process that wrote the note of a lock file still runs, if it is on this machine and not this one."""
    try:
        file.seek(0)
        holder = json.loads(file.read())
        pid, host = int(holder["pid"]), str(holder["host"])
        if host != socket.gethostname() or pid == os.getpid():
            return False
        os.kill(pid, 0)
    except PermissionError:
        return True  # a process of another user
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _describe_holder(text: str) -> str:
    try:
        holder = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        return f"process {holder['pid']} on {holder['host']} since {since}"
    except (ValueError, KeyError, TypeError):
        return "another process"
