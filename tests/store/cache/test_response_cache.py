from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from assay.core.records.responses import LogProbability, Response, Usage
from assay.core.records.tools import ToolCall
from assay.store.cache.response_cache import ResponseCache
from assay.store.database.schema import CACHE_SCHEMA
from assay.store.integrity.repair import repair_database

WRITER = """
import sys
from pathlib import Path
from assay.core.records.responses import Response
from assay.store.cache.response_cache import ResponseCache

path, who = Path(sys.argv[1]), sys.argv[2]
cache = ResponseCache(path)
for number in range(200):
    mine = Response(request_id="", value=f"{who} {number}")
    shared = Response(request_id="", value=who)
    cache.add([(f"{who}-{number}", mine), (f"shared-{number}", shared)], model=who)
    cache.find([f"shared-{number}"])
cache.close()
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "home" / "responses.sqlite")
    yield cache
    cache.close()


def test_what_was_added_is_found_under_its_fingerprint(cache: ResponseCache) -> None:
    text = Response(
        request_id="x", value="four", finish="stop", usage=Usage(2, 1), seconds=0.5, reasoning="hm"
    )
    number = Response(request_id="y", value=LogProbability(-0.1, True))
    cache.add([("a", text), ("b", number)], model="m").result()
    found = cache.find(["a", "b", "c"])
    assert found["a"].value == "four"
    assert (found["a"].finish, found["a"].usage, found["a"].reasoning) == ("stop", Usage(2, 1), "hm")
    assert found["b"].value == LogProbability(-0.1, True)
    assert sorted(found) == ["a", "b"]
    assert len(cache) == 2


CALLS = (ToolCall("area", '{"base": 1', "c1"), ToolCall("näme \ud800", "{}"))


def test_tool_calls_are_stored_and_checked(cache: ResponseCache) -> None:
    cache.add([("a", Response(request_id="x", value="", tool_calls=CALLS))], model="m").result()
    assert cache.find(["a"])["a"].tool_calls == CALLS
    with closing(sqlite3.connect(cache.path)) as connection, connection:
        connection.execute("UPDATE responses SET tool_calls = replace(tool_calls, 'area', 'volume')")
    assert cache.find(["a"]) == {}, "the checksum covers the calls"


def test_tool_calls_survive_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with closing(ResponseCache(path)) as cache:
        responses = [
            ("a" * 48, Response(request_id="", value="", tool_calls=CALLS)),
            ("b" * 48, Response(request_id="", value="text")),
        ]
        cache.add(responses, model="m").result()
    assert repair_database(path, CACHE_SCHEMA).responses == 2
    with closing(ResponseCache(path)) as cache:
        found = cache.find(["a" * 48, "b" * 48])
    assert (found["a" * 48].tool_calls, found["b" * 48].tool_calls) == (CALLS, ())


def test_a_cache_without_tool_calls_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with closing(ResponseCache(path)) as cache:
        cache.add([("a" * 48, Response(request_id="", value="kept", finish="stop"))], model="m").result()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE responses DROP COLUMN tool_calls")
        connection.execute("PRAGMA user_version=4")
    with closing(ResponseCache(path)) as cache:
        assert cache.find(["a" * 48])["a" * 48].value == "kept"
        cache.add([("b" * 48, Response(request_id="", value="", tool_calls=CALLS))], model="m").result()
        assert cache.find(["b" * 48])["b" * 48].tool_calls == CALLS
    assert repair_database(path, CACHE_SCHEMA).responses == 2, "rows with and without the column"


def test_nothing_is_found_in_an_empty_cache(cache: ResponseCache) -> None:
    assert (cache.find(["a"]), cache.find([]), len(cache)) == ({}, {}, 0)


def test_the_first_answer_stays(cache: ResponseCache) -> None:
    for value in ("first", "second"):
        cache.add([("a", Response(request_id="", value=value))], model="m").result()
    assert cache.find(["a"])["a"].value == "first"


UNUSABLE = [
    Response(request_id="", value="so it is", finish="length"),
    Response(request_id="", value="", finish="length"),
    Response(request_id="", value="", finish=""),
]


@pytest.mark.parametrize("response", UNUSABLE)
def test_a_truncated_or_unexplained_empty_answer_is_not_stored(
    cache: ResponseCache, response: Response
) -> None:
    refused = Response(request_id="", value="", finish="refused")
    cache.add([("a", response), ("b", refused)], model="m").result()
    assert list(cache.find(["a", "b"])) == ["b"]
    assert len(cache) == 1


@pytest.mark.parametrize("response", UNUSABLE)
def test_a_truncated_answer_of_an_older_cache_is_not_reused(
    cache: ResponseCache, response: Response, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("assay.store.cache.response_cache.is_reusable", lambda response: True)
        cache.add([("a", response)], model="m").result()
    assert len(cache) == 1
    assert cache.find(["a"]) == {}


def test_refreshing_with_a_truncated_answer_removes_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    for response, refresh in (
        (Response(request_id="", value="old", finish="stop"), False),
        (UNUSABLE[0], True),
    ):
        cache = ResponseCache(path, refresh=refresh)
        cache.add([("a", response)], model="m").result()
        cache.close()
    cache = ResponseCache(path)
    assert len(cache) == 0
    cache.close()


def test_the_cache_outlives_its_process(tmp_path: Path) -> None:
    first = ResponseCache(tmp_path / "x.sqlite")
    first.add([("a", Response(request_id="", value="x"))], model="m")
    first.close()
    second = ResponseCache(tmp_path / "x.sqlite")
    assert second.find(["a"])["a"].value == "x"
    second.close()


def test_many_fingerprints_are_found_at_once(cache: ResponseCache) -> None:
    cache.add([(str(n), Response(request_id="", value=str(n))) for n in range(2500)], model="m").result()
    assert len(cache.find([str(n) for n in range(3000)])) == 2500


def test_several_processes_may_make_and_fill_one_cache_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "responses.sqlite"
    names = ["one", "two", "three"]
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stderr=subprocess.PIPE, text=True)
        for name in names
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    cache = ResponseCache(path)
    assert len(cache) == 200 * (len(names) + 1)
    for name in names:
        assert cache.find([f"{name}-199"])[f"{name}-199"].value == f"{name} 199"
    shared = cache.find([f"shared-{number}" for number in range(200)])
    assert {response.value for response in shared.values()} <= set(names)
    cache.close()


def test_truncated_prompts_are_stored(cache: ResponseCache) -> None:
    usage = Usage(5, 1, truncated_tokens=7)
    cut = Response(request_id="", value="four", finish="stop", usage=usage)
    cache.add([("a", cut), ("b", Response(request_id="", value="five"))], model="m").result()
    found = cache.find(["a", "b"])
    assert (found["a"].usage, found["b"].usage) == (usage, None)


def test_a_cache_from_before_truncated_prompts_were_stored_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    with closing(ResponseCache(path)) as cache:
        cache.add([("a", Response(request_id="", value="old"))], model="m").result()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE truncations")
        connection.execute("PRAGMA user_version=3")
    with closing(ResponseCache(path)) as cache:
        assert cache.find(["a"])["a"].value == "old"
