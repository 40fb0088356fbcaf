"""Repairs damaged database files: copies the responses with a valid checksum to a new file, and moves the old one aside.

Only responses and the events of agents are copied. Everything else in a journal (requests, verdicts, estimates) is computed
again from the task and the responses when the run is resumed, so that no damaged data can affect a result.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import OutputError
from assay.store.database.schema import CACHE_SCHEMA, JOURNAL_SCHEMA, Schema, open_database
from assay.store.integrity.damage import describe_damage
from assay.store.integrity.page_checksums import delete_page_checksums, read_page_size
from assay.store.integrity.page_reader import scan_records
from assay.store.integrity.row_checksums import (
    filter_agent_rows,
    filter_answered_rows,
    filter_cache_rows,
)
from assay.store.journal.rows import INSERT_ANSWERED, REPLACE_RESPONSE, build_fact_row

__all__ = [
    "RepairResult",
    "move_aside",
    "repair_database",
    "repair_journal_if_damaged",
]

_INSERT_BATCH = 1000
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """The result of repairing a file."""

    responses: int
    """Number of recovered responses."""

    damaged_file: Path
    """The new path of the damaged file."""

    def __str__(self) -> str:
        recovered = f"recovered {self.responses} response{'' if self.responses == 1 else 's'}"
        return f"{recovered}; the damaged file was moved to {self.damaged_file}"


def repair_database(path: Path, schema: Schema) -> RepairResult:
    """Replace a damaged file by a new one with all intact responses.

    The caller must hold the lock.
    """
    size = read_page_size(path)
    repaired = path.with_name(f"{path.stem}.salvaging{path.suffix}")
    _remove(repaired)
    filter_rows, insert, count = _RECOVERY[schema.tables]
    with closing(open_database(repaired, schema, durable=False)) as connection:
        for batch in _batches(filter_rows(scan_records(path, size))):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(insert, batch)
            connection.execute("COMMIT")
        if schema is JOURNAL_SCHEMA:
            tasks, events = filter_agent_rows(scan_records(path, size))
            connection.execute("BEGIN IMMEDIATE")
            if events:
                connection.executemany("INSERT INTO tasks VALUES (?,?,?,?)", tasks)
                connection.executemany("INSERT INTO agent_events VALUES (?,?,?,?,?,?,?)", events)
            # lost events leave no trace: agents without an end must not call tools with effects again
            connection.execute("INSERT INTO facts VALUES (?,?,?)", build_fact_row("repaired", time.time()))
            connection.execute("COMMIT")
        recovered = connection.execute(count).fetchone()[0]
        connection.execute("PRAGMA journal_mode=DELETE")  # a single file can be renamed
    damaged_file = move_aside(path, "damaged")
    repaired.replace(path)
    return RepairResult(responses=recovered, damaged_file=damaged_file)


_RECOVERY = {
    JOURNAL_SCHEMA.tables: (filter_answered_rows, INSERT_ANSWERED, "SELECT count(*) FROM answered"),
    CACHE_SCHEMA.tables: (filter_cache_rows, REPLACE_RESPONSE, "SELECT count(*) FROM responses"),
}
"""For each kind of file: how to filter, insert and count its responses."""


def repair_journal_if_damaged(path: Path) -> None:
    """Replace a damaged journal by a repaired one. The caller must hold the lock."""
    if path.is_file() and path.stat().st_size and (damage := describe_damage(path)):
        result = repair_database(path, JOURNAL_SCHEMA)
        _LOG.warning("repaired the damaged journal `%s`: %s; %s", path, damage, result)


def _batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _INSERT_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def move_aside(path: Path, why: str) -> Path:
    """Rename a database and its WAL files; return the new path.

    Raises:
        OutputError: The folder cannot be written.
    """
    date = time.strftime("%Y%m%d-%H%M%S")
    target = path.with_name(f"{path.stem}.{why}-{date}{path.suffix}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.stem}.{why}-{date}-{number}{path.suffix}")
    try:
        for suffix in ("-wal", "-shm"):
            beside = path.with_name(path.name + suffix)
            if beside.exists():
                beside.replace(target.with_name(target.name + suffix))
        path.replace(target)
    except OSError as error:
        raise OutputError(
            f"cannot rename `{path}`: {error.strerror}", hint="is the folder read-only?"
        ) from None
    delete_page_checksums(path)
    return target


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
