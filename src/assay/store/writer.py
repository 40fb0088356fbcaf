"""One thread that writes, in groups: whatever is waiting goes into one transaction.

So a commit costs the same for one row or ten thousand, and a caller that waits knows its rows are on disk.
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
from typing import Any

from assay.core.errors import AssayError, BadOutput

__all__ = ["GroupWriter"]

Batch = Sequence[tuple[str, Sequence[tuple[Any, ...]]]]
"""(SQL with placeholders, rows) pairs that belong in one transaction."""

_Handed = tuple[Batch, Future[None]]

_LEISURE_S = 0.5
"""How long rows wait for company that nobody waits for."""


_TOGETHER = 64
"""Rows that go into one statement."""

_VALUES = re.compile(r" VALUES \([?,]+\)$")


@lru_cache(maxsize=64)
def _widened(statement: str, columns: int) -> str:
    """An INSERT of one row as one of many; empty for what is none."""
    if not _VALUES.search(statement):
        return ""
    row = f"({','.join('?' * columns)})"
    return _VALUES.sub(f" VALUES {','.join([row] * _TOGETHER)}", statement)


class GroupWriter:
    """Appends batches to a database from a thread of its own."""

    def __init__(self, open_connection: Callable[[], sqlite3.Connection], *, name: str) -> None:
        self._open = open_connection
        self._name = name
        self._waiting: queue.SimpleQueue[_Handed | None] = queue.SimpleQueue()
        self._at_leisure: deque[_Handed] = deque()
        self._broken: AssayError | None = None
        self._connection = open_connection()
        self._thread = threading.Thread(target=self._work, name=f"assay-{name}", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch, *, at_leisure: bool = False) -> Future[None]:
        """Hand over rows. The future is done when they are committed, or carries why they could not be.

        Rows `at_leisure` are committed with the next ones that somebody waits for, before them, or after half a second.
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # whoever stops waiting, the rows are written all the same
        if self._broken is not None:
            done.set_exception(self._broken)
        elif at_leisure:
            self._at_leisure.append((batch, done))
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
            stop = False
            while not stop:
                group, stop = self._next_group()
                if group:
                    self._commit(group)
        finally:
            self._connection.close()

    def _next_group(self) -> tuple[list[_Handed], bool]:
        """Wait for rows, and take all there are; and whether they are the last ones."""
        urgent: list[_Handed] = []
        stop = False
        with suppress(queue.Empty):
            following = self._waiting.get(timeout=_LEISURE_S)
            while following is not None:
                urgent.append(following)
                following = self._waiting.get_nowait()
            stop = True
        leisurely = [self._at_leisure.popleft() for _ in range(len(self._at_leisure))]
        return leisurely + urgent, stop

    def _commit(self, group: list[_Handed]) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            self._connection.execute("BEGIN IMMEDIATE")
            for batch, _ in group:
                for statement, rows in batch:
                    self._write(statement, rows)
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the sink loop: whoever waits must hear of it, whatever it is
            self._fail(error, group)
        else:
            for _, done in group:
                done.set_result(None)

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows with each step of the database: between two steps other threads take their turn."""
        together, rest = 0, rows
        if len(rows) >= _TOGETHER and (widened := _widened(statement, len(rows[0]))):
            together = len(rows) - len(rows) % _TOGETHER
            for start in range(0, together, _TOGETHER):
                self._connection.execute(widened, [*chain.from_iterable(rows[start : start + _TOGETHER])])
            rest = rows[together:]
        if rest:
            self._connection.executemany(statement, rest)

    def _fail(self, error: Exception, group: list[_Handed]) -> None:
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
