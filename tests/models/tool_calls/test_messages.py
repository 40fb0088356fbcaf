from __future__ import annotations

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.tools import Tool, ToolCall, ToolResult, Tools
from assay.models.tokens.chat_template import ChatTemplate
from assay.models.tool_calls.messages import to_openai_tools, to_template_messages

TOOLS = Tools(
    tools=(
        Tool("area", "", {"type": "object", "properties": {"base": {"type": "number"}}}),
        Tool("now", "Time."),
    )
)
PROMPT = Prompt(
    (
        Message("user", (Text("Area?"),)),
        Message(
            "assistant", (Text("Look."), ToolCall("area", '{"base": 1}', "c1"), ToolCall("now", "{", "c2"))
        ),
        Message("tool", (ToolResult("2", "c1", "area"), ToolResult("noon", "c2", "now"))),
    ),
    chat=True,
)


def test_a_tool_without_a_description_has_none() -> None:
    assert to_openai_tools(TOOLS)[0] == {
        "type": "function",
        "function": {"name": "area", "parameters": TOOLS.tools[0].parameters},
    }


def test_messages_for_templates_have_calls_as_objects_and_one_message_per_result() -> None:
    user, assistant, first, second = to_template_messages(PROMPT)
    assert user == {"role": "user", "content": "Area?"}
    assert assistant["content"] == "Look."
    assert [call["function"] for call in assistant["tool_calls"]] == [
        {"name": "area", "arguments": {"base": 1}},
        {"name": "now", "arguments": {}},
    ]
    assert first == {"role": "tool", "name": "area", "tool_call_id": "c1", "content": "2"}
    assert second["content"] == "noon"


def test_a_chat_template_renders_tools_and_results() -> None:
    source = (
        "{% if tools %}{% for t in tools %}<{{ t.function.name }}>{% endfor %}{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
        "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}{% endfor %}"
    )
    template = ChatTemplate(source)
    assert template.render(PROMPT, TOOLS) == (
        '<area><now>[user]Area?[assistant]Look.(area {"base": 1})(now {})[tool]2[tool]noon'
    )
    assert template.render(PROMPT).startswith("[user]Area?")
