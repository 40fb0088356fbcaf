"""Calls as families of models write them, after the templates and documentation of each family."""

from __future__ import annotations

from typing import Any

import pytest

from assay.models.tool_calls.formats import (
    FORMATS,
    JSON,
    detect_call_format,
    extract_known_calls,
    supports_tools,
)

ROME: list[tuple[str, Any]] = [("weather", {"city": "Rome", "days": 3})]
TWO: list[tuple[str, Any]] = [*ROME, ("area", {})]
BY_NAME = {one.name: one for one in (*FORMATS, JSON)}
CASES: dict[str, tuple[str, str, list[tuple[str, Any]], str]] = {
    "hermes": ("hermes", '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>', ROME, ""),
    "hermes, two with text": ("hermes", 'I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>\n<tool_call>\n{"name": "area", "arguments": {}}\n</tool_call>', TWO, "I look."),
    "hermes, not closed": ("hermes", '<tool_call>{"name": "area", "arguments": {}}', [("area", {})], ""),
    "qwen3-coder": ("hermes", "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", ROME, ""),
    "glm": ("hermes", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", ROME, ""),
    "llama 3": ("llama 3", '{"name": "weather", "parameters": {"city": "Rome", "days": 3}}', ROME, ""),
    "llama 3, tag": ("llama 3", '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome", "days": 3}}', ROME, ""),
    "llama 3, several": ("llama 3", '{"name": "weather", "parameters": {"city": "Rome", "days": 3}}; {"name": "area", "parameters": {}}', TWO, ""),
    "mistral": ("mistral", '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome", "days": 3}, "id": "a1b2c3d4e"}]', ROME, ""),
    "mistral, new": ("mistral", '[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 3}[TOOL_CALLS]area[ARGS]{}', TWO, ""),
    "mistral, call id": ("mistral", 'Text[TOOL_CALLS]weather[CALL_ID]x1[ARGS]{"city": "Rome", "days": 3}</s>', ROME, "Text"),
    "deepseek v3": ("deepseek", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"city": "Rome", "days": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>', ROME, ""),
    "deepseek v3.1": ("deepseek", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome", "days": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>area<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>', TWO, ""),
    "cohere": ("cohere", '<|START_ACTION|>[\n{"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Rome", "days": 3}}\n]<|END_ACTION|>', ROME, ""),
    "granite": ("granite", '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]', ROME, ""),
    "phi": ("granite", '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]<|/tool_call|>', ROME, ""),
    "pythonic": ("pythonic", "<|python_start|>[weather(city='Rome', days=3), area()]<|python_end|>", TWO, ""),
    "harmony": ("harmony", '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome", "days": 3}<|call|>', ROME, "<|channel|>analysis<|message|>hm<|end|>"),
    "harmony, recipient first": ("harmony", '<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{"city": "Rome", "days": 3}<|call|>', ROME, ""),
    "json": ("json", '[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]', ROME, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_calls_of_each_family_are_extracted(name: str) -> None:
    family, text, expected, rest = CASES[name]
    found = BY_NAME[family].extract(text)
    assert [(call.name, call.values) for call in found.calls] == expected
    assert found.text == rest


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][0] not in ("json", "llama 3")])
def test_calls_in_the_text_of_a_server_are_found_by_their_marks(name: str) -> None:
    _, text, expected, _ = CASES[name]
    assert [(call.name, call.values) for call in extract_known_calls(text).calls] == expected


@pytest.mark.parametrize("family", BY_NAME)
def test_plain_text_has_no_calls(family: str) -> None:
    for text in ("It is sunny in Rome.", "", '{"temperature": 20}', "[1, 2]", "a < b and c > d"):
        found = BY_NAME[family].extract(text)
        assert (found.text, found.calls) == (text, ())
        assert extract_known_calls(text).calls == ()


BROKEN = {
    "hermes": '<tool_call>{"name": "weather", "arguments": {"city": "Ro',
    "llama 3": '{"name": "weather", "parameters": {"city": ',
    "mistral": '[TOOL_CALLS] [{"name": "weather", ',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather",
    "cohere": '<|START_ACTION|>[{"tool_name": ',
    "granite": '<|tool_call|>[{"name": "weather"',
    "pythonic": "<|python_start|>[weather(city=",
    "json": '[{"name": "weather", "arguments": ',
}


@pytest.mark.parametrize("family", BROKEN)
def test_a_call_that_cannot_be_parsed_has_no_name(family: str) -> None:
    (call,) = BY_NAME[family].extract(BROKEN[family]).calls
    assert call.name == "" and call.problem and call.arguments in BROKEN[family]


def test_malformed_arguments_keep_their_text() -> None:
    (call,) = BY_NAME["mistral"].extract('[TOOL_CALLS]weather[ARGS]{"city": "Ro').calls
    assert (call.name, call.arguments, call.values) == ("weather", '{"city": "Ro', None)


TEMPLATES = {
    "hermes": "{%- if tools %}<tools>{{ tools | tojson }}</tools> <tool_call>{%- endif %}",
    "llama 3": "{%- if tools is not none %}{{ '<|python_tag|>' }}{%- endif %}",
    "mistral": "{%- if tools %}[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS] [TOOL_CALLS]{%- endif %}",
    "deepseek": "{%- for tool in tools %}<｜tool▁calls▁begin｜>{%- endfor %}",
    "cohere": "{%- if tools %}<|START_ACTION|>{%- endif %}",
    "harmony": "{%- if tools %}{{ tools }}<|call|>{%- endif %}",
    "json": "{%- if available_tools %}{{ available_tools }}{%- endif %}",
}


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_template_tells_the_format(family: str) -> None:
    found = detect_call_format(TEMPLATES[family])
    assert found is not None and found.name == family


def test_a_template_without_tools_has_no_format() -> None:
    assert detect_call_format("{{ messages }} <tool_call>") is None
    assert not supports_tools("You have no tools. {{ messages[0].content }}")
    found = detect_call_format("{% if tools %}{{ tools }}{% endif %}", ["[TOOL_CALLS]"])
    assert found is not None and found.name == "mistral"
