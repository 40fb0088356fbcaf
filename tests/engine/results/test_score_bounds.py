"""Tests of documents that end without a score: their counts by ending, and the score bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, answer_correctly, make_model, write_task

import assay
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Response
from assay.viewer.results.notes import format_outcome_notes

ROWS = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(10)]
NUMBER = [
    {
        "name": "number",
        "filter": [{"function": "regex", "regex_pattern": r"(\d+)"}, {"function": "take_first"}],
    }
]
ODD: dict[int, Any] = {
    0: "no idea",
    1: Response(request_id="", value="let me think about", finish="length"),
    2: "",
    3: Response(request_id="", value="I will not", finish="refused"),
    4: Failure(request_id="", kind="timeout", message="no answer in 120 s"),
    5: Response(request_id="", value="6, because", finish="length"),
}


def answer_oddly(request: Request) -> Any:
    return ODD.get(request.document, answer_correctly(request))


def run(folder: Path, **keys: Any) -> assay.Run:
    path = write_task(folder, rows=ROWS, filter_list=NUMBER, **keys)
    return assay.run(model=make_model(answer_oddly), tasks=[str(path)])


def test_every_document_has_exactly_one_ending(workspace: Path) -> None:
    finished = run(workspace)
    expected = {"scored": 5, "unparsed": 1, "truncated": 1, "empty": 1, "refused": 1, "failed": 1}
    assert finished.outcomes("sums") == expected
    assert sum(expected.values()) == len(ROWS)


def test_the_bounds_contain_the_score(workspace: Path) -> None:
    (estimate,) = run(workspace).estimates
    assert estimate.value == pytest.approx(5 / 9)  # failed ones are left out, the others count as wrong
    assert estimate.bounds == (0.5, 1.0)


def test_a_task_without_failures_has_no_bounds(workspace: Path) -> None:
    path = write_task(workspace, rows=ROWS)
    finished = assay.run(model=make_model(), tasks=[str(path)])
    assert finished.estimates[0].bounds is None
    assert format_outcome_notes(finished) == []


def test_the_counts_of_endings_are_shown(workspace: Path) -> None:
    (line,) = format_outcome_notes(run(workspace))
    assert line == (
        "sums: 5 scored, 1 unparsed, 1 truncated, 1 empty, 1 refused, 1 failed; "
        "with the others all wrong or all right: exact_match (number) between 0.5000 and 1.0000"
    )


def test_metrics_outside_zero_to_one_have_no_bounds(workspace: Path) -> None:
    helpers = "def length(doc, results):\n    return {'length': float(len(results[0])), 'one': 1.0}\n"
    metrics = [
        {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("length", "one")
    ]
    finished = run(workspace, helpers=helpers, process_results=Function("utils.length"), metric_list=metrics)
    assert {estimate.metric: estimate.bounds for estimate in finished.estimates} == {
        "length": None,
        "one": (0.5, 1.0),
    }


def test_a_group_has_the_bounds_of_its_tasks(workspace: Path) -> None:
    write_task(workspace, "one", ROWS, filter_list=NUMBER)
    write_task(workspace, "two", ROWS[6:], filter_list=NUMBER)
    (workspace / "both.yaml").write_text(
        "group: both\ntask: [one, two]\naggregate_metric_list: [{metric: exact_match, filter_list: number}]\n"
    )

    def by_task(request: Request) -> Any:
        return answer_oddly(request) if request.task == "one" else answer_correctly(request)

    finished = assay.run(model=make_model(by_task), tasks=["both"], include_path=[str(workspace)])
    group = next(estimate for estimate in finished.estimates if estimate.task == "both")
    assert group.bounds is not None
    assert group.bounds[0] < group.value < group.bounds[1] <= 1.0


def test_failed_documents_are_retried_unless_accepted(workspace: Path) -> None:
    path = write_task(workspace, rows=ROWS, filter_list=NUMBER)
    assay.run(model=make_model(answer_oddly), tasks=[str(path)])
    model = make_model()
    assert assay.run(model=model, tasks=[str(path)], retry_failed=False).outcomes("sums")["failed"] == 1
    assert model.asked == []
    assert "failed" not in assay.run(model=model, tasks=[str(path)]).outcomes("sums")
    assert [request.document for request in model.asked] == [4]


def test_there_are_no_bounds_without_scored_documents(workspace: Path) -> None:
    helpers = "def length(doc, results):\n    raise ValueError(doc)\n"
    metrics = [{"metric": "length", "aggregation": "mean", "higher_is_better": True}]
    finished = run(workspace, helpers=helpers, process_results=Function("utils.length"), metric_list=metrics)
    assert [(estimate.value, estimate.bounds) for estimate in finished.estimates] == [(None, None)]
    assert format_outcome_notes(finished) == ["sums: 9 unscored, 1 failed"]


def test_failures_can_be_accepted_with_a_cross_document_filter(workspace: Path) -> None:
    helpers = "def across(responses, documents):\n    return [values[0] for values in responses]\n"
    across = {"function": "custom", "filter_fn": Function("utils.across")}
    path = write_task(
        workspace, rows=ROWS, helpers=helpers, filter_list=[{"name": "all", "filter": [across]}]
    )
    assay.run(model=make_model(answer_oddly), tasks=[str(path)])
    model = make_model()
    assert assay.run(model=model, tasks=[str(path)], retry_failed=False).outcomes("sums")["failed"] == 1
    assert model.asked == []
    assert "failed" not in assay.run(model=model, tasks=[str(path)]).outcomes("sums")
    assert [request.document for request in model.asked] == [4]
