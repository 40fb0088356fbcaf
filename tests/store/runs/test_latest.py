"""`latest` is the run that the user finished or displayed last."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import make_model, write_task

import assay
from assay.store.runs.latest import find_latest, record_latest
from assay.store.runs.lookup import find_run


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs in one folder, in the order of their start."""
    task = str(write_task(tmp_path))
    return [
        assay.run(model=make_model(name=name), tasks=[task], output_path=str(tmp_path / "out")).folder
        for name in ("one", "two")
    ]


def test_the_run_that_finished_last_is_the_latest(runs: list[Path]) -> None:
    assert find_run("latest", [runs[0].parent]) == runs[1]


def test_a_finished_run_that_is_displayed_again_becomes_the_latest(runs: list[Path], tmp_path: Path) -> None:
    model = make_model(name="one")
    again = assay.run(model=model, tasks=[str(tmp_path / "sums.yaml")], output_path=str(tmp_path / "out"))
    assert model.asked == [] and again.folder.name == runs[0].name
    assert find_run("latest", [runs[0].parent]).name == runs[0].name


def test_records_of_one_user_do_not_change_those_of_another(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "other-home"))
    assert find_latest(runs) is None
    assert find_run("latest", [runs[0].parent]) == runs[1]  # the one that ended last
    record_latest(runs[0])
    assert find_run("latest", [runs[0].parent]) == runs[0]
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "third-home"))
    assert find_run("latest", [runs[0].parent]) == runs[1]


def test_removed_runs_and_other_folders_are_ignored(runs: list[Path], tmp_path: Path) -> None:
    record_latest(tmp_path / "out" / "removed")
    assert find_latest(runs) is None
    assert find_latest([tmp_path / "elsewhere" / "run"]) is None
