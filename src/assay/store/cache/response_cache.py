"""Responses shared between runs, by fingerprint. Many processes may use one cache at the same time."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from assay.core.errors import AssayError, OutputError
from assay.core.home import assay_home
from assay.core.responses import Response
from assay.store.database.locks import file_lock
from assay.store.database.schema import CACHE_SCHEMA, MalformedDatabase, open_database
from assay.store.database.writer import BatchWriter
from assay.store.integrity.repair import repair_database
from assay.store.integrity.row_checksums import is_cache_row_intact
from assay.store.journal import rows
from assay.store.journal.token_rows import (
    INSERT_TOKENS,
    SELECT_CACHED_TOKENS,
    attach_tokens,
    build_tokens_row,
)

__all__ = ["ResponseCache", "ResponseSource", "default_cache_path", "open_cache"]

_LOOKUP_BATCH = 500
_DAMAGE_MESSAGES = ("malformed", "not a database")
_LOG = logging.getLogger(__name__)


def default_cache_path() -> Path:
    """The cache all runs share."""
    return assay_home() / "cache.sqlite"


class ResponseSource(Protocol):
    """Answers that are known from elsewhere; a cache is one such place."""

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        """Those known under these fingerprints; with their `tokens`, where these are wanted. A cache then leaves out
        answers it knows without: whoever wants them asks again."""
        ...

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        """Keep some for later."""
        ...


class ResponseCache:
    """What models answered before. Failures are never in it."""

    def __init__(self, path: Path, *, refresh: bool = False) -> None:
        self.path = path
        self._refresh = refresh
        """Nothing is found, and what is added replaces what was there."""

        self._warned = False
        self._damaged = False
        try:
            self._reader = open_cache(path)
        except OutputError as error:
            hint = "keep it in another file with --use_cache, or leave it alone with --no_cache"
            raise OutputError(error.what, where=error.where, hint=hint) from None
        self._writer = BatchWriter(
            lambda: open_database(path, CACHE_SCHEMA, durable=False), name="response cache"
        )

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        """The responses known under these fingerprints; where `tokens` are wanted, those known with them.

        A cache that cannot be read knows nothing, and says so.
        """
        if self._refresh:
            return {}
        try:
            found = self._find(fingerprints)
            return self._attach_tokens(found) if tokens else found
        except sqlite3.Error as error:
            self._check_damage(error)
            _LOG.warning("the response cache `%s` cannot be read, going on without it: %s", self.path, error)
            return {}

    def _find(self, fingerprints: Sequence[str]) -> dict[str, Response]:
        found: dict[str, Response] = {}
        unsound: list[tuple[str]] = []
        for start in range(0, len(fingerprints), _LOOKUP_BATCH):
            chunk = fingerprints[start : start + _LOOKUP_BATCH]
            marks = ",".join("?" * len(chunk))
            for row in self._reader.execute(f"{rows.SELECT_RESPONSE} WHERE fingerprint IN ({marks})", chunk):
                if is_cache_row_intact(row):
                    found[row[0]] = rows.response_from_row(row)
                else:
                    unsound.append((row[0],))
        if unsound:
            _LOG.warning("%d answers in `%s` are damaged; they are not used", len(unsound), self.path)
            self._writer.submit([(rows.DELETE_RESPONSE, unsound)])
        return found

    def _attach_tokens(self, found: dict[str, Response]) -> dict[str, Response]:
        """Those of some responses whose tokens are known, with them."""
        known: dict[str, Response] = {}
        names = list(found)
        for start in range(0, len(names), _LOOKUP_BATCH):
            chunk = names[start : start + _LOOKUP_BATCH]
            query = f"{SELECT_CACHED_TOKENS} WHERE fingerprint IN ({','.join('?' * len(chunk))})"
            known |= attach_tokens(found, self._reader.execute(query, chunk))
        return known

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        """Keep responses under their fingerprints; the first one kept stays, unless the cache is refreshed, or
        later ones have their tokens: these are only asked for where the first has none."""
        now = time.time()
        listed = list(responses)
        given = [rows.build_response_row(name, response, source=model, at=now) for name, response in listed]
        tokens = [
            build_tokens_row(name, row[:4], response.tokens)
            for (name, response), row in zip(listed, given, strict=True)
            if response.tokens is not None
        ]
        given.sort(key=itemgetter(0))  # neighbours in the file are written together
        statement = rows.REPLACE_RESPONSE if self._refresh or tokens else rows.INSERT_RESPONSE
        kept = self._writer.submit([(statement, given), *([(INSERT_TOKENS, tokens)] if tokens else [])])
        kept.add_done_callback(self._on_written)
        return kept

    def _on_written(self, kept: Future[None]) -> None:
        """A cache that cannot be written is a pity, not the end of a run."""
        error = None if kept.cancelled() else kept.exception()
        if error is not None:
            self._check_damage(error)
            if not self._warned:
                self._warned = True
                _LOG.warning("answers are not kept for later runs: %s", error)

    def _check_damage(self, error: BaseException) -> None:
        self._damaged = self._damaged or any(word in str(error) for word in _DAMAGE_MESSAGES)

    def __len__(self) -> int:
        count: int = self._reader.execute("SELECT count(*) FROM responses").fetchone()[0]
        return count

    def close(self) -> None:
        """Write what is waiting. A cache that turned out to be damaged is put aside, for the next to start well."""
        self._writer.close()
        self._reader.close()
        if self._damaged:
            try:
                _rebuild_if_damaged(self.path)
            except (AssayError, OSError) as error:
                _LOG.warning("the damaged response cache cannot be put aside: %s", error)


def open_cache(path: Path) -> sqlite3.Connection:
    """The database; a damaged one is put aside and what is sound in it carried over."""
    try:
        return open_database(path, CACHE_SCHEMA, durable=False)
    except MalformedDatabase:
        with path.open("rb") as file:
            ours = file.read(16) == b"SQLite format 3\0" or path == default_cache_path()
        if not ours:
            raise  # a file of the user's that was named by mistake stays where it is
    _rebuild_if_damaged(path)
    return open_database(path, CACHE_SCHEMA, durable=False)


def _rebuild_if_damaged(path: Path) -> None:
    """Put a sound cache in the place of a damaged one; of several processes that find it so, one does it."""
    with file_lock(path.with_name(f"{path.name}-lock")):
        if path.exists() and not _is_intact(path):
            _LOG.warning("the response cache `%s` was damaged: %s", path, repair_database(path, CACHE_SCHEMA))


def _is_intact(path: Path) -> bool:
    try:
        with closing(open_database(path, CACHE_SCHEMA, durable=False)) as connection:
            found: tuple[str] = connection.execute("PRAGMA quick_check(1)").fetchone()
            return found == ("ok",)
    except (MalformedDatabase, sqlite3.DatabaseError):
        return False
