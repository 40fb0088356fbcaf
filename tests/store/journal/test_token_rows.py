"""Tokens are kept beside the answers they belong to, and never beside others."""

from __future__ import annotations

import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from assay.core.errors import CorruptStore
from assay.core.records.responses import LogProbability, Response, Tokens
from assay.store.cache.maintenance import list_cached_models, prune_cache
from assay.store.cache.response_cache import ResponseCache
from assay.store.database.schema import CACHE_SCHEMA, JOURNAL_SCHEMA
from assay.store.documents.details import read_document
from assay.store.documents.records import read_document_records
from assay.store.integrity.page_checksums import delete_page_checksums
from assay.store.journal.journal import JOURNAL_FILE, Journal

TOKENS = Tokens((" fo", "ur", "\n</s>"), (-0.25, -1.5, -math.inf))
TEXT = Response(request_id="a", value=" four", finish="stop", tokens=TOKENS)
NUMBER = Response(request_id="b", value=LogProbability(-0.1, True), tokens=Tokens(("x",), (-0.1,)))


def test_every_token_has_its_number() -> None:
    with pytest.raises(ValueError, match="2 tokens have 1 log-probabilities"):
        Tokens(("a", "b"), (-1.0,))


def test_a_journal_returns_tokens_on_request(tmp_path: Path) -> None:
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        journal.add_responses([("a", TEXT), ("b", NUMBER)], source="model").result()
        journal.add_responses([("c", Response(request_id="c", value="plain"))], source="model").result()
    with closing(Journal.open_readonly(tmp_path)) as journal:
        found = journal.find(["a", "b", "c"], tokens=True)
        assert {name: one.tokens for name, one in found.items()} == {
            "a": TOKENS,
            "b": Tokens(("x",), (-0.1,)),
            "c": None,
        }
        assert all(one.tokens is None for one in journal.find(["a", "b", "c"]).values())
        assert list(journal.query("SELECT count(*) FROM tokens")) == [(2,)]


def test_numbers_are_rounded_and_half_characters_replaced(tmp_path: Path) -> None:
    odd = Response(request_id="a", value="\ud83d", tokens=Tokens(("\ud83d", ""), (-1 / 3, math.nan)))
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        journal.add_responses([("a", odd)], source="model").result()
        tokens = journal.find(["a"], tokens=True)["a"].tokens
    assert tokens is not None
    assert (tokens.pieces, tokens.logprobs[0]) == (("?", ""), -0.333333)
    assert math.isnan(tokens.logprobs[1])


def test_tokens_of_another_answer_are_none(tmp_path: Path) -> None:
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        journal.add_responses([("a", TEXT)], source="model").result()
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as connection:
        connection.execute("UPDATE tokens SET content = replace(content, '-1.5', '-0.5')")
        connection.commit()
    delete_page_checksums(tmp_path / JOURNAL_FILE)
    with pytest.raises(CorruptStore, match="table tokens"):
        Journal.open_readonly(tmp_path)
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        found = journal.find(["a"], tokens=True)
    assert (found["a"].value, found["a"].tokens) == (" four", None)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_journal_that_only_lacks_tables_is_read_where_it_lies(tmp_path: Path, version: int) -> None:
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        journal.add_responses([("a", Response(request_id="a", value="four"))], source="model").result()
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as connection:
        for added, table in ((5, "repeats"), (6, "tokens"), (7, "filter_steps")):
            if version < added:
                connection.execute(f"DROP TABLE {table}")
        connection.execute(f"PRAGMA user_version={version}")
    delete_page_checksums(tmp_path / JOURNAL_FILE)
    before = (tmp_path / JOURNAL_FILE).read_bytes()
    with closing(Journal.open_readonly(tmp_path)) as journal:
        assert journal.find(["a"], tokens=True)["a"].value == "four"
        assert list(journal.read_repeats("any")) == [] and read_document(journal, "any", 0) is None
        assert list(read_document_records(journal, "any")) == []
        files = {file for _, name, file in journal.query("PRAGMA database_list") if name == "main"}
        assert files == {str((tmp_path / JOURNAL_FILE).resolve())}  # not a copy in memory
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            journal._reader.execute("DELETE FROM main.facts")
    assert (tmp_path / JOURNAL_FILE).read_bytes() == before
    with closing(Journal.open_for_writing(tmp_path)) as journal:
        journal.add_responses([("b", NUMBER)], source="model").result()
        assert journal.find(["b"], tokens=True)["b"].tokens == NUMBER.tokens
        assert list(journal.query("PRAGMA user_version")) == [(JOURNAL_SCHEMA.version,)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


def test_a_cached_answer_without_tokens_is_none_for_who_wants_them(path: Path) -> None:
    with closing(ResponseCache(path)) as cache:
        cache.add([("a", Response(request_id="a", value=" five")), ("b", NUMBER)], model="m").result()
        assert sorted(cache.find(["a", "b"])) == ["a", "b"]
        assert cache.find(["a", "b"], tokens=True) == {"b": NUMBER}
        cache.add([("a", TEXT)], model="m").result()  # asked again, with tokens: the later answer counts
        assert cache.find(["a"])["a"].value == " four"
        assert cache.find(["a"], tokens=True)["a"].tokens == TOKENS
        cache.add([("a", Response(request_id="a", value=" six"))], model="m").result()
        assert cache.find(["a"])["a"].value == " four"


def test_an_answer_that_was_replaced_takes_its_tokens_along(path: Path) -> None:
    with closing(ResponseCache(path)) as cache:
        cache.add([("a", TEXT)], model="m").result()
    with closing(ResponseCache(path, refresh=True)) as cache:
        cache.add([("a", Response(request_id="a", value=" five"))], model="m").result()
    with closing(ResponseCache(path)) as cache:
        assert cache.find(["a"])["a"].value == " five"
        assert cache.find(["a"], tokens=True) == {}


def test_a_cache_from_before_there_were_tokens_goes_on(path: Path) -> None:
    with closing(ResponseCache(path)) as cache:
        cache.add([("b", Response(request_id="b", value="old"))], model="m").result()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE tokens")
        connection.execute("PRAGMA user_version=2")
    with closing(ResponseCache(path)) as cache:
        cache.add([("a", TEXT)], model="m").result()
        assert sorted(cache.find(["a", "b"], tokens=True)) == ["a"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (CACHE_SCHEMA.version,)


def test_tokens_count_and_go_with_their_answers(path: Path) -> None:
    with closing(ResponseCache(path)) as cache:
        long = Tokens(("word",) * 1000, (-1.25,) * 1000)
        cache.add([("a", Response(request_id="a", value="x", tokens=long))], model="m").result()
    [told] = list_cached_models(path)
    assert told.responses == 1 and told.bytes > 8_000
    assert prune_cache(path, before=time.time() + 1).responses == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM tokens").fetchone() == (0,)
