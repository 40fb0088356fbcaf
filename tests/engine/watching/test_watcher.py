from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from tests.training_folders import WatchedTraining, write_checkpoint

from assay.core.errors import AssayError, ErrorGroup, InvalidOption
from assay.engine.watching.checkpoints import Checkpoint
from assay.store.database.locks import RunLock, is_locked
from assay.store.runs.lookup import find_run_folders
from assay.store.runs.run import Run
from assay.store.runs.watches import CheckpointRecord
from assay.viewer.training_curves.curve import CurveReader


@pytest.fixture
def training(tmp_path: Path) -> WatchedTraining:
    return WatchedTraining(tmp_path)


def read_scores(training: WatchedTraining) -> dict[str, float]:
    """Return the score of each finished checkpoint."""
    scores = {}
    for record in training.watch.read_records().values():
        if record.outcome == "finished":
            run = Run(training.watch.run_folder / record.run)
            scores[record.name] = float(run.estimates[0].value)
            run.close()
    return scores


def test_each_checkpoint_is_evaluated_once(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10, range(20))
    write_checkpoint(training.checkpoints, 20, range(10))
    training.build_watcher().run()
    assert training.launcher.started == ["checkpoint-20", "checkpoint-10"]
    assert read_scores(training) == {"checkpoint-10": 0.5, "checkpoint-20": 0.75}
    write_checkpoint(training.checkpoints, 30)
    training.build_watcher().run()
    assert training.launcher.started[2:] == ["checkpoint-30"]
    assert len(find_run_folders([training.watch.run_folder])) == 3
    assert [record.outcome for record in training.outcomes] == ["finished"] * 3


def test_finished_runs_are_found_again_without_records(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)
    training.build_watcher().run()
    shutil.rmtree(training.watch.folder / "checkpoints")
    training.build_watcher().run()
    assert training.launcher.started == ["checkpoint-10"]
    assert read_scores(training) == {"checkpoint-10": 1.0}


def test_watch_until_a_step_without_a_checkpoint_ends(training: WatchedTraining) -> None:
    for step in (900, 1100):
        write_checkpoint(training.checkpoints, step)
    watcher = training.build_watcher(once=False, until=1000)
    thread = threading.Thread(target=watcher.run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and training.launcher.started == ["checkpoint-900"]


def test_first_of_several_problems_of_a_plan_is_named(
    training: WatchedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(checkpoint: Checkpoint, *, refresh: bool) -> Path:
        raise ErrorGroup([InvalidOption("the first problem"), InvalidOption("the second problem")])

    monkeypatch.setattr(training.launcher, "plan", fail)
    write_checkpoint(training.checkpoints, 10)
    training.build_watcher(max_attempts=1).run()
    assert [record.reason for record in training.outcomes] == ["the first problem (and 1 more)"]


def test_configuration_error_of_a_plan_is_not_retried(
    training: WatchedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    def fail(checkpoint: Checkpoint, *, refresh: bool) -> Path:
        planned.append(checkpoint.name)
        raise InvalidOption("unknown argument `dtpye`") if checkpoint.step == 10 else OSError("disk is busy")

    monkeypatch.setattr(training.launcher, "plan", fail)
    write_checkpoint(training.checkpoints, 10)
    write_checkpoint(training.checkpoints, 20)
    records = training.build_watcher(max_attempts=3).run()
    assert (planned.count("checkpoint-10"), planned.count("checkpoint-20")) == (1, 3)
    assert (records["checkpoint-10"].outcome, records["checkpoint-10"].attempts) == ("failed", 1)


def test_overwritten_checkpoint_is_evaluated_again_if_the_model_cannot_tell(
    training: WatchedTraining,
) -> None:
    path = write_checkpoint(training.checkpoints, 10, range(20))
    training.build_watcher().run()
    (before,) = training.watch.read_records().values()
    reader = CurveReader(training.watch)
    assert reader.read().tasks[0].points[0].value == 0.5
    (path / "wrong.json").write_text(" []")  # not part of the identity of the model of these tests

    def interrupt(checkpoint: Checkpoint) -> None:
        raise KeyboardInterrupt

    training.launcher.before_start = interrupt
    with pytest.raises(KeyboardInterrupt):
        training.build_watcher().run()
    training.launcher.before_start = lambda checkpoint: None
    training.build_watcher().run()
    (after,) = training.watch.read_records().values()
    assert (after.run, after.outcome) == (before.run, "finished")
    assert read_scores(training) == {"checkpoint-10": 1.0}
    assert reader.read().tasks[0].points[0].value == 1.0
    training.build_watcher().run()
    assert training.launcher.started == ["checkpoint-10"] * 3


def test_checkpoints_with_the_same_step_get_one_warning(training: WatchedTraining) -> None:
    first = write_checkpoint(training.checkpoints, 10)
    shutil.copytree(first, first.with_name("checkpoint-10-bf16"))
    training.build_watcher().run()
    assert training.problems == ["checkpoint-10 and checkpoint-10-bf16 have the same step 10"]


def test_incomplete_checkpoint_is_evaluated_when_it_is_finished(training: WatchedTraining) -> None:
    path = write_checkpoint(training.checkpoints, 10)
    weights = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(weights[:-1])
    watcher = training.build_watcher()
    watcher.run()
    assert training.launcher.started == []
    (row,) = watcher.describe()["checkpoints"]
    assert row["state"] == "incomplete" and "truncated" in row["reason"]
    (path / "model.safetensors").write_bytes(weights)
    training.build_watcher().run()
    assert read_scores(training) == {"checkpoint-10": 1.0}


def test_checkpoint_deleted_in_the_queue_is_named(training: WatchedTraining) -> None:
    first = write_checkpoint(training.checkpoints, 10)
    write_checkpoint(training.checkpoints, 20)

    def delete_other(checkpoint: Checkpoint) -> None:
        shutil.rmtree(first)

    training.launcher.after_run = delete_other
    records = training.build_watcher().run()
    assert {name: record.outcome for name, record in records.items()} == {
        "checkpoint-10": "deleted",
        "checkpoint-20": "finished",
    }
    assert records["checkpoint-10"].step == 10


def test_checkpoint_deleted_while_it_is_read_is_named(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)

    def delete(checkpoint: Checkpoint) -> None:
        shutil.rmtree(checkpoint.path)

    training.launcher.before_start = delete
    records = training.build_watcher().run()
    assert records["checkpoint-10"].outcome == "deleted"
    assert "during its evaluation" in records["checkpoint-10"].reason
    assert training.problems == []


def test_checkpoint_deleted_after_loading_keeps_its_result(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)
    training.launcher.after_run = lambda checkpoint: shutil.rmtree(checkpoint.path)
    assert training.build_watcher().run()["checkpoint-10"].outcome == "finished"
    training.build_watcher().run()
    assert read_scores(training) == {"checkpoint-10": 1.0}


def test_checkpoint_deleted_between_two_watches_is_named(training: WatchedTraining) -> None:
    path = write_checkpoint(training.checkpoints, 10)

    def fail(checkpoint: Checkpoint) -> None:
        raise AssayError("out of memory")

    training.launcher.before_start = fail
    training.build_watcher().run()
    shutil.rmtree(path)
    assert training.build_watcher().run()["checkpoint-10"].outcome == "deleted"


def test_failed_checkpoint_is_retried_then_named(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)
    write_checkpoint(training.checkpoints, 20)

    def fail(checkpoint: Checkpoint) -> None:
        if checkpoint.step == 20:
            raise AssayError("out of memory")

    training.launcher.before_start = fail
    records = training.build_watcher().run()
    assert training.launcher.started.count("checkpoint-20") == 3
    assert (records["checkpoint-20"].outcome, records["checkpoint-20"].reason) == ("failed", "out of memory")
    assert records["checkpoint-10"].outcome == "finished"
    assert len(training.problems) == 2 and "attempt 1 of 3 failed" in training.problems[0]
    training.launcher.before_start = lambda checkpoint: None
    assert training.build_watcher().run()["checkpoint-20"].outcome == "finished"


def test_failure_of_one_attempt_is_forgotten(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)
    left = [AssayError("busy")]

    def fail_once(checkpoint: Checkpoint) -> None:
        if left:
            raise left.pop()

    training.launcher.before_start = fail_once
    record = training.build_watcher().run()["checkpoint-10"]
    assert (record.outcome, record.attempts) == ("finished", 1)


def test_rewritten_checkpoint_is_evaluated_again(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10, range(20))
    training.build_watcher().run()
    write_checkpoint(training.checkpoints, 10, range(4))
    training.build_watcher().run()
    assert read_scores(training) == {"checkpoint-10": 0.9}


def test_checkpoint_that_changes_during_its_evaluation_is_not_trusted(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10, range(20))
    changes = [range(10)]

    def rewrite(checkpoint: Checkpoint) -> None:
        if changes:
            write_checkpoint(training.checkpoints, 10, changes.pop())

    training.launcher.after_run = rewrite
    training.build_watcher().run()
    assert training.launcher.refreshed == ["checkpoint-10"]
    assert training.problems == ["checkpoint-10 changed while it was evaluated; it is evaluated again"]
    assert read_scores(training) == {"checkpoint-10": 0.75}


def test_run_of_another_process_is_waited_for(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)
    checkpoint = training.build_watcher().finder.find()[0]
    lock = RunLock(training.launcher.plan(checkpoint, refresh=False))
    lock.acquire()
    release = threading.Timer(0.3, lock.release)
    release.start()
    begin = time.monotonic()
    records = training.build_watcher().run()
    release.join()
    assert time.monotonic() - begin >= 0.3
    assert records["checkpoint-10"].outcome == "finished"
    assert training.launcher.started == ["checkpoint-10"]


def test_run_that_a_killed_watch_left_behind_counts_as_a_job(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)
    write_checkpoint(training.checkpoints, 20)
    old = training.build_watcher().finder.find()[0]
    folder = training.launcher.plan(old, refresh=False)
    training.watch.write_record(
        CheckpointRecord(name=old.name, step=10, outcome="started", stamp=old.stamp, run=folder.name)
    )
    lock = RunLock(folder)
    lock.acquire()
    release = threading.Timer(0.3, lock.release)
    release.start()
    held: list[bool] = []
    training.launcher.before_start = lambda checkpoint: held.append(is_locked(folder))
    training.build_watcher().run()
    release.join()
    assert training.launcher.started == ["checkpoint-20", "checkpoint-10"]
    assert held == [False, False]  # the newest checkpoint waits for the run that is left


def test_until_ignores_later_checkpoints(training: WatchedTraining) -> None:
    for step in (10, 20, 30):
        write_checkpoint(training.checkpoints, step)
    watcher = training.build_watcher(once=False, until=20)
    watcher.run()
    assert sorted(training.launcher.started) == ["checkpoint-10", "checkpoint-20"]
    assert [row["state"] for row in watcher.describe()["checkpoints"]] == ["finished", "finished", "ignored"]


def test_idle_watch_ends(training: WatchedTraining) -> None:
    write_checkpoint(training.checkpoints, 10)
    training.build_watcher(once=False, idle_timeout_s=0.05).run()
    assert training.launcher.started == ["checkpoint-10"]


def test_submitted_checkpoint_comes_first_although_its_name_matches_no_pattern(
    training: WatchedTraining,
) -> None:
    write_checkpoint(training.checkpoints, 10)
    write_checkpoint(training.checkpoints, 20).rename(training.checkpoints / "best")
    watcher = training.build_watcher()
    watcher.submissions.add("best", 5)
    watcher.run()
    assert training.launcher.started == ["best", "checkpoint-10"]
    assert watcher.submissions.status["checkpoints"][1]["priority"] == 5
