"""Finds damage in a journal. Every command asks `describe_damage`, so that they agree on what is damaged.

A closed journal has page checksums, which are compared first. Otherwise, or in a thorough check, the structure of the file,
the checksum of every row and the references between rows are verified.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from assay.core.errors import AssayError, CorruptStore
from assay.store.database.schema import JOURNAL_SCHEMA, MalformedDatabase, open_database
from assay.store.database.tables import RETRIED_LIST
from assay.store.integrity.page_checksums import find_damaged_pages
from assay.store.integrity.row_checksums import (
    CHECKED_COLUMNS,
    compute_checksum,
    describe_damaged_row,
    is_row_intact,
)

__all__ = ["build_damage_error", "describe_damage"]

_MAGIC = b"SQLite format 3\0"
_INTACT_FILES: dict[Path, tuple[int, ...]] = {}
"""Journals without page checksums that were found intact, with their size and time."""

_SELECT_TOKENS = (
    "SELECT fingerprint, text, logprob, greedy, tokens.content, tokens.crc FROM tokens"
    " LEFT JOIN main.answered USING (id)"
)
_JSON_COLUMNS = {
    "facts": slice(1, 2),
    "asked": slice(1, 5),
    "judged": slice(3, 5),
    "repeats": slice(1, 2),
    "filter_steps": slice(1, 2),
    "estimates": slice(3, 4),
    "agent_events": slice(4, 5),
}
"""Columns with JSON, by position: rows of older formats have no checksum."""


def build_damage_error(path: Path, what: object) -> CorruptStore:
    """Return the error for a damaged journal."""
    hint = f"`assay runs repair {path.parent}` recovers the intact responses, and so does resuming the run"
    return CorruptStore(f"the journal is damaged: {what}", where=str(path), hint=hint)


def describe_damage(path: Path, *, thorough: bool = False) -> str:
    """Return what is damaged in a journal that no process writes; empty if nothing is.

    Without `thorough`, a closed journal is trusted if its size and modification time are unchanged.
    A database of another program is not damaged: opening it raises the error.
    """
    try:
        signature = _compute_signature(path)
        if not path.stat().st_size:
            return "it is empty"
        damaged_pages = find_damaged_pages(path, thorough=thorough)
        if damaged_pages:
            return f"{len(damaged_pages)} pages changed since it was closed"
        if damaged_pages is not None and not thorough:
            return ""
        if not thorough and _INTACT_FILES.get(path) == signature:
            return ""
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return "it is not a database"
    except OSError:  # opening it raises the error
        return ""
    found = _check_database(path)
    if not found:
        _INTACT_FILES[path] = signature
    return found


def _compute_signature(path: Path) -> tuple[int, ...]:
    signature: list[int] = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.exists():
            status = file.stat()
            signature += [status.st_ino, status.st_size, status.st_mtime_ns]
    return tuple(signature)


def _count_unreadable_frames(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or log.stat().st_size == 0:  # as after every complete run
        return 0
    from assay.store.integrity.write_ahead_log import count_unreadable_frames  # loads NumPy

    return count_unreadable_frames(path)


def _check_database(path: Path) -> str:
    try:
        if frames := _count_unreadable_frames(path):
            return f"its write-ahead log is damaged, {frames} pages cannot be read"
        with closing(open_database(path, JOURNAL_SCHEMA, readonly=True)) as connection:
            ((structure,), *_) = connection.execute("PRAGMA quick_check(1)")
            if structure != "ok":
                return str(structure).splitlines()[-1]
            ((version,),) = connection.execute("PRAGMA user_version")
            has_checksums = version == JOURNAL_SCHEMA.version
            return _check_rows(connection, has_checksums=has_checksums) or _check_references(connection)
    except MalformedDatabase as error:
        return error.what
    except AssayError:  # a database of another program, a newer version, or an unreadable file
        return ""
    except sqlite3.Error as error:
        return str(error)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        return f"a record cannot be decoded: {error}"


def _check_rows(connection: sqlite3.Connection, *, has_checksums: bool) -> str:
    """Verify every row; rows of older formats must at least be readable."""
    for table, columns in CHECKED_COLUMNS.items():
        for *values, crc in connection.execute(
            f"SELECT {columns}, {'crc' if has_checksums or table == 'answered' else 'NULL'} FROM {table}"
        ):
            if has_checksums or crc is not None:
                if not is_row_intact(table, values, crc):
                    return describe_damaged_row(table, values)
            elif table in _JSON_COLUMNS:
                for text in values[_JSON_COLUMNS[table]]:
                    json.loads(text) if isinstance(text, str) else None
    for *response, content, crc in connection.execute(_SELECT_TOKENS):
        if response[0] is None or crc != compute_checksum(*response, content):
            return describe_damaged_row("tokens", response)
    return ""


def _check_references(connection: sqlite3.Connection) -> str:
    """Check that what the records of scored documents refer to exists: rows can be lost as a whole."""
    facts = {key for (key,) in connection.execute("SELECT key FROM main.facts")}
    if "imported" in facts:
        return ""  # the files of other harnesses do not contain everything
    stored = {fingerprint for (fingerprint,) in connection.execute("SELECT fingerprint FROM main.answered")}
    documents = connection.execute(
        "SELECT j.id, a.requests FROM main.judged j LEFT JOIN main.asked a ON a.id = j.id"
        f" WHERE j.outcome NOT IN {RETRIED_LIST}"
    )
    for row, requests in documents:
        if requests is None:
            return f"the record of a document is missing (row {row})"
        for _, _, kind, _, argument, fingerprint, *_ in json.loads(requests)["requests"]:
            if fingerprint not in stored:
                return f"the response to a request of a scored document is missing (row {row})"
            if kind == "generate" and f"settings:{argument}" not in facts:
                return f"the settings of a request are missing (row {row})"
    ((tasks,),) = connection.execute(
        "SELECT count(*) FROM main.judged j WHERE NOT EXISTS"
        " (SELECT 1 FROM main.tasks t WHERE j.id BETWEEN t.first AND t.last)"
    )
    return "the record of a task is missing" if tasks else ""
