from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import TaskError
from assay.core.records.tools import ToolAnswer, ToolCall
from assay.scoring.tool_calls.answers import (
    are_equal_values,
    are_similar_values,
    read_answer_calls,
    read_reference_calls,
)
from assay.scoring.tool_calls.matching import Call

AREA = [Call("area", {"base": 10})]


@pytest.mark.parametrize(
    "reference",
    [
        [{"name": "area", "arguments": {"base": 10}}],
        {"name": "area", "arguments": {"base": 10}},
        [{"name": "area", "arguments": '{"base": 10}'}],
        [{"type": "function", "function": {"name": "area", "arguments": '{"base": 10}'}}],
        [{"area": {"base": 10}}],
        '[{"name": "area", "arguments": {"base": 10}}]',
        "[area(base=10)]",
        "area(base=10)",
    ],
    ids=str,
)
def test_references_may_have_several_forms(reference: Any) -> None:
    assert read_reference_calls(reference) == AREA


@pytest.mark.parametrize(
    "reference", ["area of 10", 3, [3], [{"name": "area", "arguments": []}], "{"], ids=str
)
def test_other_references_are_errors_of_the_task(reference: Any) -> None:
    with pytest.raises(TaskError, match="not a list of calls"):
        read_reference_calls(reference)


def test_answers_keep_their_calls_through_pickling() -> None:
    import pickle

    answer = ToolAnswer.from_calls("text", [ToolCall("area", '{"base": 10}')])
    again = pickle.loads(pickle.dumps(answer))
    assert again == answer and again.calls == answer.calls and again.text == "text"
    assert read_answer_calls(again) == AREA
    assert read_answer_calls(str(answer)) == AREA, "a filter that returns plain text keeps the calls readable"
    assert read_answer_calls(ToolAnswer.from_calls("", [ToolCall("area", "{")])) is None


def test_values_are_compared_by_type_and_content() -> None:
    assert are_equal_values({"a": [1, 2.0]}, {"a": [1.0, 2]})
    assert (
        not are_equal_values(True, 1) and not are_equal_values("1", 1) and not are_equal_values([1], [1, 2])
    )
    assert are_similar_values({"a": ["New York, NY"]}, {"a": ["new york ny"]})
    assert not are_similar_values("a", "b") and not are_equal_values("A", "a")
