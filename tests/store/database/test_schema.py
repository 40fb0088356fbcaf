from __future__ import annotations

import gc
import os
import sqlite3
import sys
from pathlib import Path

import pytest

from assay.core.errors import AssayError, CorruptStore, OutputError
from assay.store.database.schema import CACHE_SCHEMA, JOURNAL_SCHEMA, Schema, open_database
from assay.store.journal.journal import JOURNAL_FILE, Journal


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            JOURNAL_SCHEMA,
            {
                "facts",
                "tasks",
                "asked",
                "answered",
                "failures",
                "judge_requests",
                "repeats",
                "judged",
                "estimates",
                "tokens",
                "filter_steps",
                "agent_events",
            },
        ),
        (CACHE_SCHEMA, {"responses", "tokens", "truncations"}),
    ],
    ids=["journal", "cache"],
)
def test_a_missing_file_is_made_with_its_folders_tables_and_version(
    tmp_path: Path, schema: Schema, expected: set[str]
) -> None:
    connection = open_database(tmp_path / "deep" / "er" / "x.sqlite", schema)
    assert tables(connection) == expected
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.version,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
def test_a_journal_survives_a_power_cut_and_a_cache_need_not(
    tmp_path: Path, durable: bool, level: int
) -> None:
    connection = open_database(tmp_path / "x.sqlite", CACHE_SCHEMA, durable=durable)
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    connection.close()


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    first = open_database(path, JOURNAL_SCHEMA)
    first.execute("INSERT INTO facts (key, value) VALUES ('a', '1')")
    first.close()
    second = open_database(path, JOURNAL_SCHEMA)
    assert second.execute("SELECT key, value FROM facts").fetchall() == [("a", "1")]
    second.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_of_a_newer_assay_is_refused(tmp_path: Path, readonly: bool) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={JOURNAL_SCHEMA.version + 1}")
    connection.close()
    with pytest.raises(CorruptStore, match="newer version of Assay") as caught:
        open_database(path, JOURNAL_SCHEMA, readonly=readonly)
    assert (caught.value.where, "upgrade" in caught.value.hint) == (str(path), True)


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(
    "content", [b"not a database at all, but a text\n" * 40, b"SQLite format 3\x00" + b"\xff" * 2000]
)
def test_a_file_that_is_not_a_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, readonly: bool
) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(AssayError) as caught:
        open_database(path, JOURNAL_SCHEMA, readonly=readonly)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("version", [0, 1, JOURNAL_SCHEMA.version])
def test_a_database_of_somebody_else_is_refused_and_left_alone(
    tmp_path: Path, readonly: bool, version: int
) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
        connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    with pytest.raises(CorruptStore, match="of another program") as caught:
        open_database(path, JOURNAL_SCHEMA, readonly=readonly)
    assert caught.value.where == str(path)
    with sqlite3.connect(path) as connection:
        assert tables(connection) == {"recipes"}
    connection.close()


def test_a_cache_is_not_taken_for_a_journal(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_FILE
    open_database(path, CACHE_SCHEMA).close()
    with pytest.raises(CorruptStore, match="of another program"):
        Journal.open_readonly(tmp_path)


def test_a_damaged_journal_says_so_when_it_is_read(tmp_path: Path) -> None:
    journal = Journal.open_for_writing(tmp_path)
    journal.set_facts({f"key{number}": "x" * 500 for number in range(200)}).result()
    journal.close()
    path = tmp_path / JOURNAL_FILE
    data = bytearray(path.read_bytes())
    half = len(data) // 2  # the facts; what tables there are stands before them
    data[half:] = b"\xa5" * (len(data) - half)
    path.write_bytes(data)
    with pytest.raises(CorruptStore, match="damaged") as caught:
        Journal.open_readonly(tmp_path)
    assert str(path) in caught.value.where
    (tmp_path / "journal.sums").unlink()  # without page checksums, the rows are checked
    with pytest.raises(CorruptStore, match="damaged") as caught:
        Journal.open_readonly(tmp_path)
    assert "assay runs repair" in caught.value.hint


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot open"):
        open_database(tmp_path, JOURNAL_SCHEMA)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="file"):
        open_database(tmp_path / "file" / "x.sqlite", JOURNAL_SCHEMA)
    with pytest.raises(OutputError, match="file"):
        Journal.open_for_writing(tmp_path / "file")


def test_reading_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(AssayError):
        open_database(tmp_path / "nowhere.sqlite", JOURNAL_SCHEMA, readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_a_dropped_reader_emits_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    open_database(path, JOURNAL_SCHEMA).close()
    gc.collect()
    problems: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", problems.append)
        open_database(path, JOURNAL_SCHEMA, readonly=True)
        with pytest.raises(AssayError):
            open_database(tmp_path / "nowhere.sqlite", JOURNAL_SCHEMA, readonly=True)
        gc.collect()
    assert problems == []


def test_what_is_read_cannot_be_written(tmp_path: Path) -> None:
    open_database(tmp_path / "x.sqlite", JOURNAL_SCHEMA).close()
    connection = open_database(tmp_path / "x.sqlite", JOURNAL_SCHEMA, readonly=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("INSERT INTO facts (key, value) VALUES ('a', '1')")
    connection.close()


@pytest.mark.permissions
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with pytest.raises(OutputError):
        open_database(folder / "x.sqlite", JOURNAL_SCHEMA)
    with pytest.raises(OutputError):
        Journal.open_for_writing(folder)


@pytest.mark.permissions
def test_a_finished_run_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    journal = Journal.open_for_writing(tmp_path / "run")
    journal.set_facts({"a": 1}).result()
    journal.close()
    (tmp_path / "run").chmod(0o500)
    reader = Journal.open_readonly(tmp_path / "run")
    assert reader.read_facts() == {"a": 1}
    reader.close()


def test_a_device_in_the_place_of_the_folder_is_refused() -> None:
    with pytest.raises(OutputError):
        Journal.open_for_writing(Path(os.devnull) / "run")


def write_format_1(path: Path) -> None:
    """A cache as the first format had it: responses without sums."""
    schema = CACHE_SCHEMA.tables.partition("CREATE TABLE tokens")[0].replace(
        "at REAL NOT NULL,", "at REAL NOT NULL"
    )
    schema = schema.replace("    crc INTEGER,", "    -- ").replace("    tool_calls TEXT", "    --")
    with sqlite3.connect(path) as connection:
        connection.executescript(schema)
        connection.execute(
            "INSERT INTO responses (fingerprint, text, finish, source, at) VALUES ('a', 'x', '', 'm', 1)"
        )
        connection.execute("PRAGMA user_version=1")
    connection.close()


def test_a_file_of_an_older_format_is_brought_up_to_date_when_it_is_written(tmp_path: Path) -> None:
    write_format_1(tmp_path / "x.sqlite")
    for _ in range(2):
        connection = open_database(tmp_path / "x.sqlite", CACHE_SCHEMA)
        assert connection.execute("SELECT text, crc FROM responses").fetchall() == [("x", None)]
        assert connection.execute("PRAGMA user_version").fetchone() == (CACHE_SCHEMA.version,)
        connection.close()


def test_a_file_of_an_older_format_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    write_format_1(path)
    before = path.read_bytes()
    connection = open_database(path, CACHE_SCHEMA, readonly=True)
    assert connection.execute("SELECT text, crc FROM responses").fetchall() == [("x", None)]
    connection.close()
    assert path.read_bytes() == before
