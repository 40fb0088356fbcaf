"""The tables of a journal, and how an older journal becomes a newer one.

The version stands in SQLite's `user_version`. `MIGRATIONS[n]` turns version n into n + 1.
"""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

from assay.core.errors import BadOutput, DamagedStore

__all__ = ["CACHE_SCHEMA", "JOURNAL_SCHEMA", "VERSION", "connect"]

VERSION = 1

JOURNAL_SCHEMA = """
CREATE TABLE facts (            -- what the run is: spec, plan, model identity, versions, times
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL         -- JSON
) WITHOUT ROWID;
CREATE TABLE prompts (          -- each exact prompt once, however many requests share it
    digest TEXT PRIMARY KEY,
    content TEXT NOT NULL       -- plain text, or JSON messages when it starts with {"messages":
) WITHOUT ROWID;
CREATE TABLE documents (
    task TEXT NOT NULL, document INTEGER NOT NULL,
    fields TEXT NOT NULL,       -- JSON; media described, not held
    target TEXT NOT NULL,       -- JSON
    PRIMARY KEY (task, document)
) WITHOUT ROWID;
CREATE TABLE requests (
    task TEXT NOT NULL, document INTEGER NOT NULL, number INTEGER NOT NULL, repeat INTEGER NOT NULL,
    kind TEXT NOT NULL,         -- generate | likelihood | rolling
    prompt TEXT NOT NULL,       -- prompts.digest
    argument TEXT NOT NULL,     -- the continuation; for generate the digest of its settings (facts: settings:<digest>)
    fingerprint TEXT NOT NULL,  -- responses.fingerprint
    PRIMARY KEY (task, document, number, repeat)
) WITHOUT ROWID;
CREATE TABLE responses (
    fingerprint TEXT PRIMARY KEY,
    text TEXT, logprob, greedy INTEGER,  -- logprob has no type, because REAL makes 0.0 of -0.0; NULL is NaN
    finish TEXT NOT NULL, reasoning TEXT,
    input_tokens INTEGER, output_tokens INTEGER, seconds REAL,
    source TEXT NOT NULL,       -- model | cache
    at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE failures (         -- every attempt that came to nothing; kept, counted, asked again
    fingerprint TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL
);
CREATE TABLE answers (
    task TEXT NOT NULL, document INTEGER NOT NULL, pipeline TEXT NOT NULL,
    content TEXT NOT NULL,      -- JSON: one value per request
    PRIMARY KEY (task, document, pipeline)
) WITHOUT ROWID;
CREATE TABLE verdicts (
    task TEXT NOT NULL, document INTEGER NOT NULL, pipeline TEXT NOT NULL, metric TEXT NOT NULL,
    kind TEXT NOT NULL,         -- score | evidence | unscored
    value,                      -- a number, or JSON text
    why TEXT NOT NULL,
    PRIMARY KEY (task, pipeline, metric, document)
) WITHOUT ROWID;
CREATE TABLE outcomes (         -- how each document ended
    task TEXT NOT NULL, document INTEGER NOT NULL,
    outcome TEXT NOT NULL,      -- scored | unscored | failed
    why TEXT NOT NULL,
    PRIMARY KEY (task, document)
) WITHOUT ROWID;
CREATE TABLE estimates (
    task TEXT NOT NULL, metric TEXT NOT NULL, pipeline TEXT NOT NULL,
    content TEXT NOT NULL,      -- JSON of an Estimate
    PRIMARY KEY (task, metric, pipeline)
) WITHOUT ROWID;
"""

CACHE_SCHEMA = """
CREATE TABLE responses (
    fingerprint TEXT PRIMARY KEY,
    text TEXT, logprob, greedy INTEGER,  -- logprob has no type, because REAL makes 0.0 of -0.0; NULL is NaN
    finish TEXT NOT NULL, reasoning TEXT,
    input_tokens INTEGER, output_tokens INTEGER, seconds REAL,
    source TEXT NOT NULL,       -- the model's name
    at REAL NOT NULL
) WITHOUT ROWID;
"""

MIGRATIONS: dict[int, str] = {}


def connect(path: Path, schema: str, *, readonly: bool = False, durable: bool = True) -> sqlite3.Connection:
    """Open a database of ours: made when missing, migrated when older, refused when newer or damaged.

    Raises:
        BadOutput: The file cannot be made or opened.
        DamagedStore: The file is not one of ours, or not sound.
    """
    try:
        if readonly:
            connection = sqlite3.connect(_reading(path.resolve()), uri=True, check_same_thread=False)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=60.0)
    except (sqlite3.Error, OSError) as error:
        raise BadOutput(f"cannot open `{path}`: {error}", hint="choose another --output_path") from None
    try:
        _prepare(connection, path, schema, readonly=readonly, durable=durable)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _explained(error, path) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _reading(path: Path) -> str:
    """The address under which a file is read. Where nobody can write, SQLite must not look for other writers."""
    wal = path.with_name(path.name + "-wal")
    still = not os.access(path.parent, os.W_OK) and not wal.exists()
    return f"{path.as_uri()}?mode=ro{'&immutable=1' if still else ''}"


def _prepare(
    connection: sqlite3.Connection, path: Path, schema: str, *, readonly: bool, durable: bool
) -> None:
    version = _version_of_ours(connection, path, schema, readonly=readonly)
    if readonly:
        return
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA cache_size=-32768")  # 32 MB: names are hashes, so pages are hit all over
    connection.execute("PRAGMA wal_autocheckpoint=8192")
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    if version == 0:
        connection.execute("BEGIN IMMEDIATE")  # two processes may make the same cache at the same time
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in re.sub(r"--[^\n]*", "", schema).split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    for step in range(max(version, 1), VERSION):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[step]}; PRAGMA user_version={step + 1}; COMMIT;"
        )


def _version_of_ours(connection: sqlite3.Connection, path: Path, schema: str, *, readonly: bool) -> int:
    """The format of the file, 0 when it is still empty. Anything else than our tables is refused, and untouched."""
    connection.execute("BEGIN")  # one look: another process may be making the tables
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.execute("COMMIT")
    if version > VERSION:
        raise DamagedStore(
            f"the file was written by a newer Assay (format {version}, this one knows {VERSION})",
            where=str(path),
            hint="upgrade Assay",
        )
    empty = version == 0 and not tables
    complete = version == VERSION and tables.issuperset(re.findall(r"CREATE TABLE (\w+)", schema))
    if not (complete or 0 < version < VERSION or (empty and not readonly)):
        raise DamagedStore("the file is a database, but not one of Assay's", where=str(path))
    return version


def _explained(error: sqlite3.DatabaseError, path: Path) -> BadOutput | DamagedStore:
    if isinstance(error, sqlite3.OperationalError):
        return BadOutput(f"cannot write `{path}`: {error}", hint="is the disk full, or the folder read-only?")
    return DamagedStore(f"the file is damaged or not a journal: {error}", where=str(path))
