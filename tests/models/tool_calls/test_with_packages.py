"""Tool calls with the packages of the providers: their types, their clients, and `litellm` in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.models.remote.asking import ask
from tests.models.tool_calls.test_services import (
    ARGUMENTS,
    CALL,
    SCHEMA,
    TURNS,
    Service,
    answer,
    serve,
    with_tools,
)

from assay.core.records.responses import Response
from assay.models.hosted.litellm import LiteLLMModel

pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("ignore"),  # the packages warn of their own past
]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "key-for-a-test")
    with serve() as running:
        running.replies |= {
            "/v1/chat/completions": build_chat_completion(),
            "/v1/responses": build_openai_response(),
            "/v1/messages": build_anthropic_message(),
        }
        yield running


def build_chat_completion() -> Any:
    from openai.types.chat import ChatCompletion

    function = {"name": CALL.name, "arguments": ARGUMENTS}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": CALL.id, "type": "function", "function": function}],
    }
    return ChatCompletion.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
        }
    ).model_dump(mode="json")


def build_openai_response() -> Any:
    from openai.types.responses import Response as OpenAIResponse

    call = {"type": "function_call", "call_id": CALL.id, "name": CALL.name, "arguments": ARGUMENTS}
    reasoning = {
        "type": "reasoning",
        "id": "r1",
        "summary": [{"type": "summary_text", "text": "a square"}],
    }
    return OpenAIResponse.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "status": "completed",
            "output": [reasoning, call],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    ).model_dump(mode="json")


def build_anthropic_message() -> Any:
    from anthropic.types import Message

    return Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "stop_reason": "tool_use",
            "content": [
                {"type": "thinking", "thinking": "a square", "signature": "s"},
                {"type": "tool_use", "id": CALL.id, "name": CALL.name, "input": {"base": 3}},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 4},
        }
    ).model_dump(mode="json")


REASONING = {"chat": None, "responses": "a square", "anthropic": "a square"}


@pytest.mark.parametrize("kind", REASONING)
def test_replies_made_with_the_types_of_the_provider_are_parsed(service: Service, kind: str) -> None:
    found = answer(service, kind, with_tools())
    assert (found.tool_calls, found.reasoning, found.finish) == ((CALL,), REASONING[kind], "stop")


@pytest.mark.parametrize("kind", REASONING)
def test_the_client_of_the_provider_accepts_the_same_request_and_returns_the_same_call(
    service: Service, kind: str
) -> None:
    """The client rejects arguments that the API does not have, and sends what Assay sends."""
    found = answer(service, kind, replace(with_tools(choice="required", parallel=False), prompt=TURNS))
    (sent,) = service.bodies
    if kind == "anthropic":
        from anthropic import Anthropic

        known = {key: value for key, value in sent.items() if key != "temperature"}  # not in newer clients
        more = {"temperature": sent["temperature"]}
        message = Anthropic(base_url=service.url, max_retries=0).messages.create(**known, extra_body=more)
        block = next(one for one in message.content if one.type == "tool_use")
        call = (block.id, block.name, block.input)
    else:
        from openai import OpenAI

        client = OpenAI(base_url=f"{service.url}/v1", max_retries=0)
        if kind == "chat":
            function = client.chat.completions.create(**sent).choices[0].message.tool_calls[0]
            call = (function.id, function.function.name, json.loads(function.function.arguments))
        else:
            item = next(one for one in client.responses.create(**sent).output if one.type == "function_call")
            call = (item.call_id, item.name, json.loads(item.arguments))
    (own,) = found.tool_calls
    assert call == (own.id, own.name, own.values)
    assert service.bodies[1] == sent


def test_gemini_types_accept_the_request_and_the_reply(service: Service) -> None:
    from google.genai import types

    answer(service, "gemini", replace(with_tools(choice="area"), prompt=TURNS))
    (sent,) = service.bodies
    contents = [types.Content.model_validate(one) for one in sent["contents"]]
    calls = [part.function_call for one in contents for part in one.parts or () if part.function_call]
    results = [
        part.function_response for one in contents for part in one.parts or () if part.function_response
    ]
    assert [call.name for call in calls] == [result.name for result in results] == ["area"]
    assert [call.id for call in calls] == [result.id for result in results] == ["c7"]
    (tool,) = [types.Tool.model_validate(one) for one in sent["tools"]]
    assert tool.function_declarations and tool.function_declarations[0].parameters_json_schema == SCHEMA
    types.ToolConfig.model_validate(sent["toolConfig"])
    reply = types.GenerateContentResponse.model_validate(service.replies["/v1beta/models/m:generateContent"])
    assert reply.function_calls and reply.function_calls[0].args == {"base": 3}


@pytest.mark.parametrize(
    ("model", "path"), [("openai/m", "/v1"), ("anthropic/m", "")], ids=["openai", "anthropic"]
)
def test_litellm_sends_tools_and_returns_the_calls(service: Service, model: str, path: str) -> None:
    pytest.importorskip("mcp")  # litellm needs it for tools
    request = replace(with_tools(choice="required"), prompt=TURNS)
    own = LiteLLMModel(model=model, base_url=service.url + path, retry_backoff_s=0.01)
    assert "tools" in own.traits.abilities
    found = ask(own, [request])[request.id]
    assert isinstance(found, Response), found
    assert found.tool_calls == (CALL,) and found.finish == "stop"
    (sent,) = service.bodies
    (tool,) = sent["tools"]
    if model.startswith("anthropic"):
        assert tool["name"] == "area" and tool["input_schema"]["properties"] == SCHEMA["properties"]
        assert sent["tool_choice"]["type"] == "any" and found.reasoning == "a square"
        assert sent["messages"][2]["content"][0]["tool_use_id"] == "c7"
    else:
        assert tool["function"]["parameters"] == SCHEMA and sent["tool_choice"] == "required"
        assert sent["messages"][2] == {"role": "tool", "tool_call_id": "c7", "content": "9"}
