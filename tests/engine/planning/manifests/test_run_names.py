"""Names of runs say what ran."""

from __future__ import annotations

import pytest

from assay.core.options.run_spec import RunSpec
from assay.engine.planning.manifests.run_names import build_run_name

DIGEST = "0123456789abcdef"


@pytest.mark.parametrize(
    ("spec", "model", "name"),
    [
        (RunSpec(tasks=["mme"]), "embedded", "embedded-mme-01234567"),
        (RunSpec(tasks=["mmmu", "mme"]), "embedded", "embedded-mme-and-1-more-01234567"),
        (
            RunSpec(tasks=["tasks/my_task.yaml"]),
            "Qwen/Qwen3-8B",
            "Qwen3-8B-my-task-01234567",
        ),
        (RunSpec(tasks=["mme"], name="Base line #2"), "embedded", "Base-line-2-01234567"),
        (RunSpec(tasks=["mme"], name="../.."), "embedded", "run-01234567"),
        (RunSpec(tasks=["mme"], token_logprobs=True), "embedded", "embedded-mme-01234567-tokens"),
        (RunSpec(tasks=["a" * 80, "b"]), "m", f"m-{'a' * 47}-and-1-more-01234567"),
    ],
    ids=["one task", "two tasks", "paths", "given", "given without letters", "tokens", "long"],
)
def test_a_name_says_what_ran(spec: RunSpec, model: str, name: str) -> None:
    assert build_run_name(spec, model, DIGEST) == name


def test_the_name_does_not_change_the_work() -> None:
    assert RunSpec(name="a").shape() == RunSpec(name="b").shape()
