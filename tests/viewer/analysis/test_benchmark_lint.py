"""Problems of a benchmark found in several runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_choices, write_task

import assay
from assay.core.errors import UserError
from assay.core.responses import LogProbability
from assay.viewer.analysis.benchmark_lint import LintFinding, lint_benchmark
from assay.viewer.comparison.sources import open_source

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(30)]


def make_run(folder: Path, name: str, answers: Callable[[Any], Any], task: Path, **options: Any) -> Any:
    return assay.run(
        model=make_model(answers), tasks=[str(task)], no_cache=True, output_path=str(folder / name), **options
    )


def lint(*runs: Any, blind: Any = None) -> dict[str, LintFinding]:
    found = lint_benchmark([open_source(run) for run in runs], None if blind is None else open_source(blind))
    return {one.kind: one for one in found}


def test_documents_that_no_or_every_run_gets_right_and_wrong_targets_are_found(tmp_path: Path) -> None:
    """Six models of rising strength: only weak ones are right on document 29, none on 28, all on 0."""
    task = write_task(tmp_path, "sums", ROWS)

    def model(strength: int) -> Callable[[Any], str]:
        def answer(request: Any) -> str:
            n = request.document
            right = n == 0 or (n < 28 and n % 6 < strength) or (n == 29 and strength < 3)
            return str(n + 1) if right else "?"

        return answer

    runs = [make_run(tmp_path, f"m{strength}", model(strength), task) for strength in range(6)]
    found = lint(*runs)
    assert 0 in found["always"].documents
    assert 28 in found["never"].documents
    assert found["negative"].documents == (29,)
    assert found["never"].total == 30


def test_duplicate_documents_are_found(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, "a", lambda request: "?", write_task(tmp_path, "sums", [*ROWS, ROWS[3], ROWS[3]])
    )
    found = lint(run)["duplicates"]
    assert (found.count, found.documents) == (2, (30, 31))


def test_questions_in_their_own_fewshot_examples_are_found(tmp_path: Path) -> None:
    shown: dict[str, Any] = {
        "num_fewshot": 3,
        "dataset_kwargs": {"data_files": {"test": "sums.jsonl", "train": "sums.jsonl"}},
        "fewshot_split": "train",
        "fewshot_config": {"sampler": "first_n"},
    }
    task = write_task(tmp_path, "sums", ROWS, **shown)
    run = make_run(tmp_path, "a", lambda request: "?", task)
    prompts = dict(run.journal.query("SELECT document, prompt FROM requests"))
    leaking = [n for n, prompt in prompts.items() if prompt.count(f"What is {n} + 1?") > 1]
    found = lint(run).get("leakage")
    assert (found.documents if found else ()) == tuple(leaking)
    assert leaking, "the examples are the first documents, so those see themselves"


def test_position_bias_is_found(tmp_path: Path) -> None:
    task = write_choices(tmp_path, rows=60)
    first = make_run(tmp_path, "a", lambda request: LogProbability(-1.0 - request.index, True), task)
    assert "chooses position 1 in 100 %" in lint(first)["position"].what


def test_documents_that_need_no_image_are_found(tmp_path: Path) -> None:
    task = write_task(tmp_path, "sums", ROWS)
    seeing = make_run(tmp_path, "a", lambda request: str(request.document + 1), task)
    blind = make_run(
        tmp_path, "b", lambda request: str(request.document + 1 if request.document < 15 else 0), task
    )
    found = lint(seeing, blind=blind)["blind"]
    assert (found.count, found.total) == (15, 30)
    assert "50 % of the score" in found.what


def test_runs_of_different_benchmarks_are_an_error(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, name, lambda request: "?", write_task(tmp_path / name, name, ROWS[:3]))
        for name in "ab"
    ]
    with pytest.raises(UserError, match="no task in common"):
        lint(*runs)
