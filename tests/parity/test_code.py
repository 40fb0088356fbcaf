"""HumanEval and MBPP as published: the reference solutions score 1, wrong ones 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model
from tests.parity.conftest import find_shared

import assay

pytestmark = pytest.mark.parity

SOLUTIONS: dict[str, Callable[[Any], str]] = {
    "humaneval": lambda row: str(row["canonical_solution"]),
    "mbpp": lambda row: str(row["code"]),
}
METRIC = {"humaneval": "pass@1,create_test", "mbpp": "pass_at_1,none"}


@pytest.fixture
def options(lm_eval_tasks: Path, tmp_path: Path) -> dict[str, Any]:
    pytest.importorskip("datasets")
    shared = find_shared()
    if shared is None or not (shared / "hub").is_dir():
        pytest.skip("no datasets: set ASSAY_SHARED to the folder that holds hub")
    return {
        "include_path": [str(lm_eval_tasks)],
        "data_root": str(shared / "hub"),
        "output_path": str(tmp_path),
        "confirm_run_unsafe_code": True,
        "no_cache": True,
        "limit": 8,
    }


@pytest.mark.parametrize("task", SOLUTIONS)
def test_reference_solutions_pass(task: str, options: dict[str, Any]) -> None:
    rows = assay.plan(tasks=[task], **options).tasks[task].task.documents()
    solutions = {row.index: SOLUTIONS[task](row.fields) for row in rows}
    right = assay.run(model=make_model(lambda request: solutions[request.document]), tasks=[task], **options)
    assert right.results[task][METRIC[task]] == 1.0
    options["output_path"] += "/wrong"
    wrong = assay.run(model=make_model(lambda request: "    return 'wrong'"), tasks=[task], **options)
    assert wrong.results[task][METRIC[task]] == 0.0


def test_several_candidates_give_pass_at_k(options: dict[str, Any]) -> None:
    task = "humaneval_64"
    options = {**options, "limit": 2}
    rows = assay.plan(tasks=[task], **options).tasks[task].task.documents()
    solutions = {row.index: SOLUTIONS["humaneval"](row.fields) for row in rows}

    def half_right(request: Any) -> str:
        return solutions[request.document] if request.repeat % 2 else "    return 'wrong'"

    found = assay.run(model=make_model(half_right), tasks=[task], **options).results[task]
    assert found["pass@2,create_test"] == pytest.approx(1 - (32 * 31) / (64 * 63))
    assert found["pass@64,create_test"] == 1.0
