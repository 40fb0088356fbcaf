"""What counts as damage of a journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from assay.core.errors import CorruptStore
from assay.core.records.agents import AgentEvent
from assay.core.records.documents import Document
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Failure, Response
from assay.core.records.verdicts import Answer, Estimate, RepeatScores, Score
from assay.store.database.schema import JOURNAL_SCHEMA
from assay.store.integrity.damage import describe_damage
from assay.store.integrity.page_checksums import delete_page_checksums
from assay.store.integrity.row_checksums import CHECKED_COLUMNS, compute_checksum
from assay.store.journal.journal import JOURNAL_FILE, Journal


def write_records(folder: Path) -> None:
    """Write at least one record of every kind."""
    request = Generate(
        task="sums", document=0, index=0, repeat=0, prompt=Prompt.of_text("1 + 1 ="), settings=Settings()
    )
    with closing(Journal.open_for_writing(folder)) as journal:
        journal.set_facts({"digest": "d", "started": 1.5})
        journal.add_documents(
            [(Document(task="sums", index=0, fields={"q": "1 + 1"}), "2", [request], ["f0"])]
        )
        journal.add_judge_request(request, "f1", judge="strict")
        journal.add_responses([("f0", Response(request_id="f0", value="2", finish="stop"))], source="model")
        journal.add_failures([("f2", Failure(request_id="f2", kind="timeout", message="slow", attempts=3))])
        steps = {"none": ((("2",),),)}
        journal.add_judged(
            "sums",
            [(0, "scored", "")],
            [Answer(document=0, pipeline="none", values=("2",), steps=steps["none"])],
            [Score(document=0, metric="exact_match", pipeline="none", value=1.0)],
            [RepeatScores(document=0, pipeline="none", answers=(0,), scores={"exact_match": (1.0,)})],
        )
        journal.add_agent_events("sums", 0, 0, [AgentEvent(0, "opened", {"snapshot": "s"})])
        journal.add_estimates(
            [Estimate(task="sums", metric="exact_match", pipeline="none", value=1.0, scored=1)]
        ).result()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal as a killed run leaves it."""
    write_records(tmp_path)
    delete_page_checksums(tmp_path / JOURNAL_FILE)
    return tmp_path / JOURNAL_FILE


@pytest.fixture
def journal(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_an_untouched_journal_is_intact(path: Path) -> None:
    assert describe_damage(path) == ""
    assert describe_damage(path, thorough=True) == ""


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table in CHECKED_COLUMNS for column in CHECKED_COLUMNS[table].split(", ")],
)
def test_a_changed_column_of_any_record_is_found(
    path: Path, journal: sqlite3.Connection, table: str, column: str
) -> None:
    ((value,),) = journal.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchall()
    other = value + 1 if isinstance(value, (int, float)) else "changed"
    journal.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS ?", (other, value))
    assert f"table {table}" in describe_damage(path)
    with pytest.raises(CorruptStore, match="damaged"):
        Journal.open_readonly(path.parent)


@pytest.mark.parametrize("table", CHECKED_COLUMNS)
def test_a_checksum_cannot_be_removed(path: Path, journal: sqlite3.Connection, table: str) -> None:
    journal.execute(f"UPDATE {table} SET crc = {'NULL' if table == 'answered' else 0}")
    assert f"table {table}" in describe_damage(path)


@pytest.mark.parametrize(
    ("statement", "damage"),
    [
        ("DELETE FROM asked", "the record of a document is missing"),
        ("DELETE FROM answered", "the response to a request of a scored document is missing"),
        ("DELETE FROM facts WHERE key LIKE 'settings:%'", "the settings of a request are missing"),
        ("DELETE FROM tasks", "the record of a task is missing"),
    ],
)
def test_a_lost_record_is_found(path: Path, journal: sqlite3.Connection, statement: str, damage: str) -> None:
    journal.execute(statement)
    assert damage in describe_damage(path)


def test_files_without_tables_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(b"")
    assert describe_damage(path) == "it is empty"
    path.write_bytes(b"\xa5" * 9000)
    assert describe_damage(path) == "it is not a database"
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA user_version=0")
    assert "no tables" in describe_damage(path)


def test_a_database_of_another_program_is_not_damaged(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as connection:
        connection.execute("CREATE TABLE other (id)")
    assert describe_damage(tmp_path / JOURNAL_FILE) == ""


def downgrade(journal: sqlite3.Connection) -> None:
    """Turn a journal into one of format 7, whose records have no checksum except responses."""
    journal.create_function("old_checksum", -1, compute_checksum)
    for table in CHECKED_COLUMNS:
        if table == "answered":
            journal.execute(
                "UPDATE answered SET crc = old_checksum(fingerprint, text, logprob, greedy, details)"
            )
        else:
            journal.execute(f"ALTER TABLE {table} DROP COLUMN crc")
    journal.execute("PRAGMA user_version=7")


def test_a_journal_of_the_previous_format_is_read_in_place_and_migrated(
    path: Path, journal: sqlite3.Connection
) -> None:
    downgrade(journal)
    journal.close()
    before = path.read_bytes()
    assert describe_damage(path) == ""
    with closing(Journal.open_readonly(path.parent)) as old:
        assert old.read_facts()["digest"] == "d"
        assert old.find(["f0"])["f0"].value == "2"
        assert list(old.read_verdicts("sums")) == [("none", "exact_match", 0, "score", 1.0)]
    assert path.read_bytes() == before
    with closing(Journal.open_for_writing(path.parent)) as new:
        assert list(new.query("PRAGMA user_version")) == [(JOURNAL_SCHEMA.version,)]
        assert new.find(["f0"])["f0"].value == "2"
        assert list(new.read_verdicts("sums")) == [("none", "exact_match", 0, "score", 1.0)]
    assert describe_damage(path, thorough=True) == ""


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE asked SET requests = substr(requests, 1, 20)",
        "UPDATE judged SET verdicts = '[['",
        "UPDATE answered SET text = '3'",
        "UPDATE facts SET value = 'x'",
    ],
)
def test_damage_that_the_previous_format_can_show_is_found(
    path: Path, journal: sqlite3.Connection, statement: str
) -> None:
    downgrade(journal)
    journal.execute(statement)
    assert describe_damage(path) != ""
