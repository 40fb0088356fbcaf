"""Records which request is in which batch, before the batch is submitted, so that no request is paid for twice.

One SQLite file in Assay's home serves all runs. Entries are keyed by the model's identity (`scope`) and the request's
hash, so another run that needs the same answer finds the batch.

    record_intent(key, requests)   durable, before anything is sent
    record_batch(key, batch)       as soon as the service has returned the id of the batch
    forget(requests)               after the run has stored the answers, or after a failure
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from assay.core.errors import OutputError
from assay.core.home import assay_home

__all__ = ["Submission", "SubmissionLog"]

_MAX_AGE_S = 29 * 86_400.0
"""Services delete results after about a month."""

_LOOKUP_BATCH = 500
_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    key TEXT PRIMARY KEY, scope TEXT NOT NULL, batch TEXT, count INTEGER NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    scope TEXT NOT NULL, request TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (scope, request)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch that contains some of the requests of a run."""

    key: str
    """Client-side key, sent with the batch if the service supports it."""

    batch: str | None
    """The service's id of the batch; None: unknown, the batch may or may not have been submitted."""

    count: int
    submitted_at: float
    requests: tuple[str, ...]
    """The requests of the run that are in the batch."""


class SubmissionLog:
    """The submitted batches of one model. Each method is one transaction."""

    def __init__(self, scope: str, path: Path | None = None) -> None:
        self._scope = scope
        self._path = path or assay_home() / "batches.sqlite"

    def find(self, requests: Sequence[str]) -> list[Submission]:
        """Return the batches that contain some of these requests."""
        found: dict[str, list[str]] = {}
        with closing(self._open()) as connection:
            for start in range(0, len(requests), _LOOKUP_BATCH):
                chunk = requests[start : start + _LOOKUP_BATCH]
                placeholders = ",".join("?" * len(chunk))
                query = f"SELECT request, key FROM entries WHERE scope = ? AND request IN ({placeholders})"
                for request, key in connection.execute(query, (self._scope, *chunk)):
                    found.setdefault(key, []).append(request)
            entries = []
            for key, held in found.items():
                query = "SELECT batch, count, at FROM batches WHERE key = ?"
                batch, count, at = connection.execute(query, (key,)).fetchone() or (None, 0, 0.0)
                entries.append(Submission(key, batch, count, at, tuple(held)))
        return entries

    def list_batches(self) -> set[str]:
        """Return the service's ids of all recorded batches."""
        with closing(self._open()) as connection:
            return {
                batch for (batch,) in connection.execute("SELECT batch FROM batches WHERE batch IS NOT NULL")
            }

    def record_intent(self, key: str, requests: Sequence[str]) -> None:
        """Record that a batch of these requests is about to be submitted."""
        with closing(self._open()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = (key, self._scope, None, len(requests), time.time())
            connection.execute("INSERT INTO batches VALUES (?,?,?,?,?)", row)
            rows = [(self._scope, request, key) for request in requests]
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?,?,?)", rows)
            connection.execute("COMMIT")

    def record_batch(self, key: str, batch: str) -> None:
        """Record the service's id of a submitted batch."""
        with closing(self._open()) as connection:
            connection.execute("UPDATE batches SET batch = ? WHERE key = ?", (batch, key))

    def forget(self, requests: Iterable[str]) -> None:
        """Delete these requests, and batches that contain no other requests."""
        with closing(self._open()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            rows = [(self._scope, request) for request in requests]
            connection.executemany("DELETE FROM entries WHERE scope = ? AND request = ?", rows)
            connection.execute(
                "DELETE FROM batches WHERE scope = ? AND key NOT IN (SELECT key FROM entries)", (self._scope,)
            )
            connection.execute("COMMIT")

    def delete_expired(self) -> None:
        """Delete batches whose results the services no longer store."""
        with closing(self._open()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM batches WHERE at < ?", (time.time() - _MAX_AGE_S,))
            connection.execute("DELETE FROM entries WHERE key NOT IN (SELECT key FROM batches)")
            connection.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=60.0)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                connection.executescript(_TABLES)
            except BaseException:
                connection.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise OutputError(
                f"cannot record batches in `{self._path}`: {error}",
                hint="set ASSAY_HOME to a writable folder",
            ) from None
        return connection
