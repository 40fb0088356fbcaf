from __future__ import annotations

import pytest

from assay.core.errors import TaskError
from assay.core.records.tools import Tool, ToolAnswer, ToolCall, Tools
from assay.scoring.metrics.tool_schema_valid import tool_schema_valid

SCHEMA = {"type": "object", "properties": {"base": {"type": "number"}}, "required": ["base"]}


@pytest.mark.parametrize(
    ("calls", "choice", "expected"),
    [
        ([ToolCall("area", '{"base": 1}')], "auto", 1.0),
        ([ToolCall("area", '{"base": 1}'), ToolCall("area", '{"base": "1"}')], "auto", 0.0),
        ([ToolCall("area", "{}")], "auto", 0.0),
        ([ToolCall("area", '{"base": ')], "auto", 0.0),
        ([ToolCall("volume", '{"base": 1}')], "auto", 0.0),
        ([ToolCall("area", '{"base": 1}')], "none", 0.0),
        ([ToolCall("area", '{"base": 1}')], "required", 1.0),
        ([ToolCall("area", '{"base": 1}')], "area", 1.0),
        ([], "auto", 1.0),
        ([], "none", 1.0),
        ([], "required", 0.0),
        ([], "area", 0.0),
    ],
)
def test_calls_must_match_the_tools_of_the_request(
    calls: list[ToolCall], choice: str, expected: float
) -> None:
    tools = Tools(tools=(Tool("area", "", SCHEMA),), choice=choice)
    answer = ToolAnswer.from_calls("", calls, tools)
    assert tool_schema_valid(references=[""], predictions=[answer]) == expected


def test_text_without_tools_cannot_be_checked() -> None:
    with pytest.raises(TaskError, match="needs the tools"):
        tool_schema_valid(references=[""], predictions=["[area(base=1)]"])
    assert tool_schema_valid(references=[""], predictions=['[{"name": "area", "arguments": ']) == 0.0
