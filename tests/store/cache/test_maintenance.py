"""What is in the shared cache, and taking some of it out while it is used."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from assay.core.records.responses import Response
from assay.store.cache.maintenance import list_cached_models, prune_cache
from assay.store.cache.response_cache import ResponseCache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ten answers of `a`, half of them a hundred days old, and four of `b/c`."""
    path = tmp_path / "cache.sqlite"
    cache = ResponseCache(path)
    for name, count in (("a", 10), ("b/c", 4)):
        cache.add(
            [(f"{name}-{n}", Response(request_id="", value="x" * 100)) for n in range(count)], model=name
        ).result()
    cache.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE responses SET at = at - 8640000 WHERE fingerprint < 'a-5'")
        connection.commit()
    return path


def test_models_are_listed_with_counts_sizes_and_ages(path: Path) -> None:
    one, other = list_cached_models(path)
    assert (one.model, one.responses, other.model, other.responses) == ("a", 10, "b/c", 4)
    assert one.bytes > 1000
    assert one.newest - one.oldest == pytest.approx(8640000, abs=5)


def test_where_there_is_no_cache_there_is_nothing(tmp_path: Path) -> None:
    assert list_cached_models(tmp_path / "none.sqlite") == []
    assert prune_cache(tmp_path / "none.sqlite").responses == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("age_s", "model", "gone"),
    [(1000, None, 5), (None, "a", 10), (None, "b*", 4), (1000, "b*", 0), (None, None, 14), (10**9, None, 0)],
)
def test_what_is_old_or_of_a_model_goes(
    path: Path, age_s: float | None, model: str | None, gone: int
) -> None:
    import time

    before = None if age_s is None else time.time() - age_s
    assert prune_cache(path, before=before, model=model, dry_run=True).responses == gone
    assert sum(one.responses for one in list_cached_models(path)) == 14, "a dry run takes nothing"
    assert prune_cache(path, before=before, model=model).responses == gone
    assert sum(one.responses for one in list_cached_models(path)) == 14 - gone


def test_pruning_while_a_run_writes_and_reads_harms_neither(path: Path) -> None:
    cache = ResponseCache(path)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(150):
                mark = f"new-{number}"
                cache.add([(mark, Response(request_id="", value=mark))], model="new").result()
                assert cache.find([mark])[mark].value == mark
                cache.find([f"a-{n}" for n in range(10)])
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert prune_cache(path, model="a").responses == 10
    thread.join()
    cache.close()
    assert failures == []
    assert {one.model: one.responses for one in list_cached_models(path)} == {"new": 150, "b/c": 4}
