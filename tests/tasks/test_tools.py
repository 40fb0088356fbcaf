from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import TaskError
from assay.tasks.tools import parse_response_format, parse_tool_choice, parse_tools

SCHEMA = {"type": "object", "properties": {"base": {"type": "number"}}, "required": ["base"]}


@pytest.mark.parametrize(
    "definition",
    [
        {"name": "area", "description": "Area.", "parameters": SCHEMA},
        {"type": "function", "name": "area", "description": "Area.", "parameters": SCHEMA, "strict": True},
        {"type": "function", "function": {"name": "area", "description": "Area.", "parameters": SCHEMA}},
        {"name": "area", "description": "Area.", "input_schema": SCHEMA},
    ],
    ids=["plain", "responses", "chat", "anthropic"],
)
def test_definitions_of_every_service_are_read(definition: dict[str, Any]) -> None:
    (tool,) = parse_tools([definition], "task.yaml")
    assert tool.to_json() == {"name": "area", "description": "Area.", "parameters": SCHEMA}


def test_a_tool_without_parameters_takes_no_arguments() -> None:
    (tool,) = parse_tools('[{"name": "now"}]', "task.yaml")
    assert tool.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "value", [3, None, "[", [[]], [{"name": ""}], [{"name": "a b"}], [{"name": "a" * 65}]], ids=str
)
def test_other_values_are_errors_with_a_place(value: Any) -> None:
    with pytest.raises(TaskError) as caught:
        parse_tools(value, "task.yaml:3, tools")
    assert "task.yaml:3, tools" in str(caught.value)


def test_choices_of_other_services_are_read() -> None:
    assert parse_tool_choice("auto") == "auto"
    assert parse_tool_choice({"type": "any"}) == "required"
    assert parse_tool_choice({"type": "tool", "name": "area"}) == "area"
    with pytest.raises(ValueError, match="not a choice"):
        parse_tool_choice(["area"])


def test_response_formats() -> None:
    assert parse_response_format("json_object", "x").schema is None
    assert parse_response_format({"type": "json_object"}, "x").schema is None
    assert parse_response_format(SCHEMA, "x").schema == SCHEMA
    given = {"type": "json_schema", "json_schema": {"name": "size", "schema": SCHEMA, "strict": False}}
    found = parse_response_format(given, "x")
    assert (found.name, found.schema, found.strict) == ("size", SCHEMA, False)
    with pytest.raises(TaskError, match="must be a JSON schema"):
        parse_response_format("yaml", "x")
