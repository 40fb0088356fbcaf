from __future__ import annotations

import json
from typing import Any

import pytest

from assay.core.records.tools import Tool, Tools
from assay.scoring.tool_calls.text_calls import parse_text_calls

PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"type": "array"}}
TOOLS = (Tool("weather", "", {"type": "object", "properties": PROPERTIES}), Tool("geo.area"))
ROME: list[tuple[str, Any]] = [("weather", {"city": "Rome", "days": 3})]
CASES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "json": ('[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]', ROME),
    "json object": ('{"name": "weather", "parameters": {"city": "Rome", "days": 3}}', ROME),
    "json text as arguments": ('[{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\", \\"days\\": 3}"}]', ROME),
    "openai's form": ('{"tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome", "days": 3}}}]}', ROME),
    "json in a fence": ('Sure:\n```json\n[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]\n```\nDone.', ROME),
    "json after prose": ('I call [{"name": "weather", "arguments": {"city": "Rome", "days": 3}}] now.', ROME),
    "json in tags": ('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>', ROME),
    "two tags": ('<tool_call>{"name": "geo.area", "arguments": {}}</tool_call>\n<tool_call>{"name": "geo.area", "arguments": {"x": null}}</tool_call>', [("geo.area", {}), ("geo.area", {"x": None})]),
    "json lines": ('{"name": "geo.area", "arguments": {}}\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}', [("geo.area", {}), *ROME]),
    "no arguments": ('[{"name": "geo.area"}]', [("geo.area", {})]),
    "python": ("[weather(city='Rome', days=3)]", ROME),
    "python without a list": ("weather(city='Rome', days=3)", ROME),
    "positional arguments": ("[weather('Rome', days=3)]", ROME),
    "python in a fence": ("```python\nweather(city='Rome', days=3)\n```", ROME),
    "python after prose": ("The calls are: [weather(city='Rome', days=3)]", ROME),
    "python, two calls": ("[weather(city='Rome', days=3), geo.area(x=True, y=[1, None])]", [*ROME, ("geo.area", {"x": True, "y": [1, None]})]),
    "xml": ('<invoke name="weather"><parameter name="city">Rome</parameter><parameter name="days">3</parameter></invoke>', ROME),
    "xml keeps text": ('<invoke name="weather">\n<parameter name="city">12</parameter><parameter name="units">["C", "F"]</parameter></invoke>', [("weather", {"city": "12", "units": ["C", "F"]})]),
    "xml escapes": ('<invoke name="weather"><parameter name="city">A &amp; B</parameter></invoke>', [("weather", {"city": "A & B"})]),
    "unknown tool": ('[{"name": "volume", "arguments": {}}]', [("volume", {})]),
    "empty list": ("[]", []),
    "prose": ("No function applies here.", []),
    "prose with brackets": ("See [1] and (2): none applies.", []),
    "a number": ("42", []),
    "nothing": ("", []),
}  # fmt: skip


@pytest.mark.parametrize("syntax", ["json", "python", "xml"])
@pytest.mark.parametrize("name", CASES)
def test_calls_are_found_in_any_syntax(name: str, syntax: str) -> None:
    text, expected = CASES[name]
    calls = parse_text_calls(text, Tools(tools=TOOLS, syntax=syntax))
    assert [(call.name, call.values) for call in calls] == expected


BROKEN = {
    "json cut off": '[{"name": "weather", "arguments": {"city": "Ro',
    "python cut off": "[weather(city='Rome'",
    "too many positional arguments": "[geo.area(1, 2)]",
    "xml cut off": '<function_calls><invoke name="weather"><parameter name="city">Rome',
    "tag without json": "<tool_call>weather in Rome</tool_call>",
    "a bomb": '{"name": ' + "[" * 50_000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_attempt_that_cannot_be_parsed_is_a_call_without_a_name(name: str) -> None:
    (call,) = parse_text_calls(BROKEN[name], Tools(tools=TOOLS, syntax="json"))
    assert (call.name, call.arguments) == ("", BROKEN[name])
    assert call.problem


def test_a_large_text_is_parsed_quickly() -> None:
    text = "[" * 2000 + json.dumps({"a": "b" * 100_000}) + "(" * 2000
    assert parse_text_calls(text, Tools(tools=TOOLS, syntax="xml")) == ()


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["1"] * 3000),
        "a" + ".b" * 3000,
        "-" * 3000 + "1",
        "weather(city={(1, 2): 3})",
        "weather(days=0x" + "f" * 5000 + ")",
        '{"name": "weather"} ' * 3000,
        "<tool_call>\n" * 3000,
        '<invoke name="weather">' * 3000,
    ],
    ids=lambda text: text[:20],
)
def test_an_endless_answer_is_parsed_or_refused(text: str) -> None:
    calls = parse_text_calls(text, Tools(tools=TOOLS, syntax="json"))
    assert all(call.problem or call.name for call in calls)
