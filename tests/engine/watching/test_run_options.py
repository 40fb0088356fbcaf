from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import InvalidOption
from assay.engine.watching.checkpoints import Checkpoint
from assay.engine.watching.run_options import (
    build_run_options,
    complete_watch_options,
    compute_watch_digest,
)

CHECKPOINT = Checkpoint(name="step_5/hf", path=Path("/out/step_5/hf"), step=5.0, stamp="")


def test_default_is_the_hf_model_with_the_checkpoint() -> None:
    options = build_run_options(complete_watch_options({"tasks": ["a"]}), CHECKPOINT)
    assert options["model"] == "hf"
    assert options["model_args"] == {"pretrained": "/out/step_5/hf"}
    assert options["name"] == "step_5-hf"


def test_placeholders_are_filled_in_everywhere() -> None:
    given = {
        "model": "vllm",
        "model_args": {"model": "x:{name}@{step}", "nested": [{"path": "{checkpoint}"}]},
    }
    options = build_run_options(complete_watch_options(given), CHECKPOINT)
    assert options["model_args"] == {"model": "x:step_5/hf@5", "nested": [{"path": "/out/step_5/hf"}]}


def test_large_steps_are_written_in_full() -> None:
    checkpoint = Checkpoint(name="step_1234567", path=Path("/out"), step=1234567.0, stamp="")
    given = {"model": "vllm", "model_args": {"model": "{step}"}}
    assert build_run_options(complete_watch_options(given), checkpoint)["model_args"] == {"model": "1234567"}


@pytest.mark.parametrize(
    "given",
    [
        {"model": "vllm"},
        {"model_args": {"pretrained": "gpt2"}},
        {"model": "llamacpp", "model_args": "model=a.gguf"},
    ],
)
def test_arguments_without_the_checkpoint_are_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="do not contain the checkpoint"):
        complete_watch_options(given)


def test_digest_depends_on_what_affects_results() -> None:
    base = complete_watch_options({"tasks": ["a"]})
    same = {**base, "batch_size": 8, "output_path": "elsewhere"}
    assert compute_watch_digest(base, "/out") == compute_watch_digest(same, "/out")
    assert compute_watch_digest(base, "/out") != compute_watch_digest({**base, "limit": 5}, "/out")
    assert compute_watch_digest(base, "/out") != compute_watch_digest(base, "/other")


def test_changed_checkpoint_is_evaluated_without_stored_responses() -> None:
    options = complete_watch_options({"tasks": ["a"]})
    assert "refresh" not in build_run_options(options, CHECKPOINT)
    assert build_run_options(options, CHECKPOINT, refresh=True)["refresh"] is True


@pytest.mark.parametrize(
    "given",
    [
        {"vary": ["system"]},
        {"budget": 20},
        {"budget": 20, "history": ["x"]},
        {"subset": "run"},
        {"stop_when": "ci<=5"},
    ],
    ids=str,
)
def test_options_that_the_curve_cannot_show_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="a watch does not support") as raised:
        complete_watch_options({"tasks": ["a"], **given})
    assert raised.value.where == f"--{next(iter(given))}"
