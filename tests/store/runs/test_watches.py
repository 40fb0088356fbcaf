from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.core.errors import UserError
from assay.store.runs.watches import CheckpointRecord, Watch, WatchSettings, find_watches

SETTINGS = WatchSettings(checkpoints="/out", tasks=("a", "b"), alpha=0.1, alarm_tasks=("a",))


def test_settings_and_records_are_read_back(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "watch-1")
    watch.write_settings(SETTINGS)
    first = CheckpointRecord(name="step_1/hf", step=1.0, outcome="started", run="r1")
    second = CheckpointRecord(name="step_1_hf", step=1.0, outcome="failed", reason="broken", attempts=3)
    for record in (first, second):
        watch.write_record(record)
    assert watch.read_settings() == SETTINGS
    assert watch.read_records() == {"step_1/hf": first, "step_1_hf": second}
    later = CheckpointRecord(name="step_1/hf", step=1.0, outcome="finished", run="r1", ended_s=5.0)
    watch.write_record(later)
    assert watch.read_records()["step_1/hf"] == later


def test_damaged_records_are_left_out(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "watch-1")
    watch.write_record(CheckpointRecord(name="a", step=None, outcome="started"))
    folder = watch.folder / "checkpoints"
    (folder / "cut.json").write_text('{"name": "b", "st')
    (folder / "other.json").write_text("[1]")
    (folder / "newer.json").write_text('{"name": "c", "step": 1, "outcome": "finished", "unknown": 2}')
    assert sorted(watch.read_records()) == ["a", "c"]


def test_events_survive_a_line_that_was_cut_off(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.read_events() == set()
    watch.add_event("result:1")
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": "resu')
    assert watch.read_events() == {"result:1"}


def test_watches_are_found_newest_first(tmp_path: Path) -> None:
    for age, name in enumerate(("watch-new", "watch-old")):
        Watch(tmp_path / name).write_settings(SETTINGS)
        os.utime(tmp_path / name / "watch.json", (1000 - age,) * 2)
    (tmp_path / "watch-empty").mkdir()
    assert [watch.key for watch in find_watches([tmp_path, tmp_path, tmp_path / "none"])] == [
        "watch-new",
        "watch-old",
    ]


def test_missing_settings_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no watch"):
        Watch(tmp_path).read_settings()
