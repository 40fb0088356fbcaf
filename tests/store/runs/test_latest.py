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


def test_a_run_stored_elsewhere_is_the_latest_of_the_working_directory(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate after `run --output_path elsewhere` must not take an older run of `assay-runs`."""
    task = str(write_task(workspace))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    old = assay.run(model=make_model(name="old"), tasks=[task]).folder
    assert find_run("latest") == old
    for place in ("inside", str(elsewhere)):
        new = assay.run(model=make_model(name=f"new-{len(place)}"), tasks=[task], output_path=place).folder
        assert find_run("latest").resolve() == new.resolve()
    assert find_run("latest", ["assay-runs"]) == old, "a folder that is named excludes others"
    monkeypatch.chdir(elsewhere)
    assert find_run("latest").resolve() == new.resolve()
