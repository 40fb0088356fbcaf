from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.training_folders import build_safetensors, write_checkpoint

from assay.core.errors import InvalidOption
from assay.engine.watching.checkpoints import (
    CheckpointFinder,
    compute_stamp,
    describe_incomplete,
    parse_step,
)


def make_old(path: Path) -> None:
    """Set the times of all files to an hour ago."""
    for file in path.rglob("*"):
        os.utime(file, (time.time() - 3600,) * 2)


def test_finished_checkpoints_are_sorted_by_step(tmp_path: Path) -> None:
    for step in (1000, 200, 30):
        write_checkpoint(tmp_path, step)
    found = CheckpointFinder(tmp_path).find()
    assert [(one.name, one.step, one.incomplete) for one in found] == [
        ("checkpoint-30", 30, ""),
        ("checkpoint-200", 200, ""),
        ("checkpoint-1000", 1000, ""),
    ]


def test_temporary_folders_and_other_names_are_left_out(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1).rename(tmp_path / "tmp-checkpoint-1")
    write_checkpoint(tmp_path, 1).rename(tmp_path / "checkpoint-1.tmp")
    (tmp_path / "runs").mkdir()
    assert CheckpointFinder(tmp_path).find() == []


def test_patterns_may_name_subfolders_and_files(tmp_path: Path) -> None:
    (tmp_path / "step_5").mkdir()
    write_checkpoint(tmp_path, 7).rename(tmp_path / "step_5" / "hf")
    (tmp_path / "model-3.gguf").write_bytes(b"weights")
    os.utime(tmp_path / "model-3.gguf", (0, 0))
    found = CheckpointFinder(tmp_path, ["step_*/hf", "*.gguf"]).find()
    assert [(one.name, one.step, one.incomplete) for one in found] == [
        ("model-3.gguf", 3, ""),
        ("step_5/hf", 5, ""),
    ]


def _truncate(path: Path) -> None:
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-3])


def _write_index(path: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def _write_shard(path: Path) -> None:
    (path / "model.safetensors").rename(path / "model-00001-of-00002.safetensors")


def _write_shard_with_index(path: Path) -> None:
    _write_shard(path)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_truncate, "truncated"),
        (lambda path: (path / "model.safetensors").write_bytes(b""), "truncated"),
        (lambda path: (path / "model.safetensors").write_bytes(b"\xff" * 64), "truncated"),
        (lambda path: (path / "model.safetensors").unlink(), "no weights"),
        (lambda path: (path / "config.json").unlink(), "no config.json"),
        (lambda path: (path / "config.json").write_text('{"a'), "`config.json` is incomplete"),
        (_write_index, "`model-2.safetensors` of `model.safetensors.index.json` is missing"),
        (lambda path: (path / "model.safetensors.index.json").write_text("{"), "is incomplete"),
        (_write_shard, "`model.safetensors.index.json` is missing"),
        (_write_shard_with_index, "`model-00002-of-00002.safetensors` is missing"),
        (lambda path: (path / "model.safetensors.tmp").touch(), "is being written"),
        (lambda path: (path / "training_args.bin").touch(), "`trainer_state.json` is missing"),
    ],
)  # fmt: skip
def test_incomplete_checkpoint_is_described(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    path = write_checkpoint(tmp_path, 1, finished=False)
    make_old(path)
    assert CheckpointFinder(tmp_path).find()[0].incomplete == ""
    damage(path)
    make_old(path)
    (found,) = CheckpointFinder(tmp_path).find()
    assert reason in found.incomplete and not found.settling


def test_files_that_still_change_are_not_evaluated_without_a_marker(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1, finished=False)
    finder = CheckpointFinder(tmp_path, settle_s=60)
    assert finder.find()[0].settling
    make_old(path)
    assert not finder.find()[0].incomplete


def test_file_times_in_the_future_settle_by_the_clock_of_the_watch(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1, finished=False)
    for file in path.iterdir():
        os.utime(file, (time.time() + 3600,) * 2)
    finder = CheckpointFinder(tmp_path, settle_s=0.05)
    assert finder.find()[0].settling
    time.sleep(0.06)
    assert not finder.find()[0].incomplete


@pytest.mark.parametrize("marker", ["DONE", "*.done"])
def test_done_marker_decides(tmp_path: Path, marker: str) -> None:
    path = write_checkpoint(tmp_path, 1)
    finder = CheckpointFinder(tmp_path, done_marker=marker)
    assert f"no `{marker}` yet" in finder.find()[0].incomplete
    (path / marker.replace("*", "model")).touch()
    assert finder.find()[0].incomplete == ""


def test_stamp_changes_with_the_model_and_not_with_the_training_state(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1)
    before = compute_stamp(path)
    (path / "optimizer.pt").write_bytes(b"state")
    (path / "rng_state.pth").write_bytes(b"state")
    assert compute_stamp(path) == before
    (path / "model.safetensors").write_bytes(build_safetensors(b"other weights"))
    assert compute_stamp(path) != before


def test_deleted_checkpoint_is_described(tmp_path: Path) -> None:
    assert describe_incomplete(tmp_path / "checkpoint-1") == ("it is deleted", False)


def test_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="no folder"):
        CheckpointFinder(tmp_path / "nowhere").find()


def test_invalid_pattern_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="invalid pattern"):
        CheckpointFinder(tmp_path, ["/absolute/*"]).find()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500), ("checkpoint-500-bf16", 500), ("checkpoint-1000-lr1e-5", 1000), ("epoch_0.5", 0.5),
        ("epoch_2.5", 2.5), ("step_1e3", 1000), ("step_1200.gguf", 1200), ("global_step40", 40), ("iter_0000100", 100),
        ("epoch_2-step_1200/hf4", 1200), ("run3/step_7", 7), ("model-q8-300.gguf", 300), ("step_1e3b", 1), ("best", None),
        ("step_0010", 10), ("step_7/hf", 7),
    ],
)  # fmt: skip
def test_step_is_the_number_after_its_keyword(name: str, step: float | None) -> None:
    assert parse_step(name) == step
