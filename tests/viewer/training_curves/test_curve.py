from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.training_folders import WatchedTraining, write_checkpoint

from assay.store.runs.watches import CheckpointRecord, Watch
from assay.viewer.training_curves.curve import CurveReader, TrainingCurve
from assay.viewer.training_curves.formats import build_checkpoint_payload, describe_best, describe_checkpoint


def test_points_are_in_the_order_of_steps_with_intervals(curve: TrainingCurve) -> None:
    (task,) = curve.tasks
    assert (task.task, task.metric, task.share, task.higher_is_better) == ("sums", "exact_match", True, True)
    assert [(point.step, point.value) for point in task.points] == [
        (100, 0.25),
        (200, 0.6),
        (300, 0.85),
        (400, 0.15),
    ]
    assert all(
        point.low is not None and point.high is not None and point.low < point.value < point.high
        for point in task.points
    )


def test_neighbours_are_compared_on_the_same_documents(curve: TrainingCurve) -> None:
    points = curve.tasks[0].points
    assert points[0].difference is None
    change = points[1].difference
    assert change is not None
    assert (change.documents, change.wins, change.losses) == (40, 14, 0)
    assert change.value == pytest.approx(0.35)
    assert change.interval.low > 0.15  # paired: the same documents stay right


def test_drop_raises_an_alarm(curve: TrainingCurve) -> None:
    (task,) = curve.tasks
    (alarm,) = task.alarms
    assert alarm.checkpoint == "checkpoint-400" and alarm.is_new
    assert (alarm.regression.earlier, alarm.regression.later) == ((300,), (400,))
    assert alarm.regression.difference == pytest.approx(-0.7)
    assert [point.alarm for point in task.points] == [False, False, False, True]


def test_best_checkpoint_has_a_confidence(curve: TrainingCurve) -> None:
    (task,) = curve.tasks
    assert task.best is not None and task.best.name == "checkpoint-300"
    assert task.best_confidence > 0.95
    assert [point.is_candidate for point in task.points] == [False, False, True, False]


def copy_watch(training: WatchedTraining, folder: Path) -> Watch:
    shutil.copytree(training.watch.run_folder, folder)
    return Watch(folder / training.watch.key)


def test_alarms_do_not_depend_on_when_the_curve_is_read(training: WatchedTraining, tmp_path: Path) -> None:
    watch = copy_watch(training, tmp_path / "copy")
    reader = CurveReader(watch)
    records = watch.read_records()
    for name in records:
        shutil.rmtree(watch.folder / "checkpoints")
        for kept in list(records)[: list(records).index(name) + 1]:
            watch.write_record(records[kept])
        live = reader.read()
    assert live.tasks == CurveReader(watch).read().tasks


def test_alarm_levels_are_divided_among_the_tasks_with_alarms(
    training: WatchedTraining, tmp_path: Path
) -> None:
    watch = copy_watch(training, tmp_path / "copy")
    watch.write_settings(replace(watch.read_settings(), alarm_tasks=("other",)))
    (task,) = CurveReader(watch).read().tasks
    assert (task.alpha, task.alarms) == (0.0, ())


def test_what_cannot_be_drawn_is_noted(training: WatchedTraining, tmp_path: Path) -> None:
    watch = copy_watch(training, tmp_path / "copy")
    run = watch.read_records()["checkpoint-100"].run
    watch.write_record(CheckpointRecord(name="final", step=None, outcome="finished", run=run))
    watch.write_record(CheckpointRecord(name="checkpoint-500", step=500, outcome="finished", run="removed"))
    watch.write_record(CheckpointRecord(name="checkpoint-600", step=600, outcome="deleted"))
    curve = CurveReader(watch).read()
    assert len(curve.tasks[0].points) == 4
    assert curve.notes == ("final has no step in its name, so it is not part of the curve",)
    (line,) = describe_checkpoint(curve, "final")
    assert line.startswith("sums exact_match 0.2500 [")
    assert build_checkpoint_payload(curve, "final")["sums"]["value"] == 0.25


def test_metric_without_document_scores_has_no_alarms(tmp_path: Path) -> None:
    training = WatchedTraining(
        tmp_path, metric_list=[{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]
    )
    for step in (1, 2):
        write_checkpoint(training.checkpoints, step, range(10 * step))
    training.build_watcher().run()
    (task,) = CurveReader(training.watch).read().tasks
    assert len(task.points) == 2 and task.alpha == 0 and "no document scores" in task.note


def test_incomplete_checkpoint_is_not_compared_with_the_best(tmp_path: Path) -> None:
    training = WatchedTraining(tmp_path)
    write_checkpoint(training.checkpoints, 1, range(40))
    write_checkpoint(training.checkpoints, 2, range(5))
    training.build_watcher().run()
    training.launcher.options["limit"] = 5
    write_checkpoint(training.checkpoints, 3, range(4))
    training.build_watcher().run()
    (task,) = CurveReader(training.watch).read().tasks
    assert task.best is not None and task.best.name == "checkpoint-2" and task.incomplete == 1
    assert task.note.endswith("many documents have no score: checkpoint-3")
    assert "all others that were compared are worse" in describe_best(task)
