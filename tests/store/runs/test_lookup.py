"""Which run is meant, and what is said of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import UnknownName
from assay.store.journal.journal import JOURNAL_FILE, Journal
from assay.store.runs.lookup import find_run, list_runs, summarise_run


@pytest.fixture
def runs(workspace: Path) -> list[Path]:
    """Three runs in `assay-runs`, the oldest first."""
    path = str(write_task(workspace))
    return [assay.run(model=make_model(), tasks=[path], limit=limit).folder for limit in (1, 2, 3)]


def test_a_run_is_found_by_id_by_the_start_of_its_id_by_path_and_as_the_latest(runs: list[Path]) -> None:
    one, _, three = runs
    number = next(
        size for size in range(1, 40) if sum(run.name.startswith(one.name[:size]) for run in runs) == 1
    )
    for word in (one.name, one.name[:number], str(one), str(one / JOURNAL_FILE), str(one.resolve())):
        assert find_run(word).resolve() == one.resolve()
    assert find_run("latest") == three
    assert assay.open_run("latest").folder == three


def test_a_folder_with_one_run_is_that_run(workspace: Path) -> None:
    path = str(write_task(workspace))
    run = assay.run(model=make_model(), tasks=[path], limit=1, output_path="once")
    assert find_run("once").resolve() == run.folder.resolve()
    assay.run(model=make_model(), tasks=[path], limit=2, output_path="once")
    with pytest.raises(UnknownName, match="`once` contains 2 runs: once/"):
        find_run("once")


def test_a_start_that_several_runs_share_is_refused_with_their_names(runs: list[Path]) -> None:
    with pytest.raises(UnknownName, match="is ambiguous, 3 runs start with it") as caught:
        find_run("scripted-sums")
    assert runs[0].name in caught.value.what


@pytest.mark.parametrize(
    ("word", "what"), [("nothing-like-it", "no run in"), ("somewhere/else", "there is no run in")]
)
def test_a_run_that_is_not_there_is_refused(runs: list[Path], word: str, what: str) -> None:
    with pytest.raises(UnknownName, match=what):
        find_run(word)


@pytest.mark.parametrize("word", ["", " "])
def test_an_empty_name_is_refused_even_if_there_is_only_one_run(workspace: Path, word: str) -> None:
    assay.run(model=make_model(), tasks=[str(write_task(workspace))], limit=1)
    with pytest.raises(UnknownName, match="the name of the run is empty"):
        find_run(word)


def test_a_misspelt_id_is_guessed(runs: list[Path]) -> None:
    with pytest.raises(UnknownName) as caught:
        find_run(runs[0].name.replace("scripted", "scirpted"))
    assert "did you mean" in caught.value.hint
    assert "all 3" in caught.value.hint


def test_a_folder_without_runs_is_an_error(workspace: Path) -> None:
    with pytest.raises(UnknownName, match="no runs in") as caught:
        find_run("latest")
    assert "--in" in caught.value.hint


def test_runs_are_listed_newest_first_here_there_and_inside_the_folder(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [run.name for run in reversed(runs)]
    assert [summary.id for summary in list_runs()] == expected
    assert [summary.id for summary in list_runs(["assay-runs"])] == expected
    monkeypatch.chdir("assay-runs")
    assert [summary.id for summary in list_runs()] == expected
    assert find_run("latest").name == expected[0]


def test_a_summary_says_how_a_run_stands(workspace: Path, runs: list[Path]) -> None:
    summary = summarise_run(runs[2])
    assert (summary.state, summary.documents, summary.done, summary.tasks) == ("finished", 3, 3, ("sums",))
    assert summary.scores == (("sums", "exact_match", 1.0),)
    held = Journal.open_for_writing(runs[0])
    assert summarise_run(runs[0]).state == "running"
    held.close()
    empty = Journal.open_for_writing(workspace / "assay-runs" / "begun")
    empty.set_facts({"started": 1.0}).result()
    empty.close()
    assert summarise_run(workspace / "assay-runs" / "begun").state == "unfinished"


def test_a_damaged_run_is_listed_as_such(runs: list[Path]) -> None:
    (runs[1] / JOURNAL_FILE).write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    states = {summary.id: summary.state for summary in list_runs()}
    assert states == {
        runs[0].name: "finished",
        runs[1].name: "damaged",
        runs[2].name: "finished",
    }
    assert "damaged" in summarise_run(runs[1]).why
