from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import AssayError, OutputError
from assay.store.database.writer import BatchWriter

INSERT = "INSERT INTO numbers VALUES (?)"


class Counting(sqlite3.Connection):
    """A connection that counts its commits, and can be made to wait or to fail."""

    commits = 0
    gate: threading.Event | None = None
    failure: Exception | None = None

    def execute(self, statement: str, *rest: Any) -> sqlite3.Cursor:
        if statement.startswith("BEGIN") and self.gate is not None:
            self.gate.wait(10)
        if statement == "COMMIT":
            if self.failure is not None:
                raise self.failure
            self.commits += 1
        return super().execute(statement, *rest)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "x.sqlite") as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
    connection.close()
    return tmp_path / "x.sqlite"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], tuple[BatchWriter, Counting]]]:
    writers: list[BatchWriter] = []

    def open_writer() -> tuple[BatchWriter, Counting]:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Counting)
        writer = BatchWriter(lambda: connection, name="journal")
        writers.append(writer)
        return writer, connection

    yield open_writer
    for writer in writers:
        writer.close()


Opened = Callable[[], tuple[BatchWriter, Counting]]


def numbers(path: Path) -> list[int]:
    with sqlite3.connect(path) as connection:
        found = [number for (number,) in connection.execute("SELECT n FROM numbers ORDER BY n")]
    connection.close()
    return found


def test_rows_are_on_disk_when_the_future_is_done(path: Path, opened: Opened) -> None:
    writer, _ = opened()
    assert writer.submit([(INSERT, [(1,), (2,)]), (INSERT, [(3,)])]).result(10) is None
    assert numbers(path) == [1, 2, 3]


def test_whatever_is_waiting_goes_into_one_transaction(path: Path, opened: Opened) -> None:
    writer, connection = opened()
    connection.gate = threading.Event()
    futures = [writer.submit([(INSERT, [(number,)])]) for number in range(500)]
    connection.gate.set()
    for future in futures:
        future.result(10)
    assert connection.commits <= 2, "the first may go alone, the rest together"
    assert numbers(path) == list(range(500))


def test_close_writes_what_is_waiting(path: Path, opened: Opened) -> None:
    writer, connection = opened()
    connection.gate = threading.Event()
    futures = [writer.submit([(INSERT, [(number,)])]) for number in range(50)]
    connection.gate.set()
    writer.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert numbers(path) == list(range(50))
    writer.close()  # twice does no harm


def test_an_empty_batch_is_done_at_once(opened: Opened) -> None:
    writer, _ = opened()
    assert writer.submit([]).result(10) is None


def test_a_failure_reaches_everybody_who_waits_and_all_who_come_later(path: Path, opened: Opened) -> None:
    writer, connection = opened()
    writer.submit([(INSERT, [(1,)])]).result(10)
    connection.gate = threading.Event()
    connection.failure = sqlite3.OperationalError("database or disk is full")
    waiting = [writer.submit([(INSERT, [(number,)])]) for number in (2, 3)]
    connection.gate.set()
    for future in waiting:
        with pytest.raises(OutputError, match="cannot write the journal: database or disk is full") as caught:
            future.result(10)
        assert "safe" in caught.value.hint
    connection.failure = None
    with pytest.raises(OutputError, match="disk is full"):
        writer.submit([(INSERT, [(4,)])]).result(10)
    assert numbers(path) == [1], "nothing half written"


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("INSERT INTO nowhere VALUES (?)", (1,)),
        (INSERT, ("not a number",)),
        (INSERT, (1, 2)),
        (INSERT, (object(),)),
        (INSERT, (2**70,)),
        (INSERT, ("\ud800",)),
    ],
    ids=["no table", "a text", "too many", "an object", "a large number", "half a character"],
)
def test_a_row_that_cannot_be_written_is_an_error_and_never_a_silence(
    path: Path, opened: Opened, statement: str, row: tuple[Any, ...]
) -> None:
    writer, _ = opened()
    with pytest.raises(AssayError):
        writer.submit([(INSERT, [(1,)]), (statement, [row])]).result(10)
    assert numbers(path) == []


def test_rows_are_written_even_if_their_future_is_cancelled(path: Path, opened: Opened) -> None:
    writer, connection = opened()
    connection.gate = threading.Event()
    first = writer.submit([(INSERT, [(1,)])])
    second = writer.submit([(INSERT, [(2,)])])
    assert not second.cancel()
    connection.gate.set()
    first.result(10)
    second.result(10)
    writer.submit([(INSERT, [(3,)])]).result(10)
    assert numbers(path) == [1, 2, 3]


def test_what_comes_after_the_end_is_refused_and_does_not_wait_for_ever(opened: Opened) -> None:
    writer, _ = opened()
    writer.close()
    with pytest.raises(AssayError, match="closed"):
        writer.submit([(INSERT, [(1,)])]).result(10)


def test_rows_at_leisure_go_with_the_next_that_somebody_waits_for_and_before_them(
    path: Path, opened: Opened
) -> None:
    writer, connection = opened()
    first = [writer.submit([(INSERT, [(number,)])], deferred=True) for number in range(3)]
    assert not any(future.done() for future in first)
    writer.submit([("INSERT INTO numbers SELECT max(n) + ? FROM numbers", [(10,)])]).result(10)
    assert all(future.done() for future in first)
    assert connection.commits == 1
    assert numbers(path) == [0, 1, 2, 12]


def test_rows_at_leisure_do_not_wait_for_ever(path: Path, opened: Opened) -> None:
    writer, _ = opened()
    assert writer.submit([(INSERT, [(1,)])], deferred=True).result(10) is None
    assert numbers(path) == [1]


def test_rows_at_leisure_are_written_when_the_writer_is_closed(path: Path, opened: Opened) -> None:
    writer, _ = opened()
    future = writer.submit([(INSERT, [(1,)])], deferred=True)
    writer.close()
    assert future.exception() is None
    assert numbers(path) == [1]


@pytest.mark.parametrize("count", [63, 64, 65, 200])
def test_rows_that_go_into_one_statement_are_all_there(path: Path, opened: Opened, count: int) -> None:
    writer, _ = opened()
    writer.submit([(INSERT, [(number,) for number in range(count)])]).result(10)
    assert numbers(path) == list(range(count))


def test_one_bad_row_among_many_is_the_end_of_all(path: Path, opened: Opened) -> None:
    writer, _ = opened()
    with pytest.raises(OutputError, match="UNIQUE"):
        writer.submit([(INSERT, [*[(number,) for number in range(100)], (5,)])]).result(10)
    assert numbers(path) == []
