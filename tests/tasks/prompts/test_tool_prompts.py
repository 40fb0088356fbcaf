from __future__ import annotations

import pytest

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.tools import CALL_SYNTAXES, Tool, Tools
from assay.scoring.tool_calls.text_calls import parse_text_calls
from assay.tasks.prompts.tool_prompts import add_tool_description, describe_tools

AREA = Tool("area", "Area of a rectangle.")


@pytest.mark.parametrize("syntax", CALL_SYNTAXES)
def test_the_example_in_the_prompt_can_be_parsed(syntax: str) -> None:
    tools = Tools(tools=(AREA,), syntax=syntax)
    example = describe_tools(tools).partition("for example:\n")[2].partition("\n")[0]
    (call,) = parse_text_calls(example, tools)
    assert (call.name, call.values) == ("function_name", {"argument": "value"})


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (Tools(tools=(AREA,), syntax="json"), "If no function applies"),
        (Tools(tools=(AREA,), syntax="json", choice="required"), "Call at least one function."),
        (Tools(tools=(AREA,), syntax="json", choice="area"), "Call the function `area`."),
        (Tools(tools=(AREA,), syntax="json", choice="none"), "Do not call a function now"),
        (Tools(tools=(AREA,), syntax="json", parallel=False), "Make at most one call."),
    ],
)
def test_the_prompt_says_what_may_be_called(tools: Tools, expected: str) -> None:
    assert expected in describe_tools(tools)


def test_the_description_joins_the_system_message_of_a_chat() -> None:
    tools = Tools(tools=(AREA,), syntax="json")
    plain = add_tool_description(Prompt.of_text("Hi"), tools)
    assert plain.plain is not None and plain.plain.endswith("\n\nHi")
    user = Message("user", (Text("Hi"),))
    chat = add_tool_description(Prompt((Message("system", (Text("Be brief."),)), user), chat=True), tools)
    assert chat.messages[0].text.startswith("Be brief.\n\nYou can call") and chat.messages[1] == user
    alone = add_tool_description(Prompt((user,), chat=True), tools)
    assert [message.role for message in alone.messages] == ["user"]
    assert alone.text.endswith("\n\nHi")
