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

from assay.core.errors import AssayError, BadOutput
from assay.core.home import assay_home
from assay.core.responses import Response
from assay.store import rows
from assay.store.lock import file_lock
from assay.store.salvage import salvage
from assay.store.schema import CACHE_SCHEMA, Malformed, connect
from assay.store.sums import response_is_sound
from assay.store.token_rows import INSERT_TOKENS, SELECT_CACHED_TOKENS, tokens_row, with_tokens
from assay.store.writer import GroupWriter

__all__ = ["KnownAnswers", "ResponseCache", "default_cache", "open_cache"]

_CHUNK = 500
_DAMAGE = ("malformed", "not a database")
_LOG = logging.getLogger(__name__)


def default_cache() -> Path:
    """The cache all runs share."""
    return assay_home() / "cache.sqlite"


class KnownAnswers(Protocol):
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
        except BadOutput as error:
            hint = "keep it in another file with --use_cache, or leave it alone with --no_cache"
            raise BadOutput(error.what, where=error.where, hint=hint) from None
        self._writer = GroupWriter(lambda: connect(path, CACHE_SCHEMA, durable=False), name="response cache")

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        """The responses known under these fingerprints; where `tokens` are wanted, those known with them.

        A cache that cannot be read knows nothing, and says so.
        """
        if self._refresh:
            return {}
        try:
            found = self._find(fingerprints)
            return self._with_tokens(found) if tokens else found
        except sqlite3.Error as error:
            self._note(error)
            _LOG.warning("the response cache `%s` cannot be read, going on without it: %s", self.path, error)
            return {}

    def _find(self, fingerprints: Sequence[str]) -> dict[str, Response]:
        found: dict[str, Response] = {}
        unsound: list[tuple[str]] = []
        for start in range(0, len(fingerprints), _CHUNK):
            chunk = fingerprints[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            for row in self._reader.execute(f"{rows.SELECT_RESPONSE} WHERE fingerprint IN ({marks})", chunk):
                if response_is_sound(row):
                    found[row[0]] = rows.response_from_row(row)
                else:
                    unsound.append((row[0],))
        if unsound:
            _LOG.warning("%d answers in `%s` are damaged; they are not used", len(unsound), self.path)
            self._writer.submit([(rows.DELETE_RESPONSE, unsound)])
        return found

    def _with_tokens(self, found: dict[str, Response]) -> dict[str, Response]:
        """Those of some responses whose tokens are known, with them."""
        known: dict[str, Response] = {}
        names = list(found)
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            query = f"{SELECT_CACHED_TOKENS} WHERE fingerprint IN ({','.join('?' * len(chunk))})"
            known |= with_tokens(found, self._reader.execute(query, chunk))
        return known

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        """Keep responses under their fingerprints; the first one kept stays, unless the cache is refreshed, or
        later ones have their tokens: these are only asked for where the first has none."""
        now = time.time()
        listed = list(responses)
        given = [rows.response_row(name, response, source=model, at=now) for name, response in listed]
        tokens = [
            tokens_row(name, row[:4], response.tokens)
            for (name, response), row in zip(listed, given, strict=True)
            if response.tokens is not None
        ]
        given.sort(key=itemgetter(0))  # neighbours in the file are written together
        statement = rows.REPLACE_RESPONSE if self._refresh or tokens else rows.INSERT_RESPONSE
        kept = self._writer.submit([(statement, given), *([(INSERT_TOKENS, tokens)] if tokens else [])])
        kept.add_done_callback(self._heard)
        return kept

    def _heard(self, kept: Future[None]) -> None:
        """A cache that cannot be written is a pity, not the end of a run."""
        error = None if kept.cancelled() else kept.exception()
        if error is not None:
            self._note(error)
            if not self._warned:
                self._warned = True
                _LOG.warning("answers are not kept for later runs: %s", error)

    def _note(self, error: BaseException) -> None:
        self._damaged = self._damaged or any(word in str(error) for word in _DAMAGE)

    def __len__(self) -> int:
        count: int = self._reader.execute("SELECT count(*) FROM responses").fetchone()[0]
        return count

    def close(self) -> None:
        """Write what is waiting. A cache that turned out to be damaged is put aside, for the next to start well."""
        self._writer.close()
        self._reader.close()
        if self._damaged:
            try:
                _rebuild(self.path)
            except (AssayError, OSError) as error:
                _LOG.warning("the damaged response cache cannot be put aside: %s", error)


def open_cache(path: Path) -> sqlite3.Connection:
    """The database; a damaged one is put aside and what is sound in it carried over."""
    try:
        return connect(path, CACHE_SCHEMA, durable=False)
    except Malformed:
        with path.open("rb") as file:
            ours = file.read(16) == b"SQLite format 3\0" or path == default_cache()
        if not ours:
            raise  # a file of the user's that was named by mistake stays where it is
    _rebuild(path)
    return connect(path, CACHE_SCHEMA, durable=False)


def _rebuild(path: Path) -> None:
    """Put a sound cache in the place of a damaged one; of several processes that find it so, one does it."""
    with file_lock(path.with_name(f"{path.name}-lock")):
        if path.exists() and not _is_sound(path):
            _LOG.warning("the response cache `%s` was damaged: %s", path, salvage(path, CACHE_SCHEMA))


def _is_sound(path: Path) -> bool:
    try:
        with closing(connect(path, CACHE_SCHEMA, durable=False)) as connection:
            found: tuple[str] = connection.execute("PRAGMA quick_check(1)").fetchone()
            return found == ("ok",)
    except (Malformed, sqlite3.DatabaseError):
        return False
