"""One thread that writes, in groups: whatever is waiting goes into one transaction.

So a commit costs the same for one row or ten thousand, and a caller that waits knows its rows are on disk.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from assay.core.errors import AssayError, BadOutput

__all__ = ["GroupWriter"]

Batch = Sequence[tuple[str, Sequence[tuple[Any, ...]]]]
"""(SQL with placeholders, rows) pairs that belong in one transaction."""


class GroupWriter:
    """Appends batches to a database from a thread of its own."""

    def __init__(self, open_connection: Callable[[], sqlite3.Connection], *, name: str) -> None:
        self._open = open_connection
        self._name = name
        self._waiting: queue.SimpleQueue[tuple[Batch, Future[None]] | None] = queue.SimpleQueue()
        self._broken: AssayError | None = None
        self._connection = open_connection()
        self._thread = threading.Thread(target=self._work, name=f"assay-{name}", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> Future[None]:
        """Hand over rows. The future is done when they are committed, or carries why they could not be."""
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # whoever stops waiting, the rows are written all the same
        if self._broken is not None:
            done.set_exception(self._broken)
        else:
            self._waiting.put((batch, done))
        return done

    def close(self) -> None:
        """Write what is waiting, then stop."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        self._broken = self._broken or BadOutput(f"the {self._name} is closed")

    def _work(self) -> None:
        try:
            while (first := self._waiting.get()) is not None:
                group = [first]
                stop = False
                while not self._waiting.empty():
                    following = self._waiting.get()
                    if following is None:
                        stop = True
                        break
                    group.append(following)
                self._commit(group)
                if stop:
                    return
        finally:
            self._connection.close()

    def _commit(self, group: list[tuple[Batch, Future[None]]]) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            self._connection.execute("BEGIN IMMEDIATE")
            for batch, _ in group:
                for statement, rows in batch:
                    self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the sink loop: whoever waits must hear of it, whatever it is
            self._fail(error, group)
        else:
            for _, done in group:
                done.set_result(None)

    def _fail(self, error: Exception, group: list[tuple[Batch, Future[None]]]) -> None:
        with suppress(sqlite3.Error):  # where even that fails, closing the connection undoes it
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            error = BadOutput(
                f"cannot write the {self._name}: {error}",
                hint="what was committed before is safe; make room or check the folder, then repeat the command",
            )
        elif not isinstance(error, AssayError):
            error = AssayError(f"the {self._name} cannot hold this: {type(error).__name__}: {error}")
        self._broken = error
        for _, done in group:
            done.set_exception(error)
