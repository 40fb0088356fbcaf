"""Responses shared between runs, by fingerprint. Many processes may use one cache at the same time."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from operator import itemgetter
from pathlib import Path

from assay.core.errors import BadOutput
from assay.core.responses import Response
from assay.store.rows import INSERT_RESPONSE, SELECT_RESPONSE, response_from_row, response_row
from assay.store.schema import CACHE_SCHEMA, connect
from assay.store.writer import GroupWriter

__all__ = ["ResponseCache"]

_CHUNK = 500
_LOG = logging.getLogger(__name__)


class ResponseCache:
    """What models answered before. Failures are never in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._warned = False
        try:
            self._reader = connect(path, CACHE_SCHEMA, durable=False)
        except BadOutput as error:
            hint = "keep it in another file with --use_cache, or leave it alone with --no_cache"
            raise BadOutput(error.what, where=error.where, hint=hint) from None
        self._writer = GroupWriter(lambda: connect(path, CACHE_SCHEMA, durable=False), name="response cache")

    def find(self, fingerprints: Sequence[str]) -> dict[str, Response]:
        """The responses known under these fingerprints. A cache that cannot be read knows nothing, and says so."""
        try:
            return self._find(fingerprints)
        except sqlite3.Error as error:
            _LOG.warning("the response cache `%s` cannot be read, going on without it: %s", self.path, error)
            return {}

    def _find(self, fingerprints: Sequence[str]) -> dict[str, Response]:
        found: dict[str, Response] = {}
        for start in range(0, len(fingerprints), _CHUNK):
            chunk = fingerprints[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            for row in self._reader.execute(f"{SELECT_RESPONSE} WHERE fingerprint IN ({marks})", chunk):
                found[row[0]] = response_from_row(row)
        return found

    def add(self, responses: Iterable[tuple[str, Response]], *, model: str) -> Future[None]:
        """Keep responses under their fingerprints; the first one kept stays."""
        now = time.time()
        rows = [
            response_row(fingerprint, response, source=model, at=now) for fingerprint, response in responses
        ]
        rows.sort(key=itemgetter(0))  # neighbours in the file are written together
        kept = self._writer.submit([(INSERT_RESPONSE, rows)])
        kept.add_done_callback(self._heard)
        return kept

    def _heard(self, kept: Future[None]) -> None:
        """A cache that cannot be written is a pity, not the end of a run."""
        if not kept.cancelled() and kept.exception() is not None and not self._warned:
            self._warned = True
            _LOG.warning("answers are not kept for later runs: %s", kept.exception())

    def __len__(self) -> int:
        count: int = self._reader.execute("SELECT count(*) FROM responses").fetchone()[0]
        return count

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
