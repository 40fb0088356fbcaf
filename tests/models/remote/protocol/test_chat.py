from __future__ import annotations

import pytest

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.requests import Generate, Settings
from assay.core.records.tools import Tool, Tools
from assay.models.remote.options import Options
from assay.models.remote.protocol.chat import Choice, build_response

CALL = '<tool_call>{"name": "area", "arguments": {}}</tool_call>'
REQUEST = Generate(
    task="t",
    document=0,
    prompt=Prompt((Message("user", (Text("?"),)),), chat=True),
    settings=Settings({}),
    tools=Tools(tools=(Tool("area"),)),
)


@pytest.mark.parametrize(
    ("text", "value", "names"),
    [
        (
            "<think>The <tool_call> tag is wrong here.</think>No tool is needed: 42",
            "No tool is needed: 42",
            [],
        ),
        (f"<think>maybe {CALL}</think>42", "42", []),
        (f"<think>yes</think>{CALL}", "", ["area"]),
        (f"Now: {CALL}", "Now:", ["area"]),
    ],
)
def test_calls_that_the_server_does_not_parse_are_read_from_the_answer_only(
    text: str, value: str, names: list[str]
) -> None:
    response = build_response(
        REQUEST, Choice(text, "stop"), None, Options(model="m", base_url="http://x"), 0.0
    )
    assert response.value == value
    assert [call.name for call in response.tool_calls] == names
