"""A writer thread that commits all pending rows in one transaction.

A commit costs about the same for one row as for ten thousand. A caller that waits for its future knows that its rows
are on disk.
"""

from __future__ import annotations

import queue
import re
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, OutputError

__all__ = ["BatchWriter"]

Batch = Sequence[tuple[str, Sequence[tuple[Any, ...]]]]
"""(SQL with placeholders, rows) pairs that belong in one transaction."""

_PendingBatch = tuple[Batch, Future[None]]

_DEFERRED_COMMIT_INTERVAL_S = 0.5
"""Maximum delay of deferred rows."""


_ROWS_PER_STATEMENT = 64
"""Rows inserted by one statement."""

_VALUES = re.compile(r" VALUES \([?,]+\)$")


@lru_cache(maxsize=64)
def _build_multi_row_statement(statement: str, columns: int) -> str:
    """Return an INSERT of one row as an INSERT of many; empty for other statements."""
    if not _VALUES.search(statement):
        return ""
    row = f"({','.join('?' * columns)})"
    return _VALUES.sub(f" VALUES {','.join([row] * _ROWS_PER_STATEMENT)}", statement)


class BatchWriter:
    """Writes batches of rows to a database in a thread."""

    def __init__(
        self, open_connection: Callable[[], sqlite3.Connection], *, name: str, path: Path | None = None
    ) -> None:
        """`path` is the file; if it is deleted or replaced, writing fails instead of writing to a file without a name."""
        self._open = open_connection
        self._path = path
        self._name = name
        self._queue: queue.SimpleQueue[_PendingBatch | None] = queue.SimpleQueue()
        self._deferred: deque[_PendingBatch] = deque()
        self._error: AssayError | None = None
        self._connection = open_connection()
        self._inode = path.stat().st_ino if path is not None else 0
        self._absolute_path = path.absolute() if path is not None else Path()
        """Task code may change the working directory while the journal is checked."""

        self._thread = threading.Thread(target=self._run, name=f"assay-{name}", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch, *, deferred: bool = False) -> Future[None]:
        """Submit rows. The future is done when they are committed, or has the exception.

        `deferred` rows are committed together with the next other rows, before these, or after half a second.
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # cancelling the future does not cancel the write
        if self._error is not None:
            done.set_exception(self._error)
        elif deferred:
            self._deferred.append((batch, done))
        else:
            self._queue.put((batch, done))
        return done

    def close(self) -> None:
        """Write pending rows and stop the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._error = self._error or OutputError(f"the {self._name} is closed")

    def _run(self) -> None:
        try:
            stop = False
            while not stop:
                group, stop = self._next_group()
                if group:
                    self._commit(group)
        finally:
            self._connection.close()

    def _next_group(self) -> tuple[list[_PendingBatch], bool]:
        """Wait for rows; return all pending batches, and whether the writer should stop afterwards."""
        urgent: list[_PendingBatch] = []
        stop = False
        with suppress(queue.Empty):
            following = self._queue.get(timeout=_DEFERRED_COMMIT_INTERVAL_S)
            while following is not None:
                urgent.append(following)
                following = self._queue.get_nowait()
            stop = True
        deferred = [self._deferred.popleft() for _ in range(len(self._deferred))]
        return deferred + urgent, stop

    def _commit(self, group: list[_PendingBatch]) -> None:
        try:
            if self._error is not None:
                raise self._error
            self._connection.execute("BEGIN IMMEDIATE")
            for batch, _ in group:
                for statement, rows in batch:
                    self._write(statement, rows)
            self._connection.execute("COMMIT")
            self._check_file()
        except Exception as error:  # noqa: BLE001 - callers that wait must get any error
            self._fail(error, group)
        else:
            for _, done in group:
                done.set_result(None)

    def _check_file(self) -> None:
        if self._path is None:
            return
        try:
            if self._absolute_path.stat().st_ino == self._inode:
                return
        except OSError:
            pass
        raise OutputError(
            f"the {self._name} was deleted or replaced during the run: `{self._path}`",
            hint="run the command again; responses in the cache are not requested again",
        )

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows per statement: fewer switches between threads."""
        batched, rest = 0, rows
        if len(rows) >= _ROWS_PER_STATEMENT and (
            multi_row := _build_multi_row_statement(statement, len(rows[0]))
        ):
            batched = len(rows) - len(rows) % _ROWS_PER_STATEMENT
            for start in range(0, batched, _ROWS_PER_STATEMENT):
                self._connection.execute(
                    multi_row, [*chain.from_iterable(rows[start : start + _ROWS_PER_STATEMENT])]
                )
            rest = rows[batched:]
        if rest:
            self._connection.executemany(statement, rest)

    def _fail(self, error: Exception, group: list[_PendingBatch]) -> None:
        with suppress(sqlite3.Error):  # otherwise closing the connection rolls back
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            error = OutputError(
                f"cannot write the {self._name}: {error}",
                hint="committed data is safe; free disk space or check the folder, then run the command again",
            )
        elif not isinstance(error, AssayError):
            error = AssayError(f"cannot store this in the {self._name}: {type(error).__name__}: {error}")
        self._error = error
        for _, done in group:
            done.set_exception(error)
