from __future__ import annotations

import pytest

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.responses import LogProbability, Response
from assay.core.records.tools import Tool, ToolCall, ToolResult, Tools


@pytest.mark.parametrize(
    ("call", "values", "problem"),
    [
        (ToolCall("area", '{"base": 1}'), {"base": 1}, ""),
        (ToolCall("area", ""), {}, ""),
        (ToolCall("area", '{"base": '), None, "not a JSON object"),
        (ToolCall("area", "[1]"), None, "not a JSON object"),
        (ToolCall("area", "[" * 100_000), None, "not a JSON object"),
        (ToolCall("", "area(1"), None, "cannot be parsed"),
    ],
    ids=["object", "no arguments", "cut off", "list", "nested too deep", "no name"],
)
def test_malformed_arguments_are_a_problem_of_the_call(
    call: ToolCall, values: dict[str, int] | None, problem: str
) -> None:
    assert call.values == values
    assert problem in call.problem and bool(call.problem) == bool(problem)


def test_defaults_are_not_part_of_the_stored_form() -> None:
    tools = Tools(tools=(Tool("area"),))
    assert set(tools.to_json()) == {"tools"}
    assert set(Tools(tools=tools.tools, choice="none", syntax="xml").to_json()) == {
        "tools",
        "choice",
        "syntax",
    }


def test_what_is_scored_of_a_response_with_calls_is_the_calls() -> None:
    calls = (ToolCall("area", '{"base": 1}', "c1"),)
    assert Response(request_id="", value="Look.", tool_calls=calls).scored_value == (
        '[{"name": "area", "arguments": {"base": 1}}]'
    )
    assert Response(request_id="", value="Look.").scored_value == "Look."
    assert Response(request_id="", value=LogProbability(-1.0)).scored_value == LogProbability(-1.0)


def test_calls_and_results_in_a_prompt_are_no_media() -> None:
    prompt = Prompt(
        (
            Message("assistant", (Text("Look: "), ToolCall("area", "{}", "c1"))),
            Message("tool", (ToolResult("2 m²", "c1", "area"),)),
        ),
        chat=True,
    )
    assert not prompt.has_media and prompt.media == ()
    assert prompt.text == "Look: 2 m²"
    assert prompt.messages[0].tool_calls == (ToolCall("area", "{}", "c1"),)
