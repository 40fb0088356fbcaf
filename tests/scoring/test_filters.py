from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.core.errors import ErrorGroup, TaskError, UnknownName
from assay.core.records.specs import FilterStep, PipelineSpec
from assay.scoring.filters import FILTERS
from assay.scoring.filters.extraction import Regex
from assay.scoring.filters.transformation import strip_thinking
from assay.scoring.pipelines import DEFAULT_PIPELINE, build_pipeline

RECORDED: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("recorded_filters.json").read_text("utf-8")
)
"""What lm-evaluation-harness 0.4.13 made of these responses."""

DOCUMENT = {"choices": ["Rome", "New York", "Guilty", "Guilty of Romance"]}


def make_pipeline(*steps: tuple[Any, dict[str, Any]], name: str = "p") -> PipelineSpec:
    return PipelineSpec(
        name=name,
        steps=tuple(
            FilterStep(function=function, arguments=arguments, where=f"t.yaml:{place}")
            for place, (function, arguments) in enumerate(steps)
        ),
    )


@pytest.mark.parametrize(
    "row",
    RECORDED,
    ids=[f"{place}-{'-'.join(step[0] for step in row['steps'])}" for place, row in enumerate(RECORDED)],
)
def test_a_pipeline_makes_the_published_answers(row: dict[str, Any]) -> None:
    pipeline = build_pipeline(make_pipeline(*row["steps"]))
    responses = row["responses"]
    assert pipeline.per_document
    assert pipeline.apply(responses, [DOCUMENT] * len(responses)) == row["answers"]
    one_by_one = [pipeline.apply([response], [DOCUMENT])[0] for response in responses]
    assert one_by_one == row["answers"]


def test_the_built_in_filters_are_there() -> None:
    names = (
        "regex regex_pos remove_whitespace multi_choice_regex take_first take_first_k majority_vote lowercase"
    )
    assert {*names.split(), "uppercase", "map", "format_span", "custom", "strip_thinking"} <= set(FILTERS)


def test_without_filters_the_first_response_is_the_answer() -> None:
    pipeline = build_pipeline(DEFAULT_PIPELINE)
    assert pipeline.name == "none"
    assert pipeline.apply([["a", "b"], [(-1.0, True)]], [{}, {}]) == ["a", (-1.0, True)]


def test_an_unknown_filter_is_named_with_its_place() -> None:
    with pytest.raises(UnknownName) as caught:
        build_pipeline(make_pipeline(("regx", {})))
    assert caught.value.where == "t.yaml:0"
    assert "`regex`" in caught.value.hint


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param("take_first", {"k": 1}, id="an argument too many"),
        pytest.param("take_first_k", {}, id="an argument missing"),
        pytest.param("regex", {"regex_pattern": "("}, id="a pattern that is none"),
        pytest.param("map", {"mapping_dict": [1]}, id="a table that is none"),
    ],
)
def test_arguments_that_cannot_be_are_found_when_built(function: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(TaskError) as caught:
        build_pipeline(make_pipeline((function, arguments)))
    assert f"cannot create the filter `{function}`" in caught.value.what
    assert caught.value.where == "t.yaml:0"


def test_all_broken_steps_are_reported_together() -> None:
    with pytest.raises(ErrorGroup) as caught:
        build_pipeline(make_pipeline(("regx", {}), ("take_first", {}), ("lowercase", {"x": 1})))
    assert [problem.where for problem in caught.value.errors] == ["t.yaml:0", "t.yaml:2"]


class Counting:
    """Numbers the responses across all documents."""

    made = 0

    def __init__(self, start: int = 0) -> None:
        type(self).made += 1
        self.seen = start

    def apply(self, responses: Any, documents: Any) -> Any:
        for _ in responses:
            self.seen += 1
            yield self.seen


class Shouting(Regex):
    """A subclass with an `apply` of its own, which may look at anything."""

    def apply(self, responses: Any, documents: Any) -> list[Any]:
        return [len(responses) for _ in responses]


class Quiet(Regex):
    """A subclass that changes nothing about `apply`."""


class Careful(Regex):
    """A subclass that takes the promise back."""

    per_document = False


def test_a_class_of_the_task_is_made_anew_for_each_run_and_not_before() -> None:
    pipeline = build_pipeline(make_pipeline((Counting, {"start": 10})))
    assert Counting.made == 0
    assert pipeline.apply([["a"], ["b"]], [{}, {}]) == [11, 12]
    assert pipeline.apply([["a"], ["b"]], [{}, {}]) == [11, 12]
    assert Counting.made == 2


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (Counting, {}, False),
        (Shouting, {}, False),
        (Quiet, {}, True),
        (Careful, {}, False),
        ("custom", {"filter_fn": lambda responses, documents: responses}, False),
        ("regex", {}, True),
    ],
)
def test_only_who_promises_it_sees_documents_one_by_one(
    function: Any, arguments: dict[str, Any], expected: bool
) -> None:
    assert build_pipeline(make_pipeline((function, arguments), ("take_first", {}))).per_document is expected


def test_arguments_a_class_of_the_task_does_not_take_are_found_when_built() -> None:
    with pytest.raises(TaskError, match="Counting"):
        build_pipeline(make_pipeline((Counting, {"stop": 1})))


def test_answers_that_get_lost_are_an_error() -> None:
    pipeline = build_pipeline(
        make_pipeline(("custom", {"filter_fn": lambda responses, documents: responses[1:]}))
    )
    with pytest.raises(TaskError, match="1 answers for 2 responses"):
        pipeline.apply([["a"], ["b"]], [{}, {}])


def test_too_few_repeats_say_what_to_set() -> None:
    with pytest.raises(TaskError) as caught:
        build_pipeline(make_pipeline(("take_first_k", {"k": 3}))).apply([["a"]], [{}])
    assert "repeats" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think> b <think>c</think>d", "b d"),
        ("reasoning</think>more</think> answer ", "answer"),
        ("<think>never closed", "<think>never closed"),
        ("</think>x<think>", "</think>x<think>"),
        ("plain ", "plain"),
    ],
)
def test_thinking_is_taken_out(text: str, expected: str) -> None:
    assert strip_thinking(text, [("<think>", "</think>")]) == expected


def test_what_is_no_text_has_no_thinking() -> None:
    pipeline = build_pipeline(make_pipeline(("strip_thinking", {}), ("take_first", {})))
    assert pipeline.apply([[3.5], ["<thinking>a</thinking>b"]], [{}, {}]) == [3.5, "b"]
