"""Tests of filters that look across all documents of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, plan_run, write_choices, write_task

import assay
from assay.core.errors import OutputError
from assay.core.records.requests import Generate, Likelihood, Request
from assay.core.records.responses import Failure, LogProbability, Response
from assay.engine.judging.documents import judge_documents
from assay.engine.judging.extraction import TaskExtraction
from assay.engine.open_document import OpenDocument
from assay.engine.planning.records import PlannedTask
from assay.store.journal.journal import Journal
from assay.store.runs.run import Run

HELPERS = """
import json, pathlib

def rank(responses, documents):
    assert type(documents) is list and all(type(document) is dict for document in documents)
    with pathlib.Path("calls.jsonl").open("a") as calls:
        calls.write(json.dumps([len(responses), [document["question"] for document in documents]]) + "\\n")
    everything = sorted(value for values in responses for value in values)
    return [[str(everything.index(value)) for value in values] for values in responses]

def fail(responses, documents):
    raise RuntimeError("too many documents")
"""


def write_filters(*names: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "filter": [
                {"function": "custom", "filter_fn": Function(f"utils.{name}")}
                if name in ("rank", "fail")
                else {"function": "regex", "regex_pattern": "(\\d+)"},
                {"function": "take_first"},
            ],
        }
        for name in names
    ]


def plan_task(path: Path) -> PlannedTask:
    (task,) = plan_run(make_model(), tasks=[str(path)]).tasks.values()
    return task


def open_documents(task: PlannedTask) -> list[OpenDocument]:
    """Documents with answers in another order than their numbers; the third one failed."""
    opened = []
    for document, requests in task.task.render():
        outcomes: list[Any] = [
            Response(request_id=request.id, value=f"{9 - document.index}{request.repeat}")
            for request in requests
        ]
        if document.index == 2:
            outcomes[-1] = Failure(request_id="", kind="timeout", message="no answer")
        opened.append(OpenDocument(document, requests, ("",) * len(requests), outcomes, 0))
    return opened


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("names", [("rank",), ("fail",), ("number", "rank", "fail")])
@pytest.mark.parametrize("size", [1, 2, 6])
def test_parts_of_the_documents_get_the_answers_of_all(
    workspace: Path, names: tuple[str, ...], repeats: int, size: int
) -> None:
    task = plan_task(
        write_task(workspace, helpers=HELPERS, repeats=repeats, filter_list=write_filters(*names))
    )
    documents = open_documents(task)
    whole = judge_documents(task, documents)
    for document in documents:
        document.release_prompts()
    extraction = TaskExtraction(task, documents)
    parts = [
        judge_documents(task, documents[start : start + size], extraction=extraction)
        for start in range(0, len(documents), size)
    ]
    for kind in ("outcomes", "answers", "verdicts"):
        expected = sorted(getattr(whole, kind), key=repr)
        assert expected or (kind == "answers" and names == ("fail",))
        assert sorted((one for part in parts for one in getattr(part, kind)), key=repr) == expected


def test_documents_that_wait_for_others_keep_what_their_responses_mean(workspace: Path) -> None:
    task = plan_task(write_choices(workspace))
    ((document, requests), *_) = task.task.render()
    outcomes: list[Any] = [LogProbability(-1.0, False), LogProbability(-2.0, True)]
    opened = OpenDocument(
        document, requests, ("a", "b"), [Response(request_id="", value=one) for one in outcomes], 0
    )
    opened.release_prompts()
    assert [type(request) for request in opened.requests] == [Likelihood, Likelihood]
    assert not any(request.prompt.text for request in opened.requests)
    judged = judge_documents(task, [opened])
    assert judged.answers[0].values == ((-1.0, False), (-2.0, True))


def test_documents_that_wait_share_empty_requests(workspace: Path) -> None:
    task = plan_task(write_task(workspace, repeats=2))
    documents = open_documents(task)
    for document in documents:
        document.release_prompts()
    assert all(document.requests is documents[0].requests for document in documents)
    assert [(type(one), one.repeat) for one in documents[0].requests] == [(Generate, 0), (Generate, 1)]


def test_a_filter_sees_all_documents_at_once_and_their_scores_are_written(workspace: Path) -> None:
    task = write_many(workspace)
    finished = assay.run(model=make_model(answer_number), tasks=[str(task)], output_path="runs")
    (call,) = Path("calls.jsonl").read_text().splitlines()
    assert json.loads(call) == [600, [f"number {number}" for number in range(600)]]
    assert finished.results["sums"]["exact_match,rank"] == 1.0
    assert finished.outcomes("sums") == {"scored": 600}
    assert finished.journal.count_rows("requests") == 600
    assert [row["filtered_resps"] for row in finished.samples("sums")] == [[str(n)] for n in range(600)]


def test_documents_that_were_written_before_an_interruption_are_judged_again_with_the_others(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, add_judged = write_many(workspace), Journal.add_judged

    def add_once(journal: Journal, name: str, *judged: Any, **options: Any) -> Any:
        if judged[0][0][0] > 0:
            raise OutputError("the disk is full")
        return add_judged(journal, name, *judged, **options)

    model = make_model(answer_number)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add_judged", add_once)
        with pytest.raises(OutputError, match="the disk is full"):
            assay.run(model=model, tasks=[str(task)], output_path="runs")
    (interrupted,) = Path("runs").glob("*/journal.sqlite")
    stored = Run(interrupted.parent)
    assert stored.outcomes("sums") == {"scored": 256}
    stored.close()
    finished = assay.run(model=model, tasks=[str(task)], output_path="runs")
    assert len(model.asked) == 600
    assert finished.outcomes("sums") == {"scored": 600}
    assert finished.results["sums"]["exact_match,rank"] == 1.0
    sizes = [json.loads(call)[0] for call in Path("calls.jsonl").read_text().splitlines()]
    assert sizes == [600, 600]


def write_many(workspace: Path) -> Path:
    rows = [{"question": f"number {number}", "answer": str(number)} for number in range(600)]
    return write_task(
        workspace, rows=rows, helpers=HELPERS, filter_list=write_filters("rank"), doc_to_text="{{question}}"
    )


def answer_number(request: Request) -> str:
    return f"{request.document:04d}"
