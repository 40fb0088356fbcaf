"""Inspects and prunes the response cache. Runs can use it at the same time."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Any

from assay.core.errors import OutputError
from assay.store.cache.response_cache import open_cache

__all__ = ["CachedModel", "PruneResult", "list_cached_models", "prune_cache"]

_DELETE_BATCH = 5_000
_SIZE_EXPRESSION = (
    "coalesce(sum(coalesce(length(CAST(text AS BLOB)), 0) + coalesce(length(CAST(reasoning AS BLOB)), 0)"
    " + coalesce(length(CAST(tool_calls AS BLOB)), 0) + coalesce(length(CAST(content AS BLOB)), 0)), 0)"
    " + 150 * count(*)"  # estimate for the other columns and the B-tree
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """The cached responses of one model."""

    model: str
    responses: int
    bytes: int
    """Estimated size."""

    oldest: float
    newest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """What was deleted, or would be deleted in a dry run."""

    responses: int
    freed: int
    """Reduction of the file size; 0 while a run uses the cache, which then reuses the space."""


def list_cached_models(path: Path) -> list[CachedModel]:
    """Return the models with cached responses, the one with the most responses first."""
    if not path.exists():
        return []
    query = f"SELECT source, count(*), {_SIZE_EXPRESSION}, min(at), max(at) FROM responses LEFT JOIN tokens USING (fingerprint) GROUP BY source ORDER BY 2 DESC, 1"
    with closing(open_cache(path)) as connection:
        return [
            CachedModel(model=model, responses=count, bytes=size, oldest=oldest, newest=newest)
            for model, count, size, oldest, newest in connection.execute(query)
        ]


def prune_cache(
    path: Path, *, before: float | None = None, model: str | None = None, dry_run: bool = False
) -> PruneResult:
    """Delete responses written before a time, of models that match a glob, in small batches so that runs can continue.

    Raises:
        OutputError: The file cannot be written.
    """
    if not path.exists():
        return PruneResult(responses=0, freed=0)
    conditions, arguments = ["1"], []
    if before is not None:
        conditions.append("at < ?")
        arguments.append(before)
    try:
        with closing(open_cache(path)) as connection:
            sources = [name for (name,) in connection.execute("SELECT DISTINCT source FROM responses")]
            selected = sources if model is None else [name for name in sources if _matches(name, model)]
            conditions.append(f"source IN ({','.join('?' * len(selected))})")
            where = " AND ".join(conditions)
            values: list[Any] = [*arguments, *selected]
            ((count,),) = connection.execute(f"SELECT count(*) FROM responses WHERE {where}", values)
            if dry_run or not count:
                return PruneResult(responses=count, freed=0)
            return _delete(connection, path, where, values)
    except sqlite3.Error as error:
        raise OutputError(f"cannot prune the response cache: {error}", where=str(path)) from None


def _matches(name: str, pattern: str) -> bool:
    import re

    return re.fullmatch(translate(pattern), name) is not None


def _delete(connection: sqlite3.Connection, path: Path, where: str, values: list[Any]) -> PruneResult:
    size = path.stat().st_size
    statement = (
        "DELETE FROM responses WHERE fingerprint IN"
        f" (SELECT fingerprint FROM responses WHERE {where} LIMIT {_DELETE_BATCH})"
    )
    removed = 0
    while (deleted := connection.execute(statement, values).rowcount) > 0:
        removed += deleted
    connection.execute("DELETE FROM tokens WHERE fingerprint NOT IN (SELECT fingerprint FROM responses)")
    with suppress(sqlite3.OperationalError):  # a run uses the cache: it reuses the space
        connection.execute("PRAGMA busy_timeout=1000")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return PruneResult(responses=removed, freed=max(0, size - path.stat().st_size))
