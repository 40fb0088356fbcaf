"""Looking after the response cache: what is in it, and less of it. Runs may use it meanwhile."""

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
    " + coalesce(length(CAST(content AS BLOB)), 0)), 0)"
    " + 150 * count(*)"  # about what the other columns and the place in the tree take
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """The answers of one model."""

    model: str
    responses: int
    bytes: int
    """About."""

    oldest: float
    newest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """What was taken out, or would be."""

    responses: int
    freed_bytes: int
    """Bytes the file became smaller by; 0 while a run uses it, which then reuses the room."""


def list_cached_models(path: Path) -> list[CachedModel]:
    """Every model whose answers are kept, the one with the most first."""
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
    """Take out answers written before a moment, of models a glob matches; in small steps, so that runs go on.

    Raises:
        OutputError: The file cannot be written.
    """
    if not path.exists():
        return PruneResult(responses=0, freed_bytes=0)
    tests, arguments = ["1"], []
    if before is not None:
        tests.append("at < ?")
        arguments.append(before)
    try:
        with closing(open_cache(path)) as connection:
            sources = [name for (name,) in connection.execute("SELECT DISTINCT source FROM responses")]
            chosen = sources if model is None else [name for name in sources if _matches(name, model)]
            tests.append(f"source IN ({','.join('?' * len(chosen))})")
            where = " AND ".join(tests)
            values: list[Any] = [*arguments, *chosen]
            ((count,),) = connection.execute(f"SELECT count(*) FROM responses WHERE {where}", values)
            if dry_run or not count:
                return PruneResult(responses=count, freed_bytes=0)
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
    while (gone := connection.execute(statement, values).rowcount) > 0:
        removed += gone
    connection.execute("DELETE FROM tokens WHERE fingerprint NOT IN (SELECT fingerprint FROM responses)")
    with suppress(sqlite3.OperationalError):  # a run uses it: the room is reused, and freed another time
        connection.execute("PRAGMA busy_timeout=1000")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return PruneResult(responses=removed, freed_bytes=max(0, size - path.stat().st_size))
