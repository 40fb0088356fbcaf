"""Tests of filters in a row: what was found, and where nothing was."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.records.specs import FilterStep, PipelineSpec
from assay.scoring.pipelines import build_pipeline


@pytest.mark.parametrize(
    ("steps", "responses", "answers", "nothing"),
    [
        ([("regex", {"regex_pattern": r"(\d+)"}), ("take_first", {})], [["a 5"], ["none"]], ["5", "[invalid]"], {1}),
        ([("take_first", {})], [["[invalid]"]], ["[invalid]"], set()),
        ([("regex", {"regex_pattern": r"(\d+)"}), ("lowercase", {})], [["x"]], [["[invalid]"]], {0}),
        ([("regex", {"regex_pattern": r"(\d+)"}), ("majority_vote", {}), ("take_first", {})], [["5", "x", "x"]], ["[invalid]"], {0}),
        ([("regex", {"regex_pattern": r"(\d+)"}), ("majority_vote", {}), ("take_first", {})], [["5", "x", "5"]], ["5"], set()),
        ([("regex", {"regex_pattern": r"(\d*)b|(\d*)c"}), ("take_first", {})], [["b"]], ["[invalid]"], {0}),
        ([("regex", {"regex_pattern": "x", "fallback": "none"}), ("take_first", {})], [["y"], ["x"]], ["none", "x"], {0}),
    ],
)  # fmt: skip
def test_an_answer_that_was_not_found_is_told_from_a_wrong_one(
    steps: list[tuple[str, dict[str, Any]]],
    responses: list[list[str]],
    answers: list[Any],
    nothing: set[int],
) -> None:
    made = tuple(FilterStep(function=name, arguments=arguments) for name, arguments in steps)
    pipeline = build_pipeline(PipelineSpec(name="p", steps=made))
    found, missed = pipeline.extract(responses, [{}] * len(responses))
    assert (found, missed) == (answers, nothing)
    assert all(type(answer) in (str, list) for answer in found)


@pytest.mark.parametrize(("last", "expected"), [(False, "42"), (True, "7")])
def test_reasoning_is_removed_before_or_after_the_filters(last: bool, expected: str) -> None:
    spec = PipelineSpec(
        name="number",
        steps=(
            FilterStep(function="regex", arguments={"regex_pattern": r"(\d+)"}),
            FilterStep(function="take_first"),
        ),
    )
    tags = (("<think>", "</think>"),)
    pipeline = build_pipeline(spec, reasoning_tags=tags, removes_reasoning_last=last)
    assert pipeline.apply([["<think>maybe 7</think>42"]], [{}]) == [expected]
