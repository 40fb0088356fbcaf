"""Tests of repeats: each answer is scored, stored, and aggregated in addition to the metrics of the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import ROWS, Function, answer_correctly, make_model, write_task

import assay
from assay import api
from assay.core.records.requests import Request
from assay.store.runs.run import Run
from assay.viewer.exports.lm_eval import build_results
from assay.viewer.exports.rows import iterate_table_rows
from assay.viewer.terminal.results_table import format_results

SAMPLED = {"until": ["\n"], "do_sample": True, "temperature": 1.0}


def answer_correctly_in(*repeats: int) -> Any:
    """Answer correctly in some repeats, and with different wrong answers in the others."""

    def answer(request: Request) -> str:
        return answer_correctly(request) if request.repeat in repeats else f"wrong {request.repeat}"

    return answer


def run_task(workspace: Path, answers: Any, **keys: Any) -> Run:
    keys = {"repeats": 4, "generation_kwargs": SAMPLED, **keys}
    write_task(workspace, "sums", ROWS, **keys)
    return assay.run(model=make_model(answers), tasks=["sums"], include_path=[str(workspace)], no_cache=True)


def read_values(run: Run) -> dict[str, float]:
    (about,) = run.facts["repeats"]
    return {name: number["value"] for name, number in about["numbers"].items()}


def test_repeat_metrics_do_not_change_the_metrics_of_the_task(workspace: Path) -> None:
    run = run_task(workspace, answer_correctly_in(1, 3))
    assert run.results["sums"]["exact_match,none"] == 0.0  # the first answer counts, and it is wrong
    assert set(run.results["sums"]) == {"exact_match,none", "exact_match_stderr,none"}
    (about,) = run.facts["repeats"]
    assert (about["task"], about["pipeline"], about["metric"]) == ("sums", "none", "exact_match")
    assert (about["documents"], about["repeats"]) == (6, 4)
    assert about["within"] == pytest.approx(1 / 3)
    assert about["between"] == 0.0
    assert read_values(run) == pytest.approx(
        {
            "mean": 0.5,
            "consistency": 1 / 6,  # of the six pairs of answers one is the same
            "pass@2": 5 / 6,
            "pass@4": 1.0,
            "pass^2": 1 / 6,
            "pass^4": 0.0,
            "maj@4": 1.0,  # the wrong ones differ
        }
    )


def test_exports_contain_every_answer_and_the_mean(workspace: Path) -> None:
    run = run_task(workspace, answer_correctly_in(1, 3))
    first = next(run.records("sums"))
    assert first["repeats"] == [
        {"filter": "none", "answers": [0, 1, 2, 1], "scores": {"exact_match": [0.0, 1.0, 0.0, 1.0]}}
    ]
    row = next(iterate_table_rows(run, ["sums"]))
    assert (row["exact_match"], row["exact_match.mean"]) == (0.0, 0.5)
    assert build_results(run)["repeats"] == run.facts["repeats"]


def test_selection_filters_do_not_change_the_scores_of_single_answers(workspace: Path) -> None:
    pipelines = [
        {"name": "first", "filter": [{"function": "take_first"}]},
        {"name": "vote", "filter": [{"function": "majority_vote"}, {"function": "take_first"}]},
    ]
    run = run_task(workspace, answer_correctly_in(1, 3), filter_list=pipelines)
    first, vote = run.facts["repeats"]
    assert first | {"pipeline": ""} == vote | {"pipeline": ""}
    assert run.results["sums"]["exact_match,vote"] == format_values(first)["maj@4"] == 1.0
    assert sum("first, vote" in line for line in format_results(run).splitlines()) == 1


def format_values(about: dict[str, Any]) -> dict[str, float]:
    return {name: number["value"] for name, number in about["numbers"].items()}


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"repeats": 1}, id="asked once"),
        pytest.param(
            {
                "filter_list": [{"name": "two", "filter": [{"function": "take_first_k", "k": 2}]}],
                "process_results": Function("utils.count"),
                "helpers": "def count(doc, results):\n    return {'exact_match': float(len(results[0]) == 2)}\n",
            },
            id="all answers are kept",
        ),
    ],
)
def test_there_are_no_repeat_metrics_without_scores_of_single_answers(
    workspace: Path, keys: dict[str, Any]
) -> None:
    run = run_task(workspace, answer_correctly_in(0), **keys)
    assert "repeats" not in run.facts
    assert list(run.journal.read_repeats("sums")) == []
    assert "pass@k" not in format_results(run)


def test_user_code_scores_repeats_too(workspace: Path) -> None:
    run = run_task(
        workspace,
        answer_correctly_in(0, 1, 2),
        process_results=Function("utils.same"),
        helpers="def same(doc, results):\n    return {'exact_match': float(results[0].strip() == doc['answer'])}\n",
    )
    assert run.results["sums"]["exact_match,none"] == 1.0
    assert read_values(run)["mean"] == 0.75


def test_a_document_whose_repeats_cannot_be_judged_is_left_out(workspace: Path) -> None:
    code = """
def same(doc, results):
    if doc["answer"] == "3" and results[0].startswith("wrong"):
        raise ValueError("no number")
    return {"exact_match": float(results[0].strip() == doc["answer"])}
"""
    run = run_task(workspace, answer_correctly_in(0, 1), process_results=Function("utils.same"), helpers=code)
    assert run.results["sums"]["exact_match,none"] == 1.0
    assert [one.document for one in run.journal.read_repeats("sums")] == [0, 1, 3, 4, 5]


def test_rescoring_a_run_restores_its_repeat_metrics(workspace: Path) -> None:
    run = run_task(workspace, answer_correctly_in(1, 2, 3))
    write_task(
        workspace,
        "sums",
        ROWS,
        repeats=4,
        generation_kwargs=SAMPLED,
        filter_list=[{"name": "loud", "filter": [{"function": "uppercase"}, {"function": "take_first"}]}],
    )
    scoring = api.score(run)
    assert [about["pipeline"] for about in scoring.run.facts["repeats"]] == ["loud"]
    assert read_values(scoring.run)["mean"] == 0.75
