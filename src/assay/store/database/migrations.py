"""Migrations from older file formats. Each step runs inside a transaction of its caller."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from assay.core.records.codec import encode
from assay.store.database.tables import MAX_DOCUMENTS_PER_TASK
from assay.store.integrity.row_checksums import CHECKED_COLUMNS, compute_row_checksum

__all__ = [
    "AddRowChecksums",
    "AddTable",
    "ReadableStep",
    "add_checksum_column",
    "add_column",
    "merge_rows_by_document",
    "split_statements",
]

_INSERT_ANSWERED = "INSERT INTO answered (id, fingerprint, text, logprob, greedy, source, at, details) VALUES (?,?,?,?,?,?,?,?)"
_VERSION_1_TABLES = ("prompts", "documents", "requests", "responses", "answers", "verdicts", "outcomes")


def split_statements(script: str) -> list[str]:
    """Split a script into statements, because `executescript` would end the transaction."""
    return [part for part in re.sub(r"--[^\n]*", "", script).split(";") if part.strip()]


def merge_rows_by_document(connection: sqlite3.Connection, tables: str) -> None:
    """Migrate 1 -> 2: merge rows per request, answer, verdict and outcome into rows per document."""
    for table in _VERSION_1_TABLES:
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in split_statements(tables):
        if not re.search(r"CREATE TABLE (facts|failures|estimates)\b", statement):
            connection.execute(statement)
    names = "SELECT task FROM old_documents UNION SELECT task FROM old_outcomes ORDER BY task"
    for number, (task,) in enumerate(connection.execute(names).fetchall()):
        first = number * MAX_DOCUMENTS_PER_TASK
        connection.execute(
            "INSERT INTO tasks (name, first, last) VALUES (?,?,?)",
            (task, first, first + MAX_DOCUMENTS_PER_TASK - 1),
        )
        for table, read in (("asked", _read_asked), ("judged", _read_judged)):
            insert = f"INSERT INTO {table} ({CHECKED_COLUMNS[table]}) VALUES (?,?,?,?,?)"
            connection.executemany(insert, read(connection, task, first))
    connection.executemany(_INSERT_ANSWERED, _read_answered(connection))
    for table in _VERSION_1_TABLES:
        connection.execute(f"DROP TABLE old_{table}")


class ReadableStep(Protocol):
    """A step that an older file needs only before it is written; reading needs at most a temporary table."""

    def __call__(self, connection: sqlite3.Connection, tables: str) -> None: ...

    def prepare_reading(self, connection: sqlite3.Connection, tables: str) -> None:
        """Make the connection read the older file like a current one."""
        ...


@dataclass(frozen=True, slots=True)
class AddTable:
    """A step that adds an empty table."""

    name: str

    def __call__(self, connection: sqlite3.Connection, tables: str) -> None:
        self._create(connection, tables, "CREATE TABLE IF NOT EXISTS")

    def prepare_reading(self, connection: sqlite3.Connection, tables: str) -> None:
        """Create the table as a temporary one of this connection, for a read-only file."""
        self._create(connection, tables, "CREATE TEMP TABLE")

    def _create(self, connection: sqlite3.Connection, tables: str, create: str) -> None:
        for statement in split_statements(tables):
            if f"CREATE TABLE {self.name} (" in statement:
                connection.execute(statement.replace("CREATE TABLE", create))


class AddRowChecksums:
    """A step that gives every row of a journal a checksum. The caller must have checked the older file for damage."""

    def __call__(self, connection: sqlite3.Connection, tables: str) -> None:
        connection.create_function("row_checksum", -1, compute_row_checksum, deterministic=True)
        for table, columns in CHECKED_COLUMNS.items():
            present = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
            if not present:
                continue  # a later version adds this table
            if "crc" not in present:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
            missing = " WHERE crc IS NULL" if table == "answered" else ""
            connection.execute(f"UPDATE {table} SET crc = row_checksum({columns}){missing}")

    def prepare_reading(self, connection: sqlite3.Connection, tables: str) -> None:
        """Nothing to do: rows of older files are read without a checksum."""


def add_checksum_column(table: str) -> Callable[[sqlite3.Connection, str], None]:
    """Return a step that adds the checksum column; existing responses have no checksum."""
    return add_column(table, "crc", "INTEGER")


def add_column(table: str, name: str, kind: str) -> Callable[[sqlite3.Connection, str], None]:
    """Return a step that adds a column, which is NULL in existing rows."""

    def step(connection: sqlite3.Connection, tables: str) -> None:
        columns = {found for _, found, *_ in connection.execute(f"PRAGMA table_info({table})")}
        if name not in columns:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")

    return step


def _read_asked(connection: sqlite3.Connection, task: str, first: int) -> Iterator[tuple[Any, ...]]:
    requests = _group_by_document(
        connection,
        "SELECT r.document, r.number, r.repeat, r.kind, p.content, r.argument, r.fingerprint"
        " FROM old_requests r JOIN old_prompts p ON p.digest = r.prompt WHERE r.task = ?"
        " ORDER BY r.document, r.number, r.repeat",
        task,
    )
    query = "SELECT document, fields, target FROM old_documents WHERE task = ? ORDER BY document"
    for document, fields, target in connection.execute(query, (task,)):
        listed = requests.get(document, [])
        prompts = list(dict.fromkeys(row[4] for row in listed))
        content = {
            "prompts": prompts,
            "requests": [(*row[1:4], prompts.index(row[4]), *row[5:]) for row in listed],
        }
        text = json.dumps(content, ensure_ascii=False)
        yield first + document, fields, target, len(listed), text


def _read_judged(connection: sqlite3.Connection, task: str, first: int) -> Iterator[tuple[Any, ...]]:
    query = "SELECT document, pipeline, content FROM old_answers WHERE task = ? ORDER BY document"
    answers = _group_by_document(connection, query, task)
    query = "SELECT document, pipeline, metric, kind, value, why FROM old_verdicts WHERE task = ? ORDER BY document"
    verdicts = _group_by_document(connection, query, task)
    query = "SELECT document, outcome, why FROM old_outcomes WHERE task = ? ORDER BY document"
    for document, outcome, why in connection.execute(query, (task,)):
        values = {
            pipeline: json.loads(content)["values"] for _, pipeline, content in answers.get(document, [])
        }
        listed = [
            (pipeline, metric, kind, _number_or_text(value), reason)
            for _, pipeline, metric, kind, value, reason in verdicts.get(document, [])
        ]
        yield first + document, outcome, why, _json(values), _json(listed)


def _number_or_text(value: Any) -> Any:
    return encode(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read_answered(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    query = (
        "SELECT fingerprint, text, logprob, greedy, source, at, finish, reasoning, input_tokens, output_tokens, seconds"
        " FROM old_responses ORDER BY at"
    )
    names = ("finish", "reasoning", "input_tokens", "output_tokens", "seconds")
    for number, (*head, finish, reasoning, input_tokens, output_tokens, seconds) in enumerate(
        connection.execute(query)
    ):
        if isinstance(reasoning, bytes):
            reasoning = reasoning.decode("utf-8", "surrogatepass")
        known = dict(
            zip(names, (finish or None, reasoning, input_tokens, output_tokens, seconds), strict=True)
        )
        details = {name: value for name, value in known.items() if value is not None}
        yield number, *head, _json(details) if details else None


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _group_by_document(
    connection: sqlite3.Connection, query: str, task: str
) -> dict[int, list[tuple[Any, ...]]]:
    rows = connection.execute(query, (task,))
    return {document: list(group) for document, group in groupby(rows, key=lambda row: row[0])}
