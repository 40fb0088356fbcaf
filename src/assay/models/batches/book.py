"""Which request is in which batch: written down before a batch is handed in, so that nothing is asked twice.

One SQLite file in Assay's home, for all runs. Entries are named by who is asked (`scope`) and by the request's own hash,
so whichever run asks for the same answer next finds the batch that will have it.

    begin(key, requests)      durable, before anything is sent
    submitted(key, batch)     as soon as the service named the batch
    forget(requests)          answered and kept by the run, or come to nothing: the next to ask asks anew
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from assay.core.errors import BadOutput
from assay.core.home import assay_home

__all__ = ["BatchBook", "Entry"]

_KEPT_S = 29 * 86_400.0
"""Services keep results for about a month."""

_CHUNK = 500
_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    key TEXT PRIMARY KEY, scope TEXT NOT NULL, batch TEXT, count INTEGER NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    scope TEXT NOT NULL, request TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (scope, request)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch that holds some of the wanted requests."""

    key: str
    """Our name for it, which goes with it where the service takes one."""

    batch: str | None
    """The service's name for it; None: nobody wrote it down, it may or may not have been handed in."""

    count: int
    at: float
    requests: tuple[str, ...]
    """The wanted ones that are in it."""


class BatchBook:
    """The batches of one model. Every call is one transaction."""

    def __init__(self, scope: str, path: Path | None = None) -> None:
        self._scope = scope
        self._path = path or assay_home() / "batches.sqlite"

    def find(self, requests: Sequence[str]) -> list[Entry]:
        """The batches that hold some of these requests."""
        found: dict[str, list[str]] = {}
        with closing(self._open()) as book:
            for start in range(0, len(requests), _CHUNK):
                chunk = requests[start : start + _CHUNK]
                marks = ",".join("?" * len(chunk))
                query = f"SELECT request, key FROM entries WHERE scope = ? AND request IN ({marks})"
                for request, key in book.execute(query, (self._scope, *chunk)):
                    found.setdefault(key, []).append(request)
            entries = []
            for key, held in found.items():
                query = "SELECT batch, count, at FROM batches WHERE key = ?"
                batch, count, at = book.execute(query, (key,)).fetchone() or (None, 0, 0.0)
                entries.append(Entry(key, batch, count, at, tuple(held)))
        return entries

    def known(self) -> set[str]:
        """The service's names of every batch in the book."""
        with closing(self._open()) as book:
            return {batch for (batch,) in book.execute("SELECT batch FROM batches WHERE batch IS NOT NULL")}

    def begin(self, key: str, requests: Sequence[str]) -> None:
        """A batch of these requests is about to be handed in."""
        with closing(self._open()) as book:
            book.execute("BEGIN IMMEDIATE")
            row = (key, self._scope, None, len(requests), time.time())
            book.execute("INSERT INTO batches VALUES (?,?,?,?,?)", row)
            rows = [(self._scope, request, key) for request in requests]
            book.executemany("INSERT OR REPLACE INTO entries VALUES (?,?,?)", rows)
            book.execute("COMMIT")

    def submitted(self, key: str, batch: str) -> None:
        """The service took it, and calls it so."""
        with closing(self._open()) as book:
            book.execute("UPDATE batches SET batch = ? WHERE key = ?", (batch, key))

    def forget(self, requests: Iterable[str]) -> None:
        """These requests are in no batch any more; a batch without requests is forgotten, too."""
        with closing(self._open()) as book:
            book.execute("BEGIN IMMEDIATE")
            rows = [(self._scope, request) for request in requests]
            book.executemany("DELETE FROM entries WHERE scope = ? AND request = ?", rows)
            book.execute(
                "DELETE FROM batches WHERE scope = ? AND key NOT IN (SELECT key FROM entries)", (self._scope,)
            )
            book.execute("COMMIT")

    def tidy(self) -> None:
        """Forget batches whose results no service has any more."""
        with closing(self._open()) as book:
            book.execute("BEGIN IMMEDIATE")
            book.execute("DELETE FROM batches WHERE at < ?", (time.time() - _KEPT_S,))
            book.execute("DELETE FROM entries WHERE key NOT IN (SELECT key FROM batches)")
            book.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            book = sqlite3.connect(self._path, isolation_level=None, timeout=60.0)
            book.execute("PRAGMA journal_mode=WAL")
            book.execute("PRAGMA synchronous=FULL")
            book.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            raise BadOutput(
                f"cannot write down batches in `{self._path}`: {error}",
                hint="ASSAY_HOME must be a folder that can be written",
            ) from None
        return book
