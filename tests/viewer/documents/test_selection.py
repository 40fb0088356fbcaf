"""Tests of the selection of documents of a run. `tests/cli/test_show_documents.py` tests the command."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from tests.making import Function, write_task

import assay
from assay.core.errors import UnknownName
from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Response
from assay.store.journal.journal import Journal
from assay.store.runs.run import Run
from assay.testing import ScriptedModel
from assay.viewer.documents.selection import DocumentSelection, select_documents

HELPERS = """
def score(doc, results):
    value = float(doc["answer"])
    if value == 9:
        return {"quality": 2.5, "errors": 0.0}
    return {"quality": value / 4, "errors": value}
"""
METRICS = [
    {"metric": "quality", "aggregation": "mean", "higher_is_better": True},
    {"metric": "errors", "aggregation": "mean", "higher_is_better": False},
]
ANSWERS = [4, 0, 1, 0, 9, 3, 1, 0, 10, 2, 4, 4]
"""The quality is this number divided by four; document 4 has the best errors, and a model error occurs for 5."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("selection")
    rows = [{"question": f"{place}", "answer": str(answer)} for place, answer in enumerate(ANSWERS)]
    for name in ("one", "two"):
        write_task(
            folder,
            name,
            rows if name == "one" else rows[:2],
            helpers=HELPERS,
            process_results=Function("utils.score"),
            metric_list=METRICS,
        )

    def answer(request: Request) -> Response | Failure:
        if request.task == "one" and request.document == 5:
            return Failure(request_id=request.id, kind="model error", message="no answer")
        return Response(
            request_id=request.id, value="x", finish="length" if request.document == 3 else "stop"
        )

    tasks = [str(folder / f"{name}.yaml") for name in ("one", "two")]
    made = assay.run(
        model=ScriptedModel(answer), tasks=tasks, output_path=str(folder / "runs"), max_failures=1.0
    )
    with closing(sqlite3.connect(made.folder / "journal.sqlite")) as journal, journal:
        journal.execute("DELETE FROM judged WHERE id = 7")  # as if the run had ended before document 7
    (made.folder / "journal.sums").unlink()
    return Run(made.folder)


def select(run: Run, limit: int | None = None, **conditions: Any) -> tuple[list[tuple[Any, ...]], int]:
    found, count = select_documents(run, DocumentSelection(**conditions), limit=limit)
    return [(one.task, one.number, one.ending, one.score) for one in found], count


def test_the_worst_documents_come_first(run: Run) -> None:
    found, count = select(run, wrong=True, tasks=["one"])
    assert [(number, score) for _, number, _, score in found] == [
        *[(1, 0.0), (3, 0.0)],  # document 5 failed, and document 7 is not finished
        *[(2, 0.25), (6, 0.25), (9, 0.5), (0, 1.0), (10, 1.0), (11, 1.0)],
    ]
    assert count == 8
    assert select(run, wrong=True, tasks=["one"], metric="errors")[0][:3] == [
        ("one", 8, "scored", 10.0),
        ("one", 0, "scored", 4.0),
        ("one", 10, "scored", 4.0),
    ]


@pytest.mark.parametrize("metric", ["", "quality", "errors", "errors,none"])
@pytest.mark.parametrize("endings", [(), ("scored",), ("truncated", "failed"), ("failed",)])
def test_a_page_is_the_start_of_all_matching_documents(
    run: Run, metric: str, endings: tuple[str, ...]
) -> None:
    conditions: dict[str, Any] = {"wrong": True, "metric": metric, "endings": endings, "tasks": ["one"]}
    # selected numbers are looked at one by one
    expected, count = select(run, **conditions, numbers=range(len(ANSWERS)))
    for limit in (None, 0, 1, 2, 3, 5, 20):
        assert select(run, limit, **conditions) == (expected[:limit], count)


@pytest.mark.parametrize("endings", [("scored",), ("open",), ("open", "truncated"), ("failed", "failed")])
def test_documents_with_an_ending_come_in_their_order(run: Run, endings: tuple[str, ...]) -> None:
    expected, count = select(run, endings=endings, tasks=["one"], numbers=range(len(ANSWERS)))
    assert count > 0
    for limit in (None, 1, 3):
        assert select(run, limit, endings=endings, tasks=["one"]) == (expected[:limit], count)


def test_documents_are_taken_evenly_from_tasks(run: Run) -> None:
    found, count = select(run, 5, wrong=True)
    assert [(task, number) for task, number, _, _ in found] == [
        *[("one", number) for number in (1, 3, 2, 6)],
        ("two", 1),
    ]
    assert count == 9


def test_only_the_documents_of_the_page_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read_verdicts", "read_document_numbers"):
        monkeypatch.setattr(Journal, name, None)
    assert select(run, 1, wrong=True)[1] == 9


def test_an_unknown_metric_is_an_error_even_if_no_document_matches(run: Run) -> None:
    for conditions in ({"wrong": True}, {"endings": ["refused"]}, {}):
        with pytest.raises(UnknownName, match="no metric of the run is called `acc`"):
            select(run, metric="acc", **conditions)
