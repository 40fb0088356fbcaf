from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay.core.records.responses import LogProbability, Response, Usage
from assay.store.documents.samples import read_samples
from assay.store.integrity.page_checksums import delete_page_checksums
from assay.store.journal.journal import JOURNAL_FILE, Journal

VERSION_1 = """
CREATE TABLE facts (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE prompts (
    digest TEXT PRIMARY KEY,
    content TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE documents (
    task TEXT NOT NULL, document INTEGER NOT NULL,
    fields TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (task, document)
) WITHOUT ROWID;
CREATE TABLE requests (
    task TEXT NOT NULL, document INTEGER NOT NULL, number INTEGER NOT NULL, repeat INTEGER NOT NULL,
    kind TEXT NOT NULL,
    prompt TEXT NOT NULL,
    argument TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    PRIMARY KEY (task, document, number, repeat)
) WITHOUT ROWID;
CREATE TABLE responses (
    fingerprint TEXT PRIMARY KEY,
    text TEXT, logprob, greedy INTEGER,
    finish TEXT NOT NULL, reasoning TEXT,
    input_tokens INTEGER, output_tokens INTEGER, seconds REAL,
    source TEXT NOT NULL,
    at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE failures (
    fingerprint TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL
);
CREATE TABLE answers (
    task TEXT NOT NULL, document INTEGER NOT NULL, pipeline TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (task, document, pipeline)
) WITHOUT ROWID;
CREATE TABLE verdicts (
    task TEXT NOT NULL, document INTEGER NOT NULL, pipeline TEXT NOT NULL, metric TEXT NOT NULL,
    kind TEXT NOT NULL,
    value,
    why TEXT NOT NULL,
    PRIMARY KEY (task, pipeline, metric, document)
) WITHOUT ROWID;
CREATE TABLE outcomes (
    task TEXT NOT NULL, document INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (task, document)
) WITHOUT ROWID;
CREATE TABLE estimates (
    task TEXT NOT NULL, metric TEXT NOT NULL, pipeline TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (task, metric, pipeline)
) WITHOUT ROWID;
"""
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "facts": [
        ("settings:d", '{"until": []}'),
        ("tasks", '{"b": {"pipelines": ["none", "loud"], "metrics": ["acc"]}}'),
    ],
    "prompts": [("p1", "Q"), ("p2", "é?")],
    "documents": [
        ("b", 0, '{"q": 1}', '{"target": 0}'),
        ("b", 12, '{"q": 2}', '{"target": 1}'),
        ("a", 3, '{"q": 3}', '{"target": "x"}'),
    ],
    "requests": [
        ("b", 0, 0, 0, "likelihood", "p1", " x", "f0"),
        ("b", 0, 1, 0, "likelihood", "p1", " y", "f1"),
        ("b", 12, 0, 0, "likelihood", "p2", " x", "f2"),
        ("a", 3, 0, 0, "generate", "p2", "d", "f3"),
    ],
    "responses": [
        ("f0", None, -0.0, 1, "", None, None, None, None, "model", 2.0),
        ("f1", None, -math.inf, 0, "", None, None, None, None, "model", 1.0),
        ("f3", "four", None, None, "length", b"half \xed\xa0\xbd", 3, 4, 0.5, "cache", 3.0),
    ],
    "failures": [("f2", "timeout", "too late", 3, 4.0)],
    "answers": [
        ("b", 0, "none", '{"values": [[-0.0, true], [-Infinity, false]]}'),
        ("b", 0, "loud", '{"values": ["A", "B"]}'),
        ("a", 3, "none", '{"values": ["four"]}'),
    ],
    "verdicts": [
        ("b", 0, "none", "acc", "score", 0.1 + 0.2, ""),
        ("b", 0, "loud", "acc", "score", math.inf, ""),
        ("a", 3, "none", "f1", "evidence", '{"$tuple":[1,2]}', ""),
        ("a", 3, "none", "acc", "unscored", None, "no number"),
    ],
    "outcomes": [("b", 0, "scored", ""), ("b", 12, "failed", "timeout"), ("a", 3, "unscored", "no number")],
    "estimates": [],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as connection:
        connection.executescript(VERSION_1)
        for table, rows in ROWS.items():
            for row in rows:
                connection.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
        connection.execute("PRAGMA user_version=1")
        connection.commit()
    return tmp_path


@pytest.mark.parametrize("opened", [Journal.open_readonly, Journal.open_for_writing], ids=["read", "written"])
def test_a_journal_of_the_first_format_is_migrated_without_loss(
    folder: Path, opened: Callable[[Path], Journal]
) -> None:
    with closing(opened(folder)) as journal:
        assert journal.finished_documents("b") == {0}
        assert journal.count_outcomes("a") == {"unscored": 1}
        assert list(journal.read_verdicts("b")) == [
            ("loud", "acc", 0, "score", math.inf),
            ("none", "acc", 0, "score", 0.1 + 0.2),
        ]
        assert list(journal.read_verdicts("a")) == [
            ("none", "acc", 3, "unscored", None),
            ("none", "f1", 3, "evidence", (1, 2)),
        ]
        found = journal.find(["f0", "f1", "f2", "f3"])
        assert found == {
            "f0": Response(request_id="f0", value=LogProbability(-0.0, True)),
            "f1": Response(request_id="f1", value=LogProbability(-math.inf, False)),
            "f3": Response(
                request_id="f3",
                value="four",
                finish="length",
                usage=Usage(3, 4),
                seconds=0.5,
                reasoning="half \ud83d",
            ),
        }
        assert journal.count_failed_requests() == (1, 4)
        assert journal.count_rows("failures") == 1
        first, second = read_samples(journal, "b")
        assert (first["filter"], second["filter"]) == ("none", "loud")
        assert first["arguments"] == [["Q", " x"], ["Q", " y"]]
        assert first["resps"] == [[[0.0, True]], [[-math.inf, False]]]
        assert second["filtered_resps"] == ["A", "B"]
        [row] = read_samples(journal, "a")
        assert row["arguments"] == [["é?", {"until": []}]]


def test_looking_at_an_old_journal_leaves_it_as_it_is(folder: Path) -> None:
    before = (folder / JOURNAL_FILE).read_bytes()
    with closing(Journal.open_readonly(folder)) as journal:
        assert journal.count_rows("documents") == 3
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            journal._reader.execute("DELETE FROM main.facts")
    assert (folder / JOURNAL_FILE).read_bytes() == before


def test_an_old_journal_goes_on_in_the_new_format(folder: Path) -> None:
    with closing(Journal.open_for_writing(folder)) as journal:
        journal.add_responses([("f2", Response(request_id="f2", value="late"))], source="model").result()
        journal.add_judged("b", [(12, "scored", "")], [], []).result()
        journal.add_judged("c", [(0, "scored", "")], [], []).result()
    with closing(Journal.open_readonly(folder)) as journal:
        assert journal.count_failed_requests() == (0, 4)
        assert (journal.finished_documents("b"), journal.finished_documents("c")) == ({0, 12}, {0})


def test_a_journal_of_the_second_format_gets_the_table_of_the_judges(tmp_path: Path) -> None:
    Journal.open_for_writing(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as connection:
        connection.execute("DROP TABLE judge_requests")
        connection.execute("PRAGMA user_version=2")
    delete_page_checksums(tmp_path / JOURNAL_FILE)
    for opened in (Journal.open_readonly, Journal.open_for_writing):
        with closing(opened(tmp_path)) as journal:
            assert journal.count_rows("judge_requests") == 0
