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

from assay.core.errors import BadOutput, DamagedStore
from assay.store.pages import records
from assay.store.rows import INSERT_ANSWERED, REPLACE_RESPONSE
from assay.store.schema import CACHE_SCHEMA, JOURNAL_SCHEMA, Schema, connect
from assay.store.seal import break_seal, damaged_pages, page_size
from assay.store.sums import sound_answered, sound_responses

__all__ = ["Salvaged", "damaged_journal", "is_damaged", "make_sound", "salvage", "set_aside"]

_BATCH = 1000
_MAGIC = b"SQLite format 3\0"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What became of a damaged file."""

    responses: int
    """Answers that were kept."""

    aside: Path
    """Where the damaged file is now."""

    def __str__(self) -> str:
        kept = f"{self.responses} answer{'' if self.responses == 1 else 's'} kept"
        return f"{kept}; the damaged file is now {self.aside}"


def salvage(path: Path, schema: Schema) -> Salvaged:
    """Put a sound file in the place of a damaged one, with every response that is whole.

    The caller holds the lock, or is the only one who knows the file.
    """
    size = page_size(path)
    fresh = path.with_name(f"{path.stem}.salvaging{path.suffix}")
    _remove(fresh)
    sound, insert, count = _KINDS[schema.tables]
    with closing(connect(fresh, schema, durable=False)) as connection:
        for batch in _batches(sound(records(path, size))):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(insert, batch)
            connection.execute("COMMIT")
        kept = connection.execute(count).fetchone()[0]
        connection.execute("PRAGMA journal_mode=DELETE")  # one file, so that it can be moved
    aside = set_aside(path, "damaged")
    fresh.replace(path)
    return Salvaged(responses=kept, aside=aside)


_KINDS = {
    JOURNAL_SCHEMA.tables: (sound_answered, INSERT_ANSWERED, "SELECT count(*) FROM answered"),
    CACHE_SCHEMA.tables: (sound_responses, REPLACE_RESPONSE, "SELECT count(*) FROM responses"),
}
"""Of each kind of file: how its responses are recognised, put into a new file, and counted."""


def make_sound(path: Path) -> None:
    """Put a sound journal in the place of a damaged one. The caller holds the lock."""
    if path.is_file() and path.stat().st_size and is_damaged(path):
        _LOG.warning("the journal `%s` was damaged: %s", path, salvage(path, JOURNAL_SCHEMA))


def is_damaged(path: Path, *, thorough: bool = False) -> bool:
    """Whether a journal is not what was written: by its seal; where it has none, by its structure."""
    damaged = damaged_pages(path, thorough=thorough)
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


def damaged_journal(path: Path, error: object) -> DamagedStore:
    """What to say of a journal that cannot be believed."""
    hint = f"`assay runs repair {path.parent}` keeps what is sound; so does repeating the command of the run"
    return DamagedStore(f"the journal is damaged: {error}", where=str(path), hint=hint)


def _batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def set_aside(path: Path, why: str) -> Path:
    """Rename a database and the files that belong to it; returns its new name.

    Raises:
        BadOutput: The folder cannot be written.
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
        raise BadOutput(
            f"cannot put `{path}` aside: {error.strerror}", hint="is the folder read-only?"
        ) from None
    break_seal(path)
    return aside


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
