from __future__ import annotations

import pytest

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.tools import CALL_SYNTAXES, Tool, ToolCall, ToolResult, Tools
from assay.scoring.tool_calls.text_calls import parse_text_calls
from assay.tasks.prompts.tool_history import has_tool_history, link_tool_results, write_tool_history
from assay.tasks.prompts.tool_prompts import write_tools_as_text

ARGUMENTS = '{"city": "Rome <b>", "days": 2}'
QUESTION = Message("user", (Text("Weather?"),))


def calls(*listed: ToolCall) -> Message:
    return Message("assistant", listed)


def results(*listed: ToolResult) -> list[Message]:
    return [Message("tool", (one,)) for one in listed]


def test_calls_get_ids_and_results_the_id_and_name_of_their_call_in_order() -> None:
    linked = link_tool_results(
        [
            calls(ToolCall("weather", ARGUMENTS), ToolCall("now")),
            *results(ToolResult("sunny"), ToolResult("noon")),
            calls(ToolCall("weather")),
            *results(ToolResult("rain")),
        ]
    )
    ids = [call.id for message in linked for call in message.tool_calls]
    assert len(set(ids)) == 3 and all(len(one) == 9 and one.isalnum() for one in ids)
    found = [part for message in linked for part in message.parts if isinstance(part, ToolResult)]
    assert [(one.content, one.call_id, one.name) for one in found] == [
        ("sunny", ids[0], "weather"),
        ("noon", ids[1], "now"),
        ("rain", ids[2], "weather"),
    ]


def test_a_name_or_an_id_decides_which_call_a_result_belongs_to() -> None:
    asked = calls(ToolCall("weather"), ToolCall("now"), ToolCall("weather", id="call00001"))
    linked = link_tool_results(
        [
            asked,
            *results(
                ToolResult("noon", name="now"), ToolResult("rain", call_id="call00001"), ToolResult("sunny")
            ),
        ]
    )
    first, second, third = linked[0].tool_calls
    assert third.id == "call00001" and len({first.id, second.id, third.id}) == 3
    assert [message.parts for message in linked[1:]] == [
        (ToolResult("noon", second.id, "now"),),
        (ToolResult("rain", third.id, "weather"),),
        (ToolResult("sunny", first.id, "weather"),),
    ]


def test_calls_without_an_id_get_the_id_of_their_result() -> None:
    asked = calls(ToolCall("weather"), ToolCall("now"), ToolCall("weather"), ToolCall("now", id="own"))
    linked = link_tool_results(
        [
            asked,
            *results(
                ToolResult("noon", "b", "now"),
                ToolResult("rain", "call00001"),  # an id that Assay would give
                ToolResult("sunny"),
                ToolResult("night", "unknown", "now"),  # the call that waits has another id
            ),
        ]
    )
    first, second, third, fourth = linked[0].tool_calls
    assert (first.id, second.id, fourth.id) == ("call00001", "b", "own")
    assert third.id not in {"", "call00001", "b", "own"}
    assert [message.parts for message in linked[1:]] == [
        (ToolResult("noon", "b", "now"),),
        (ToolResult("rain", "call00001", "weather"),),
        (ToolResult("sunny", third.id, "weather"),),
        (ToolResult("night", "unknown", "now"),),
    ]


def test_complete_messages_and_results_without_a_call_stay_unchanged() -> None:
    given = (QUESTION, calls(ToolCall("now", id="a")), *results(ToolResult("noon", "a", "now")))
    assert link_tool_results(given) == given
    lonely = tuple(results(ToolResult("noon"), ToolResult("rain", "other", "weather")))
    assert link_tool_results(lonely) == lonely


@pytest.mark.parametrize("syntax", CALL_SYNTAXES)
def test_calls_as_text_can_be_parsed_and_results_join_the_user(syntax: str) -> None:
    asked = (ToolCall("weather", ARGUMENTS, "a"), ToolCall("now", "{}", "b"))
    prompt = Prompt(
        (
            QUESTION,
            Message("assistant", (Text("I look."), *asked)),
            *results(ToolResult("sunny", "a", "weather"), ToolResult("noon", "b", "now")),
            Message("user", (Text("And now?"),)),
        ),
        chat=True,
    )
    written = write_tool_history(prompt, syntax)
    assert [message.role for message in written.messages] == ["user", "assistant", "user"]
    assert not has_tool_history(written) and has_tool_history(prompt)
    said, text = written.messages[1].text.split("\n", 1)
    assert said == "I look."
    tools = Tools(
        tools=(Tool("weather", "", {"properties": {"city": {"type": "string"}}}), Tool("now")), syntax=syntax
    )
    parsed = parse_text_calls(text, tools)
    assert [(call.name, call.values) for call in parsed] == [(call.name, call.values) for call in asked]
    assert written.messages[2].text == "Result of `weather`: sunny\nResult of `now`: noon\n\nAnd now?"


@pytest.mark.parametrize("syntax", CALL_SYNTAXES)
def test_a_call_with_malformed_arguments_is_written_as_it_is(syntax: str) -> None:
    prompt = Prompt((calls(ToolCall("now", '{"zone"')),), chat=True)
    (message,) = write_tool_history(prompt, syntax).messages
    assert "now" in message.text and "zone" in message.text


def test_a_prompt_without_history_keeps_its_messages() -> None:
    prompt = Prompt((QUESTION,), chat=True)
    assert write_tools_as_text(prompt, None, "json") is prompt
