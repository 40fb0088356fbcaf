"""Checksums of rows: a byte that changed on disk, or a record that was edited, must not change a result unnoticed.

Every row of a journal has a checksum over its other columns, the key included. `add_checked_views` makes a connection
verify it whenever a row is read. Responses in the cache and stored tokens have checksums of their own.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any
from zlib import crc32

__all__ = [
    "CHECKED_COLUMNS",
    "UNCHECKED",
    "RowVerifier",
    "add_checked_views",
    "compute_checksum",
    "compute_joined_checksum",
    "compute_row_checksum",
    "describe_damaged_row",
    "filter_agent_rows",
    "filter_answered_rows",
    "filter_cache_rows",
    "is_answered_row_intact",
    "is_cache_row_intact",
    "is_row_intact",
]

CHECKED_COLUMNS = {
    "facts": "key, value",
    "tasks": "name, first, last",
    "asked": "id, fields, target, count, requests",
    "answered": "fingerprint, text, logprob, greedy, source, at, details",
    "failures": "fingerprint, kind, message, attempts, at",
    "judge_requests": "task, document, judge, fingerprint, number, repeat, prompt, settings",
    "judged": "id, outcome, why, answers, verdicts",
    "filter_steps": "id, content",
    "repeats": "id, content",
    "agent_events": "id, repeat, number, kind, content, at",
    "estimates": "task, metric, pipeline, content",
}
"""The columns of each table that its checksum covers, in order. The row number of a response has no meaning."""

_VERIFIED_COLUMNS = {
    "facts": ("value",),
    "tasks": ("last",),
    "asked": ("fields", "requests"),
    "answered": ("text",),
    "failures": ("message",),
    "judge_requests": ("prompt",),
    "judged": ("outcome", "answers", "verdicts"),
    "filter_steps": ("content",),
    "repeats": ("content",),
    "agent_events": ("content",),
    "estimates": ("content",),
}
"""Columns that verify their row when they are read: every query for the content of a row reads one of them."""

UNCHECKED = "unchecked_"
"""Prefix of columns that do not verify their row."""

_pack_logprob = Struct("<dq").pack
_ANSWERED_COLUMNS = 9
"""Number of columns of `answered` in a journal."""

_CACHE_COLUMNS = (12, 13)
"""Number of columns of `responses` in a cache: rows of older versions have no tool calls."""


def compute_row_checksum(*values: Any) -> int:
    """Return the checksum of the columns of a journal row as SQLite stores them."""
    return crc32("\0".join(map(str, values)).encode())


def compute_joined_checksum(columns: str) -> int:
    """Return the same for columns that the caller joined by NUL characters, which is faster for tables with many rows."""
    return crc32(columns.encode())


def compute_checksum(
    fingerprint: str, text: str | bytes | None, logprob: float | None, greedy: int | None, *more: Any
) -> int:
    """Return the checksum of the columns of a cached response, or of tokens, as SQLite stores them."""
    crc = crc32(fingerprint.encode())
    if text is not None:
        crc = crc32(text if isinstance(text, bytes) else text.encode(), crc)
    elif type(logprob) is float and type(greedy) is int:
        crc = crc32(_pack_logprob(logprob, greedy), crc)
    else:  # no number, or a number of another type
        crc = crc32(f"{logprob!r} {greedy!r}".encode(), crc)
    for value in more:
        if value is not None:
            crc = crc32(value if isinstance(value, bytes) else str(value).encode("utf-8", "replace"), crc)
    return crc


def is_row_intact(table: str, columns: Sequence[Any], crc: int | None) -> bool:
    """Whether the checksum of a journal row matches its columns in the order of `CHECKED_COLUMNS`."""
    if table == "answered":
        return is_answered_row_intact((*columns, crc))
    return crc == compute_row_checksum(*columns)


def describe_damaged_row(table: str, columns: Sequence[Any]) -> str:
    """Return a description of a row whose checksum does not match."""
    return f"the checksum of a record does not match (table {table}, {columns[0]!r})"


class RowVerifier:
    """Verifies rows inside SQLite, and remembers the first damaged one."""

    def __init__(self) -> None:
        self.damage = ""
        """Which row is damaged; empty if none was read."""

    def build_function(self, table: str, position: int) -> Callable[..., Any]:
        """Return a function of the checksum and columns of a row: the column at a position if the row is intact.

        It raises ValueError if the checksum does not match.
        """

        def get_verified_column(crc: int | None, *columns: Any) -> Any:
            if crc == crc32("\0".join(map(str, columns)).encode()) or is_row_intact(table, columns, crc):
                return columns[position]
            self.damage = describe_damaged_row(table, columns)
            raise ValueError(self.damage)

        return get_verified_column


def add_checked_views(connection: sqlite3.Connection, script: str) -> RowVerifier:
    """Make a connection that only reads verify rows: temporary views hide the tables of the journal.

    Reading one of `_VERIFIED_COLUMNS` verifies the row; `unchecked_<column>` is the same column without that, for queries that
    read another one of them and need not verify the row twice. The check is not a condition of the view, because SQLite replaces
    columns in conditions by constants. Queries that only count rows or sum usage read `main.<table>`, which is not verified.
    `script` creates the tables and views of the journal.
    """
    verifier = RowVerifier()
    ((query_only,),) = connection.execute("PRAGMA query_only").fetchall()
    connection.execute("PRAGMA query_only=0")
    connection.execute("PRAGMA temp_store=MEMORY")
    for table, columns in CHECKED_COLUMNS.items():
        names = columns.split(", ")
        shown = ["id"] if table == "answered" else []
        for position, name in enumerate(names):
            if name in _VERIFIED_COLUMNS[table]:
                function = f"verified_{table}_{name}"
                connection.create_function(
                    function, 1 + len(names), verifier.build_function(table, position), deterministic=True
                )
                shown += [f"{function}(crc, {columns}) AS {name}", f"{name} AS {UNCHECKED}{name}"]
            else:
                shown.append(name)
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {', '.join(shown)} FROM main.{table}")
    for statement in re.sub(r"--[^\n]*", "", script).split(";"):
        if "CREATE VIEW" in statement:
            connection.execute(statement.replace("CREATE VIEW", "CREATE TEMP VIEW"))
    connection.execute(f"PRAGMA query_only={query_only}")
    return verifier


def is_answered_row_intact(row: tuple[Any, ...]) -> bool:
    """Whether the checksum of a journal row (fingerprint, text, logprob, greedy, source, at, details, checksum) matches.

    Rows of older formats have a checksum of the response only.
    """
    *values, crc = row
    if crc == compute_row_checksum(*values):
        return True
    fingerprint, text, logprob, greedy, _, _, details = values
    return isinstance(fingerprint, str) and bool(
        crc == compute_checksum(fingerprint, text, logprob, greedy, details)
    )


def is_cache_row_intact(row: tuple[Any, ...]) -> bool:
    """Whether the checksum of a cache row, as `SELECT_RESPONSE` returns it, matches."""
    return row[-1] is None or row[-1] == compute_checksum(*row[:9])


def filter_answered_rows(records: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the intact response rows among the records of a damaged journal, each response once, renumbered."""
    seen: set[str] = set()
    for record in records:
        if len(record) != _ANSWERED_COLUMNS or record[-1] is None:
            continue
        _, fingerprint, text, logprob, greedy, source, at, details, _ = record
        if (
            fingerprint in seen
            or not _all_instances(str, fingerprint, source)
            or not _all_instances((str, type(None)), details)
        ):
            continue
        if (
            isinstance(at, float)
            and _is_response_value(text, logprob, greedy)
            and is_answered_row_intact(record[1:])
        ):
            seen.add(fingerprint)
            yield (len(seen), *record[1:])


def filter_agent_rows(
    records: Iterable[tuple[Any, ...]],
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the intact rows of `tasks` and `agent_events` among the records of a damaged journal.

    Events cannot be computed again: a call that has an effect outside the run must not run twice. Events of a task whose
    row is lost are left out: another task would get their row ids.
    """
    tasks: dict[str, tuple[Any, ...]] = {}
    events: dict[tuple[int, int, int], tuple[Any, ...]] = {}
    for record in records:
        *values, crc = record or (None,)
        if not isinstance(crc, int) or crc != compute_row_checksum(*values):
            continue
        if len(values) == 3 and isinstance(values[0], str) and _all_instances(int, *values[1:]):
            tasks[values[0]] = record
        elif len(values) == 6 and _all_instances(int, *values[:3]) and _all_instances(str, *values[3:5]):
            events[tuple(values[:3])] = record
    ranges = [(first, last) for _, first, last, _ in tasks.values()]
    known = [key for key in sorted(events) if any(first <= key[0] <= last for first, last in ranges)]
    return list(tasks.values()), [events[key] for key in known]


def filter_cache_rows(records: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the intact response rows among the records of a damaged cache; a newer row of a fingerprint comes later."""
    latest: dict[str, float] = {}
    for record in records:
        if len(record) not in _CACHE_COLUMNS or record[11] is None:
            continue
        fingerprint, text, logprob, greedy, finish, reasoning, read, written, seconds, source, at, crc = (
            record[:12]
        )
        calls = record[12] if len(record) > 12 else None
        if not _all_instances(str, fingerprint, finish, source) or not _all_instances(
            (str, bytes, type(None)), reasoning, calls
        ):
            continue
        response = (fingerprint, text, logprob, greedy, finish, reasoning, read, written, calls)
        row = (*response, seconds, source, at, crc)  # in the order of `SELECT_RESPONSE`
        if not _is_response_value(text, logprob, greedy) or not isinstance(at, float):
            continue
        if latest.get(fingerprint, -1.0) <= at and is_cache_row_intact(row):
            latest[fingerprint] = at
            yield row


def _all_instances(kinds: Any, *values: Any) -> bool:
    return all(isinstance(value, kinds) for value in values)


def _is_response_value(text: Any, logprob: Any, greedy: Any) -> bool:
    """Whether the columns are a text, or a log probability (None is NaN) with its greedy flag."""
    if text is not None:
        return isinstance(text, (str, bytes)) and logprob is None and greedy is None
    return isinstance(logprob, (float, int, type(None))) and greedy in (0, 1)
