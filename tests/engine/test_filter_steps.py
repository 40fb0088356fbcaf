"""Tests of filter steps: steps of user filters are stored, those of built-in filters are recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, write_task

import assay
from assay.core.records.responses import Response
from assay.store.documents.details import DocumentRecord, read_document
from assay.viewer.documents.filter_trace import FilterTrace, build_filter_traces

HELPERS = """
def loud(responses, documents):
    return [[value.upper() for value in values] for values in responses]

def rank(responses, documents):
    everything = sorted(value for values in responses for value in values)
    return [[str(everything.index(value)) for value in values] for values in responses]
"""
OWN = [
    {"function": "regex", "regex_pattern": r"(\w+)$"},
    {"function": "custom", "filter_fn": Function("utils.loud")},
    {"function": "custom", "filter_fn": Function("utils.rank")},
    {"function": "take_first"},
]
BUILT_IN = [
    {"function": "regex", "regex_pattern": r"(\w+)$"},
    {"function": "lowercase"},
    {"function": "take_first"},
]


def answer_document(request: Any) -> Response:
    return Response(request_id="", value=f"I say Word{9 - request.document}")


@pytest.fixture
def run(workspace: Path) -> Any:
    path = write_task(
        workspace / "tasks", "sums", helpers=HELPERS,
        filter_list=[{"name": "own", "filter": OWN}, {"name": "built-in", "filter": BUILT_IN}],
    )  # fmt: skip
    return assay.run(model=make_model(answer_document), tasks=[str(path)], output_path="runs")


def read_record(run: Any, position: int) -> DocumentRecord:
    found = read_document(run.journal, "sums", position)
    assert found is not None
    return found


def read_traces(run: Any, position: int) -> dict[str, FilterTrace]:
    listed = build_filter_traces(read_record(run, position), run.tasks["sums"])
    return {trace.name: trace for trace in listed}


def test_every_step_of_user_filters_is_stored(run: Any) -> None:
    record = read_record(run, 1)
    assert list(record.steps) == ["own"]
    last = record.answers["own"][0]
    assert record.steps["own"] == [[["Word8"]], [["WORD8"]], [[last]], [last]]


def test_each_step_is_shown_with_its_input(run: Any) -> None:
    own = read_traces(run, 1)["own"]
    assert own.given == ("I say Word8",)
    assert [step.values for step in own.steps] == [("Word8",), ("WORD8",), own.answers, own.answers]
    assert [step.name for step in own.steps] == ["regex", "custom", "custom", "take_first"]
    assert own.steps[1].arguments == "filter_fn=loud"
    assert "custom filter of the task" in own.steps[1].note
    assert "filters all documents of the task together" in own.steps[2].note
    assert own.steps[0].note == own.steps[3].note == ""


def test_built_in_filters_are_reapplied(run: Any) -> None:
    built_in = read_traces(run, 2)["built-in"]
    assert [step.values for step in built_in.steps] == [("Word7",), ("word7",), ("word7",)]


def test_a_run_without_stored_steps_shows_only_reproducible_steps(run: Any) -> None:
    record = read_record(run, 1)
    older = {key: value for key, value in run.tasks["sums"].items() if key != "filters"}
    (own, built_in) = build_filter_traces(
        DocumentRecord(**{name: getattr(record, name) for name in record.__slots__ if name != "steps"}), older
    )
    assert own.steps[0].values == ("Word8",)
    assert [step.values for step in own.steps[1:]] == [None, None, None]
    assert "is not stored" in own.steps[1].note
    assert built_in.steps[-1].values == ("word8",)


def test_reasoning_is_removed_before_the_filters(workspace: Path) -> None:
    path = write_task(workspace / "tasks", "sums")
    model = make_model(lambda request: "<think>hm</think> 4")
    run = assay.run(
        model=model, tasks=[str(path)], output_path="runs", reasoning_tags=[["<think>", "</think>"]]
    )
    (trace,) = read_traces(run, 0).values()
    assert [(step.name, step.values) for step in trace.steps] == [
        ("take_first", ("4",)),
    ]
    assert trace.answers == ("4",)
