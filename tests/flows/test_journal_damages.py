"""Damaged journals of killed runs: every command agrees on the damage, and resuming ends with identical results."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.flows.journal_damages import DAMAGES, DamageTest
from tests.making import make_model, write_choices, write_task

import assay
from assay import api
from assay.core.errors import CorruptStore
from assay.store.integrity.row_checksums import CHECKED_COLUMNS, compute_row_checksum
from assay.store.journal.journal import JOURNAL_FILE

SEEDS = 5
"""Damages of each kind, 60 in total; `make soak` makes more."""


@pytest.fixture(scope="module")
def damage_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DamageTest]:
    folder = tmp_path_factory.mktemp("damages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield DamageTest(folder)


@pytest.mark.parametrize("kind", DAMAGES)
def test_any_damage_ends_with_identical_results(damage_test: DamageTest, kind: str) -> None:
    for seed in range(SEEDS):
        damage_test.check(kind, seed)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a finished run that was not closed: it has no page checksums."""
    tasks = [str(write_task(tmp_path)), str(write_choices(tmp_path))]
    run = assay.run(
        model=make_model(lambda request: "7", name="for-damages"),
        tasks=tasks,
        output_path=str(tmp_path),
        no_cache=True,
    )
    run.close()
    (run.folder / "journal.sums").unlink()
    return run.folder


def forge(folder: Path, *, with_checksums: bool) -> None:
    """Turn the wrong answers of a run into correct ones, by hand."""
    with closing(sqlite3.connect(folder / JOURNAL_FILE)) as journal:
        journal.create_function("checksum", -1, compute_row_checksum)
        journal.execute("UPDATE judged SET verdicts = replace(verdicts, '0.0', '1.0')")
        if with_checksums:
            journal.execute(f"UPDATE judged SET crc = checksum({CHECKED_COLUMNS['judged']})")
        journal.commit()


def test_edited_verdicts_are_found(finished: Path) -> None:
    forge(finished, with_checksums=False)
    with pytest.raises(CorruptStore, match="table judged"):
        api.verify(finished)
    with pytest.raises(CorruptStore, match="table judged"):
        assay.open_run(finished).results  # noqa: B018 - reading is the test


def test_verdicts_edited_together_with_their_checksums_are_found(finished: Path) -> None:
    before = api.verify(finished).changes
    assert not before, before
    forge(finished, with_checksums=True)
    found = {change.what: change.count for change in api.verify(finished).changes if change.kind == "scores"}
    assert (
        found["sums: stored scores do not follow from the stored responses (exact_match, filter none)"] == 6
    )


def test_an_edited_estimate_is_found(finished: Path) -> None:
    with closing(sqlite3.connect(finished / JOURNAL_FILE)) as journal:
        journal.create_function("checksum", -1, compute_row_checksum)
        ((content,),) = journal.execute("SELECT content FROM estimates WHERE task = 'sums'")
        edited = re.sub(r'"value": ?[\d.]+', '"value": 0.97', content, count=1)
        assert edited != content
        journal.execute("UPDATE estimates SET content = ? WHERE task = 'sums'", (edited,))
        journal.execute(f"UPDATE estimates SET crc = checksum({CHECKED_COLUMNS['estimates']})")
        journal.commit()
    assert [
        "sums: the stored result of exact_match,none is 0.97" in change.what
        for change in api.verify(finished).changes
    ] == [True]


def test_a_record_of_a_closed_run_is_verified_when_it_is_read(tmp_path: Path) -> None:
    import os

    task = str(write_task(tmp_path))
    run = assay.run(
        model=make_model(name="for-damages"), tasks=[task], output_path=str(tmp_path), no_cache=True
    )
    run.close()
    path = run.folder / JOURNAL_FILE
    before, data = path.stat(), bytearray(path.read_bytes())
    place = data.index(b"What is 3 + 1?")
    data[place + 8] = ord("4")
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the page checksums are not compared
    opened = assay.open_run(run.folder)
    assert opened.results["sums"]["exact_match,none"] == 1.0
    with pytest.raises(CorruptStore, match="table asked"):
        list(opened.samples("sums"))
    opened.close()
    with pytest.raises(CorruptStore, match="damaged"):
        api.verify(run.folder)
