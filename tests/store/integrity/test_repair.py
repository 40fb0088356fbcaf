"""Records read page by page: everything that is there, and nothing that is not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.records.agents import AgentEvent
from assay.core.records.responses import LogProbability, Response, Usage
from assay.store.cache.response_cache import ResponseCache
from assay.store.database.schema import CACHE_SCHEMA, JOURNAL_SCHEMA
from assay.store.integrity.page_reader import scan_records
from assay.store.integrity.repair import move_aside, repair_database
from assay.store.integrity.row_checksums import (
    compute_checksum,
    is_answered_row_intact,
    is_cache_row_intact,
)
from assay.store.journal.journal import JOURNAL_FILE, Journal
from assay.store.journal.rows import (
    build_answered_rows,
    build_response_row,
    response_from_answered,
    response_from_row,
)

VALUES = (
    None,
    0,
    1,
    -1,
    127,
    -128,
    70_000,
    2**40,
    -(2**62),
    0.5,
    -0.0,
    "",
    "text",
    "é" * 900,
    b"",
    b"\x00\xff" * 3000,
)


@pytest.mark.parametrize("ending", ["", "WITHOUT ROWID"])
def test_every_record_of_a_file_is_read_whatever_its_values(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "x.sqlite"
    rows = [(number, value, VALUES[number % 5]) for number, value in enumerate(VALUES * 40)]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t (id TEXT PRIMARY KEY, a, b) {ending}")
        connection.executemany("INSERT INTO t VALUES (?,?,?)", [(f"{n:05}", a, b) for n, a, b in rows])
        connection.commit()
    found = {record[0]: record[1:] for record in scan_records(path, 4096) if len(record) == 3}
    assert found == {f"{number:05}": (a, b) for number, a, b in rows}


def test_records_that_are_only_in_the_write_ahead_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, a) WITHOUT ROWID")
        connection.execute("INSERT INTO t VALUES ('only', 'here')")
        connection.commit()
        assert ("only", "here") in set(scan_records(path, 4096))


@given(st.binary(max_size=9000))
def test_noise_has_no_records_and_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    path = tmp_path_factory.mktemp("noise") / "x.sqlite"
    path.write_bytes(noise)
    for record in scan_records(path, 4096):
        assert isinstance(record, tuple)


@pytest.mark.parametrize(
    "response",
    [
        Response(request_id="", value="four", finish="stop", usage=Usage(2, 1), seconds=0.5, reasoning="hm"),
        Response(request_id="", value="half \ud800 a character"),
        Response(request_id="", value=LogProbability(-0.0, True)),
        Response(request_id="", value=LogProbability(float("-inf"), False)),
        Response(request_id="", value=LogProbability(float("nan"), False)),
    ],
)
def test_a_response_is_intact_until_a_column_changes(response: Response) -> None:
    row = build_response_row("ab" * 24, response, source="model", at=1.0)
    assert is_cache_row_intact(row)
    for at in (0, *([1] if row[1] is not None else [2, 3]), 4, 5, 6, 7):
        assert not is_cache_row_intact((*row[:at], "changed", *row[at + 1 :])), at
    kept = build_answered_rows([(1, "ab", response, "")], source="model", at=1.0)[0][1:]
    assert is_answered_row_intact(kept)
    for at in range(len(kept)):
        assert not is_answered_row_intact((*kept[:at], "changed", *kept[at + 1 :])), at


def test_intact_responses_and_the_damaged_file_are_preserved(tmp_path: Path) -> None:
    journal = Journal.open_for_writing(tmp_path)
    responses = [(f"{n:048}", Response(request_id="", value=f"answer {n} " * 50)) for n in range(300)]
    journal.add_responses(responses, source="model").result()
    journal.close()
    path = tmp_path / JOURNAL_FILE
    data = bytearray(path.read_bytes())
    data[0:4096] = bytes(4096)
    path.write_bytes(data)
    result = repair_database(path, JOURNAL_SCHEMA)
    assert result.responses == 300
    assert result.damaged_file.read_bytes() == data
    journal = Journal.open_readonly(tmp_path)
    assert {key: found.value for key, found in journal.find([mark for mark, _ in responses]).items()} == {
        mark: response.value for mark, response in responses
    }
    journal.close()


def test_the_events_of_agents_are_recovered_with_the_rows_of_their_tasks(tmp_path: Path) -> None:
    events = [AgentEvent(number, "call", {"name": "post", "text": "x" * 20}) for number in range(3)]
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        journal.add_agent_events("first", 0, 0, [])
        journal.add_agent_events("second", 4, 1, events).result()
    repair_database(tmp_path / JOURNAL_FILE, JOURNAL_SCHEMA)
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        assert journal.read_agent_events("second", 4) == {1: events}


@pytest.mark.parametrize("lost", ["first", "second"])
def test_a_lost_row_of_a_task_gives_its_events_to_no_other_task(tmp_path: Path, lost: str) -> None:
    events = {name: [AgentEvent(0, "call", {"name": name})] for name in ("first", "second", "third")}
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        for name in ("first", "second"):
            journal.add_agent_events(name, 0, 0, events[name]).result()
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as connection:
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("DELETE FROM tasks WHERE name = ?", (lost,))
        connection.commit()
    repair_database(tmp_path / JOURNAL_FILE, JOURNAL_SCHEMA)
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        journal.add_agent_events("third", 1, 0, events["third"]).result()
        kept = "second" if lost == "first" else "first"
        assert journal.read_agent_events(kept, 0) == {0: events[kept]}
        assert journal.read_agent_events("third", 0) == {} == journal.read_agent_events(kept, 1)
        assert journal.read_agent_events("third", 1) == {0: events["third"]}


def test_the_newer_of_two_responses_with_one_fingerprint_is_recovered(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    for refresh, value in ((False, "old"), (True, "new")):
        cache = ResponseCache(path, refresh=refresh)
        cache.add([("ab" * 24, Response(request_id="", value=value))], model="m").result()
        cache.close()
    repair_database(path, CACHE_SCHEMA)
    cache = ResponseCache(path)
    assert cache.find(["ab" * 24])["ab" * 24].value == "new"
    cache.close()


def test_files_put_aside_at_the_same_moment_do_not_overwrite_each_other(tmp_path: Path) -> None:
    names = set()
    for content in "abc":
        (tmp_path / "x.sqlite").write_text(content)
        names.add(move_aside(tmp_path / "x.sqlite", "damaged"))
    assert sorted(path.read_text() for path in names) == ["a", "b", "c"]


def test_a_row_of_an_older_format_has_no_sum_and_is_believed() -> None:
    row = (*build_response_row("a", Response(request_id="", value="x"), source="model", at=1.0)[:-1], None)
    assert is_cache_row_intact(row)
    assert response_from_row(row).value == "x"
    older = ("a", "x", None, None, "model", 1.0, None, compute_checksum("a", "x", None, None, None))
    assert is_answered_row_intact(older), "a checksum of the response only"
    assert not is_answered_row_intact((*older[:-1], None)), "the migration adds missing ones"
    assert response_from_answered(older).value == "x"
