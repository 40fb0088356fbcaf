"""Tools over HTTP: what each service gets, and what its reply becomes. The replies have the documented formats."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.models.remote.asking import ask, generate

from assay.core.records.messages import Message, Prompt, Text
from assay.core.records.responses import Response
from assay.core.records.tools import ResponseFormat, Tool, ToolCall, ToolResult, Tools
from assay.models import make_model

SCHEMA = {"type": "object", "properties": {"base": {"type": "number"}}, "required": ["base"]}
AREA = Tool("area", "Area of a square.", SCHEMA)
ARGUMENTS = '{"base": 3}'
CALL = ToolCall("area", ARGUMENTS, "c7")
REPLIES: dict[str, Any] = {
    "/v1/chat/completions": {
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c7", "type": "function", "function": {"name": "area", "arguments": ARGUMENTS}}
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4},
    },
    "/v1/responses": {
        "model": "m",
        "status": "completed",
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a square"}]},
            {"type": "function_call", "id": "f1", "call_id": "c7", "name": "area", "arguments": ARGUMENTS},
        ],
        "usage": {"input_tokens": 9, "output_tokens": 4},
    },
    "/v1/messages": {
        "type": "message",
        "model": "m",
        "stop_reason": "tool_use",
        "content": [
            {"type": "text", "text": "I compute."},
            {"type": "tool_use", "id": "c7", "name": "area", "input": {"base": 3}},
        ],
        "usage": {"input_tokens": 9, "output_tokens": 4},
    },
    "/v1beta/models/m:generateContent": {
        "modelVersion": "m",
        "candidates": [
            {
                "finishReason": "STOP",
                "content": {"parts": [{"functionCall": {"id": "c7", "name": "area", "args": {"base": 3}}}]},
            }
        ],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4},
    },
}


class Service:
    """The address of a server, and what it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.replies: dict[str, Any] = dict(REPLIES)


@contextmanager
def serve() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.bodies.append(body)
            reply = service.replies[self.path]
            status, value = reply(body) if callable(reply) else (200, reply)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "key-for-a-test")
    with serve() as running:
        yield running


MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "chat": ("openai", "/v1", {"probe": False}),
    "responses": ("openai", "/v1", {"probe": False, "api": "responses"}),
    "anthropic": ("anthropic", "/v1", {}),
    "gemini": ("gemini", "/v1beta", {}),
}


def answer(service: Service, kind: str, request: Any) -> Response:
    name, path, arguments = MODELS[kind]
    model = make_model(name, {"model": "m", "base_url": service.url + path, **arguments})
    assert "tools" in model.traits.abilities
    outcome = ask(model, [request])[request.id]
    assert isinstance(outcome, Response), outcome
    return outcome


def with_tools(**settings: Any) -> Any:
    return replace(generate("Area of 3?"), tools=Tools(tools=(AREA,), **settings))


@pytest.mark.parametrize("kind", MODELS)
def test_calls_are_returned_with_id_name_and_arguments(service: Service, kind: str) -> None:
    found = answer(service, kind, with_tools())
    assert found.tool_calls == (CALL,)
    assert found.finish == "stop"
    assert found.value == ("I compute." if kind == "anthropic" else "")
    assert found.reasoning == ("a square" if kind == "responses" else None)


FUNCTION = {"name": "area", "description": "Area of a square.", "parameters": SCHEMA}
SENT: dict[str, tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "chat": (
        [{"type": "function", "function": FUNCTION}],
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "function": {"name": "area"}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}},
    ),
    "responses": (
        [{"type": "function", **FUNCTION, "strict": False}],
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "name": "area"}},
        {"text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}}},
    ),
    "anthropic": (
        [{"name": "area", "description": "Area of a square.", "input_schema": SCHEMA}],
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"tool_choice": {"type": "tool", "name": "area"}},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    "gemini": (
        [{"functionDeclarations": [{"name": "area", "description": "Area of a square.", "parametersJsonSchema": SCHEMA}]}],
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["area"]}}},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SENT)
def test_each_service_gets_tools_and_formats_in_its_own_form(service: Service, kind: str) -> None:
    tools, required, named, wanted = SENT[kind]
    answer(service, kind, with_tools())
    answer(service, kind, with_tools(choice="required", parallel=False))
    answer(service, kind, with_tools(choice="area"))
    answer(service, kind, replace(generate("Area?"), response_format=ResponseFormat(schema=SCHEMA)))
    plain, forced, chosen, formatted = service.bodies
    assert plain["tools"] == tools and not {"tool_choice", "toolConfig", "parallel_tool_calls"} & set(plain)
    assert {key: forced[key] for key in required} == required
    assert {key: chosen[key] for key in named} == named
    assert {key: formatted[key] for key in wanted} == wanted and "tools" not in formatted
    if kind == "gemini":
        assert formatted["generationConfig"]["responseJsonSchema"] == SCHEMA


TURNS = Prompt(
    (
        Message("user", (Text("Area of 3?"),)),
        Message("assistant", (CALL,)),
        Message("tool", (ToolResult("9", "c7", "area"),)),
    ),
    chat=True,
)
HISTORY: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "chat": (
        "messages",
        [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c7", "type": "function", "function": {"name": "area", "arguments": ARGUMENTS}}]},
            {"role": "tool", "tool_call_id": "c7", "content": "9"},
        ],
    ),
    "responses": (
        "input",
        [
            {"type": "function_call", "call_id": "c7", "name": "area", "arguments": ARGUMENTS},
            {"type": "function_call_output", "call_id": "c7", "output": "9"},
        ],
    ),
    "anthropic": (
        "messages",
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c7", "name": "area", "input": {"base": 3}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c7", "content": "9"}]},
        ],
    ),
    "gemini": (
        "contents",
        [
            {"role": "model", "parts": [{"functionCall": {"id": "c7", "name": "area", "args": {"base": 3}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c7", "name": "area", "response": {"result": "9"}}}]},
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HISTORY)
def test_calls_and_results_in_the_prompt_are_sent(service: Service, kind: str) -> None:
    answer(service, kind, replace(with_tools(), prompt=TURNS))
    key, expected = HISTORY[kind]
    assert service.bodies[0][key][1:] == expected


@pytest.mark.parametrize("kind", ["anthropic", "gemini"])
def test_the_results_of_parallel_calls_are_one_message(service: Service, kind: str) -> None:
    calls = (CALL, ToolCall("area", '{"base": 4}', "c8"))
    results = (
        Message("tool", (ToolResult(text, one.id, "area"),))
        for one, text in zip(calls, ("9", "16"), strict=True)
    )
    prompt = Prompt((TURNS.messages[0], Message("assistant", calls), *results, TURNS.messages[0]), chat=True)
    answer(service, kind, replace(with_tools(), prompt=prompt))
    key, content = {"anthropic": ("messages", "content"), "gemini": ("contents", "parts")}[kind]
    question, asked, told, again = service.bodies[0][key]
    assert len(asked[content]) == len(told[content]) == 2
    assert "c8" in json.dumps(told[content][1]) and again == question


def test_a_call_that_gemini_cannot_parse_is_an_outcome(service: Service) -> None:
    broken = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "area(base="}
    service.replies["/v1beta/models/m:generateContent"] = {"candidates": [broken]}
    found = answer(service, "gemini", with_tools())
    assert found.tool_calls == (ToolCall("", "area(base="),)
    assert len(service.bodies) == 1, "it is not asked again"


def chat_reply(message: dict[str, Any], tokens: int = 9) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    return {"model": "m", "choices": [choice], "usage": {"prompt_tokens": tokens, "completion_tokens": 4}}


@pytest.mark.parametrize(
    ("message", "expected", "text"),
    [
        ({"content": f'Now <tool_call>{{"name": "area", "arguments": {ARGUMENTS}}}</tool_call>'}, [ToolCall("area", ARGUMENTS)], "Now"),
        ({"content": "[TOOL_CALLS]area[ARGS]{"}, [ToolCall("area", "{")], ""),
        ({"content": "", "tool_calls": [{"function": {"name": "area", "arguments": {"base": 3}}}]}, [ToolCall("area", ARGUMENTS)], ""),
        ({"content": None, "function_call": {"name": "area", "arguments": ARGUMENTS}}, [ToolCall("area", ARGUMENTS)], ""),
        ({"content": "", "tool_calls": [{"id": "x", "function": {"name": "volume", "arguments": '{"a'}}]}, [ToolCall("volume", '{"a', "x")], ""),
        ({"content": "Nine."}, [], "Nine."),
    ],
    ids=["text of the model", "malformed text", "arguments as an object", "older form", "malformed arguments", "no call"],
)  # fmt: skip
def test_replies_of_other_servers(
    service: Service, message: dict[str, Any], expected: list[ToolCall], text: str
) -> None:
    service.replies["/v1/chat/completions"] = chat_reply(message)
    found = answer(service, "chat", with_tools())
    assert (list(found.tool_calls), found.value) == (expected, text)


@pytest.mark.parametrize(
    ("reply", "supported"),
    [
        (lambda body: (200, chat_reply({"content": "Yes."}, 30 if "tools" in body else 9)), True),
        (lambda body: (200, chat_reply({"content": "Yes."}, 9)), False),
        (lambda body: (400, {"error": {"message": "tools need a parser"}}) if "tools" in body else (200, chat_reply({"content": "Yes."})), False),
    ],
    ids=["supported", "ignored", "rejected"],
)  # fmt: skip
def test_a_server_is_probed_for_tools(service: Service, reply: Any, supported: bool) -> None:
    import asyncio

    service.replies["/v1/chat/completions"] = reply
    model: Any = make_model("openai", {"model": "m", "base_url": service.url + "/v1"})

    async def probe() -> list[str]:
        return [*await model.probe(), *await model.probe_tools()]

    notes = asyncio.run(probe())
    assert ("tools" in model.traits.abilities) is supported
    assert any("does not support tools" in note for note in notes) is not supported
