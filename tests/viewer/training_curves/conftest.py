"""A watched training run that improves and then breaks, shared by the tests of curves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training_folders import WatchedTraining, write_checkpoint

from assay.viewer.training_curves.curve import CurveReader, TrainingCurve

WRONG = {100: 30, 200: 16, 300: 6, 400: 34}
"""Step -> wrong answers of forty."""


@pytest.fixture(scope="package")
def training(tmp_path_factory: pytest.TempPathFactory) -> WatchedTraining:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        made = WatchedTraining(folder)
        for step, wrong in WRONG.items():
            write_checkpoint(made.checkpoints, step, range(wrong))
        made.build_watcher(order="oldest").run()
    return made


@pytest.fixture(scope="package")
def curve(training: WatchedTraining) -> TrainingCurve:
    return CurveReader(training.watch).read()


@pytest.fixture(scope="package")
def folder(training: WatchedTraining) -> Path:
    return training.watch.run_folder
