"""What is left of a damaged file: its responses, each proven by its own sum. The damaged file is kept aside.

Only responses are carried over. Everything else in a journal (requests, verdicts, estimates) is made again from the
task and the responses when the run is continued, so nothing half-read can reach a number.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import CorruptStore, OutputError
from assay.store.database.schema import CACHE_SCHEMA, JOURNAL_SCHEMA, Schema, open_database
from assay.store.integrity.page_checksums import delete_page_checksums, find_damaged_pages, read_page_size
from assay.store.integrity.page_reader import scan_records
from assay.store.integrity.row_checksums import filter_answered_rows, filter_cache_rows
from assay.store.journal.rows import INSERT_ANSWERED, REPLACE_RESPONSE

__all__ = [
    "RepairResult",
    "build_damage_error",
    "is_damaged",
    "move_aside",
    "repair_database",
    "repair_journal_if_damaged",
]

_INSERT_BATCH = 1000
_MAGIC = b"SQLite format 3\0"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """What became of a damaged file."""

    responses: int
    """Answers that were kept."""

    damaged_file: Path
    """Where the damaged file is now."""

    def __str__(self) -> str:
        kept = f"{self.responses} answer{'' if self.responses == 1 else 's'} kept"
        return f"{kept}; the damaged file is now {self.damaged_file}"


def repair_database(path: Path, schema: Schema) -> RepairResult:
    """Put a sound file in the place of a damaged one, with every response that is whole.

    The caller holds the lock, or is the only one who knows the file.
    """
    size = read_page_size(path)
    fresh = path.with_name(f"{path.stem}.salvaging{path.suffix}")
    _remove(fresh)
    sound, insert, count = _RECOVERY[schema.tables]
    with closing(open_database(fresh, schema, durable=False)) as connection:
        for batch in _batches(sound(scan_records(path, size))):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(insert, batch)
            connection.execute("COMMIT")
        kept = connection.execute(count).fetchone()[0]
        connection.execute("PRAGMA journal_mode=DELETE")  # one file, so that it can be moved
    aside = move_aside(path, "damaged")
    fresh.replace(path)
    return RepairResult(responses=kept, damaged_file=aside)


_RECOVERY = {
    JOURNAL_SCHEMA.tables: (filter_answered_rows, INSERT_ANSWERED, "SELECT count(*) FROM answered"),
    CACHE_SCHEMA.tables: (filter_cache_rows, REPLACE_RESPONSE, "SELECT count(*) FROM responses"),
}
"""Of each kind of file: how its responses are recognised, put into a new file, and counted."""


def repair_journal_if_damaged(path: Path) -> None:
    """Put a sound journal in the place of a damaged one. The caller holds the lock."""
    if path.is_file() and path.stat().st_size and is_damaged(path):
        _LOG.warning("the journal `%s` was damaged: %s", path, repair_database(path, JOURNAL_SCHEMA))


def is_damaged(path: Path, *, thorough: bool = False) -> bool:
    """Whether a journal is not what was written: by its seal; where it has none, by its structure."""
    damaged = find_damaged_pages(path, thorough=thorough)
    if damaged is not None:
        return bool(damaged)
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False  # perhaps somebody else's file: whoever opens it says what it is not
        with closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",))
    except (OSError, sqlite3.OperationalError):  # it cannot be opened at all: whoever opens it says why
        return False
    except sqlite3.DatabaseError:
        return True


def build_damage_error(path: Path, error: object) -> CorruptStore:
    """What to say of a journal that cannot be believed."""
    hint = f"`assay runs repair {path.parent}` keeps what is sound; so does repeating the command of the run"
    return CorruptStore(f"the journal is damaged: {error}", where=str(path), hint=hint)


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
    """Rename a database and the files that belong to it; returns its new name.

    Raises:
        OutputError: The folder cannot be written.
    """
    date = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.stem}.{why}-{date}{path.suffix}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.stem}.{why}-{date}-{number}{path.suffix}")
    try:
        for ending in ("-wal", "-shm"):
            beside = path.with_name(path.name + ending)
            if beside.exists():
                beside.replace(aside.with_name(aside.name + ending))
        path.replace(aside)
    except OSError as error:
        raise OutputError(
            f"cannot put `{path}` aside: {error.strerror}", hint="is the folder read-only?"
        ) from None
    delete_page_checksums(path)
    return aside


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
