"""The response cache shared between runs, keyed by fingerprint. Several processes can use it concurrently."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from assay.core.errors import AssayError, OutputError
from assay.core.home import assay_home
from assay.core.records.responses import Response, Usage
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
    """Return the path of the cache shared by all runs."""
    return assay_home() / "cache.sqlite"


class ResponseSource(Protocol):
    """A source of stored responses, such as the response cache."""

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        """Return the stored responses by fingerprint. With `tokens`, a cache returns only responses stored with tokens,
        so that the others are requested again."""
        ...

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        """Store responses."""
        ...


def is_reusable(response: Response) -> bool:
    """Return whether other runs may reuse a response: not if it is truncated, or empty without a finish reason."""
    if not isinstance(response.value, str):
        return True
    return response.finish != "length" and bool(response.value or response.finish or response.tool_calls)


class ResponseCache:
    """Stored responses of models. Failures and truncated responses are not stored."""

    def __init__(self, path: Path, *, refresh: bool = False) -> None:
        self.path = path
        self._refresh = refresh
        """Find nothing, and replace stored responses by added ones."""

        self._warned = False
        self._damaged = False
        try:
            self._reader = open_cache(path)
        except OutputError as error:
            hint = "choose another file with --use_cache, or disable the cache with --no_cache"
            raise OutputError(error.what, where=error.where, hint=hint) from None
        self._writer = BatchWriter(
            lambda: open_database(path, CACHE_SCHEMA, durable=False), name="response cache"
        )

    def find(self, fingerprints: Sequence[str], *, tokens: bool = False) -> dict[str, Response]:
        """Return the stored responses by fingerprint; with `tokens`, only those stored with tokens.

        If the cache cannot be read, log a warning and return nothing.
        """
        if self._refresh:
            return {}
        try:
            found = self._find(fingerprints)
            return self._attach_tokens(found) if tokens else found
        except sqlite3.Error as error:
            self._check_damage(error)
            _LOG.warning("cannot read the response cache `%s`, continuing without it: %s", self.path, error)
            return {}

    def _find(self, fingerprints: Sequence[str]) -> dict[str, Response]:
        found: dict[str, Response] = {}
        unsound: list[tuple[str]] = []
        for start in range(0, len(fingerprints), _LOOKUP_BATCH):
            chunk = fingerprints[start : start + _LOOKUP_BATCH]
            marks = ",".join("?" * len(chunk))
            for row in self._reader.execute(f"{rows.SELECT_RESPONSE} WHERE fingerprint IN ({marks})", chunk):
                if is_cache_row_intact(row):
                    response = rows.response_from_row(row)
                    if is_reusable(response):
                        found[row[0]] = response
                else:
                    unsound.append((row[0],))
            for name, count in self._reader.execute(
                f"SELECT fingerprint, tokens FROM truncations WHERE fingerprint IN ({marks})", chunk
            ):
                if name in found:
                    usage = found[name].usage or Usage()
                    found[name] = replace(found[name], usage=replace(usage, truncated_tokens=count))
        if unsound:
            _LOG.warning("ignoring %d damaged responses in `%s`", len(unsound), self.path)
            self._writer.submit([(rows.DELETE_RESPONSE, unsound)])
        return found

    def _attach_tokens(self, found: dict[str, Response]) -> dict[str, Response]:
        """Return the responses that are stored with tokens, with their tokens attached."""
        known: dict[str, Response] = {}
        names = list(found)
        for start in range(0, len(names), _LOOKUP_BATCH):
            chunk = names[start : start + _LOOKUP_BATCH]
            query = f"{SELECT_CACHED_TOKENS} WHERE fingerprint IN ({','.join('?' * len(chunk))})"
            known |= attach_tokens(found, self._reader.execute(query, chunk))
        return known

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        """Store responses by fingerprint. Stored responses are replaced only with `refresh`, or if the new ones have
        tokens: tokens are requested only where the stored response has none. Truncated responses are left out."""
        now = time.time()
        given = list(responses)
        entries = [(name, response) for name, response in given if is_reusable(response)]
        outdated = [(name,) for name, response in given if self._refresh and not is_reusable(response)]
        new_rows = [
            rows.build_response_row(name, response, source=model, at=now) for name, response in entries
        ]
        tokens = [
            build_tokens_row(name, row[:4], response.tokens)
            for (name, response), row in zip(entries, new_rows, strict=True)
            if response.tokens is not None
        ]
        truncations = [
            (name, response.usage.truncated_tokens)
            for name, response in entries
            if response.usage is not None and response.usage.truncated_tokens
        ]
        new_rows.sort(key=itemgetter(0))  # writes neighbouring rows of the file together
        statement = rows.REPLACE_RESPONSE if self._refresh or tokens else rows.INSERT_RESPONSE
        batches = [
            (statement, new_rows),
            (INSERT_TOKENS, tokens),
            (rows.INSERT_TRUNCATION, truncations),
            (rows.DELETE_RESPONSE, outdated),
        ]
        written = self._writer.submit([batch for batch in batches if batch[1]])
        written.add_done_callback(self._on_written)
        return written

    def _on_written(self, written: Future[None]) -> None:
        """Log the first failed write; a run continues without the cache."""
        error = None if written.cancelled() else written.exception()
        if error is not None:
            self._check_damage(error)
            if not self._warned:
                self._warned = True
                _LOG.warning("responses are not cached for later runs: %s", error)

    def _check_damage(self, error: BaseException) -> None:
        self._damaged = self._damaged or any(word in str(error) for word in _DAMAGE_MESSAGES)

    def __len__(self) -> int:
        count: int = self._reader.execute("SELECT count(*) FROM responses").fetchone()[0]
        return count

    def close(self) -> None:
        """Write pending responses. If the cache is damaged, rebuild it for the next run."""
        self._writer.close()
        self._reader.close()
        if self._damaged:
            try:
                _rebuild_if_damaged(self.path)
            except (AssayError, OSError) as error:
                _LOG.warning("cannot rebuild the damaged response cache: %s", error)


def open_cache(path: Path) -> sqlite3.Connection:
    """Open the cache database. A damaged one is moved aside and its intact responses are copied to a new one."""
    try:
        return open_database(path, CACHE_SCHEMA, durable=False)
    except MalformedDatabase:
        with path.open("rb") as file:
            is_cache = file.read(16) == b"SQLite format 3\0" or path == default_cache_path()
        if not is_cache:
            raise  # a file the user named by mistake stays unchanged
    _rebuild_if_damaged(path)
    return open_database(path, CACHE_SCHEMA, durable=False)


def _rebuild_if_damaged(path: Path) -> None:
    """Replace a damaged cache. Of several processes that detect the damage, one rebuilds it."""
    with file_lock(path.with_name(f"{path.name}-lock")):
        if path.exists() and not _is_intact(path):
            _LOG.warning(
                "repaired the damaged response cache `%s`: %s", path, repair_database(path, CACHE_SCHEMA)
            )


def _is_intact(path: Path) -> bool:
    try:
        with closing(open_database(path, CACHE_SCHEMA, durable=False)) as connection:
            found: tuple[str] = connection.execute("PRAGMA quick_check(1)").fetchone()
            return found == ("ok",)
    except (MalformedDatabase, sqlite3.DatabaseError):
        return False
