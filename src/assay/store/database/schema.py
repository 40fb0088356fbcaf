"""Opens database files: creates missing ones, migrates older ones, rejects newer or damaged ones.

The columns are in `tables.py`, changes of older files in `migrations.py`. SQLite's `user_version` holds the version of the format.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from assay.core.errors import CorruptStore, OutputError
from assay.store.database.migrations import (
    AddRowChecksums,
    AddTable,
    ReadableStep,
    add_checksum_column,
    add_column,
    merge_rows_by_document,
    split_statements,
)
from assay.store.database.tables import CACHE_TABLES, JOURNAL_TABLES

__all__ = ["CACHE_SCHEMA", "JOURNAL_SCHEMA", "MalformedDatabase", "Schema", "open_database"]


_MAX_WAL_BYTES = 32 << 20
"""Size of the write-ahead log at which its pages are copied to the file."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one kind of file, the format version, and the migrations from older versions."""

    tables: str
    version: int
    cache_kib: int
    """Size of the page cache of SQLite."""

    page_bytes: int
    """Size of the pages of new files."""

    migrations: Mapping[int, Callable[[sqlite3.Connection, str], None]] = field(default_factory=dict)
    """`migrations[n](connection, tables)` turns version n into n + 1."""

    @property
    def statements(self) -> list[str]:
        """The statements that create the tables."""
        return split_statements(self.tables)


JOURNAL_SCHEMA = Schema(
    JOURNAL_TABLES,
    9,
    4_096,
    8_192,
    {
        1: merge_rows_by_document,
        2: AddTable("judge_requests"),
        3: add_checksum_column("answered"),
        4: AddTable("repeats"),
        5: AddTable("tokens"),
        6: AddTable("filter_steps"),
        7: AddRowChecksums(),
        8: AddTable("agent_events"),
    },
)
CACHE_SCHEMA = Schema(
    CACHE_TABLES,
    5,
    32_768,
    4_096,
    {
        1: add_checksum_column("responses"),
        2: AddTable("tokens"),
        3: AddTable("truncations"),
        4: add_column("responses", "tool_calls", "TEXT"),
    },
)  # keys are hashes, so page access is random


class _ReadOnlyConnection(sqlite3.Connection):
    """A connection that closes itself when it is collected: callers may drop a `Run` without closing it.

    Without it, Python 3.13 and newer emit a ResourceWarning for each run that is dropped.
    """

    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # the file could not be opened
            self.close()


class MalformedDatabase(CorruptStore):
    """A file that SQLite cannot read, unlike a database of another program or a newer version."""


def open_database(
    path: Path, schema: Schema, *, readonly: bool = False, durable: bool = True
) -> sqlite3.Connection:
    """Open a database file: create a missing one, migrate an older one, reject a newer or damaged one.

    Raises:
        OutputError: The file cannot be created or opened.
        CorruptStore: The file belongs to another program, or is damaged.
    """
    try:
        if readonly:
            connection = _open_readonly(path.resolve())
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=60.0)
    except (sqlite3.Error, OSError) as error:
        raise OutputError(f"cannot open `{path}`: {error}", hint="choose another --output_path") from None
    try:
        version = _check_version(connection, path, schema, readonly=readonly)
        if not readonly:
            _prepare(connection, schema, version, durable=durable)
        elif version < schema.version:
            connection = _migrate_for_reading(connection, schema, version)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _explain_error(error, path) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _open_readonly(path: Path) -> sqlite3.Connection:
    """Open a file for reading, also in a read-only folder, where SQLite cannot create its lock file."""
    wal = path.with_name(path.name + "-wal")
    if os.access(path.parent, os.W_OK):
        return _connect_readonly(f"{path.as_uri()}?mode=ro")
    if not wal.exists() or not wal.stat().st_size:
        return _connect_readonly(f"{path.as_uri()}?mode=ro&immutable=1")
    with tempfile.TemporaryDirectory(prefix="assay-read-") as folder:  # the log must be read, too
        for file in (path, wal):
            shutil.copyfile(file, Path(folder) / file.name)
        copy = _connect_readonly(":memory:")
        with closing(sqlite3.connect(Path(folder) / path.name)) as source:
            source.backup(copy)
    copy.execute("PRAGMA query_only=1")
    return copy


def _connect_readonly(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, check_same_thread=False, factory=_ReadOnlyConnection)


def _prepare(connection: sqlite3.Connection, schema: Schema, version: int, *, durable: bool) -> None:
    if version == 0:
        connection.execute(f"PRAGMA page_size={schema.page_bytes}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA cache_size=-{schema.cache_kib}")
    connection.execute(f"PRAGMA wal_autocheckpoint={_MAX_WAL_BYTES // schema.page_bytes}")
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    if version == 0:
        connection.execute("BEGIN IMMEDIATE")  # two processes may create the same cache
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in schema.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={schema.version}")
        connection.execute("COMMIT")
    else:
        _migrate(connection, schema, version)


def _migrate(connection: sqlite3.Connection, schema: Schema, version: int) -> None:
    for step in range(version, schema.version):
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == step:
            schema.migrations[step](connection, schema.tables)
            connection.execute(f"PRAGMA user_version={step + 1}")
        connection.execute("COMMIT")


def _migrate_for_reading(connection: sqlite3.Connection, schema: Schema, version: int) -> sqlite3.Connection:
    """Return a connection to an older file that is only read. Missing tables become temporary ones; if other changes are
    needed, a copy in memory is migrated. The file stays unchanged."""
    steps = [schema.migrations[step] for step in range(version, schema.version)]
    readable: list[ReadableStep] = [step for step in steps if isinstance(step, (AddTable, AddRowChecksums))]
    if len(readable) == len(steps):
        for step in readable:
            step.prepare_reading(connection, schema.tables)
        connection.execute("PRAGMA query_only=1")
        return connection
    copy = sqlite3.connect(
        ":memory:", check_same_thread=False, isolation_level=None, factory=_ReadOnlyConnection
    )
    try:
        with closing(connection):
            connection.backup(copy)
        _migrate(copy, schema, version)
        copy.execute("PRAGMA query_only=1")
    except BaseException:
        copy.close()
        raise
    return copy


def _check_version(connection: sqlite3.Connection, path: Path, schema: Schema, *, readonly: bool) -> int:
    """Return the format version of a file, 0 if it is empty. A database of another program is rejected unchanged."""
    connection.execute("BEGIN")  # one snapshot: another process may be creating the tables
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.execute("COMMIT")
    if version > schema.version:
        raise CorruptStore(
            f"the file was written by a newer version of Assay (format {version}, supported: {schema.version})",
            where=str(path),
            hint="upgrade Assay",
        )
    empty = version == 0 and not tables
    complete = version == schema.version and tables.issuperset(
        re.findall(r"CREATE TABLE (\w+)", schema.tables)
    )
    first = re.findall(r"CREATE TABLE (\w+)", schema.tables)[0]
    older = 0 < version < schema.version and first in tables
    if empty and readonly:
        raise MalformedDatabase("the file is damaged: it contains no tables", where=str(path))
    if not (complete or older or empty):
        raise CorruptStore("the file is a database of another program", where=str(path))
    return version


def _explain_error(error: sqlite3.DatabaseError, path: Path) -> OutputError | CorruptStore:
    if isinstance(error, sqlite3.OperationalError):
        hint = "is the disk full, or the folder read-only?"
        if re.search("lock|disk I/O", str(error)):
            hint = "the disk may be full or without file locks: choose an --output_path on a local disk"
        return OutputError(f"cannot write `{path}`: {error}", hint=hint)
    return MalformedDatabase(
        f"the file is damaged or not a journal: {error}",
        where=str(path),
        hint="`assay runs repair` recovers the intact responses",
    )
