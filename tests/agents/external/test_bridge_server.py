"""The endpoint of a bridge: tokens, bad requests, failures, streams; with plain HTTP and with the packages of the services."""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import PIL.Image
import pytest

from assay.agents.external.bridge_protocols import BridgeCall
from assay.agents.external.bridge_server import BridgeServer
from assay.core.records.messages import Image, Text
from assay.core.records.responses import Failure, Response, Usage
from assay.core.records.tools import ToolCall, ToolResult

USAGE = Usage(input_tokens=7, output_tokens=3)
PLAIN = Response(request_id="", value="Hello!", finish="stop", usage=USAGE)
CALLS = Response(
    request_id="",
    value="Let me look.",
    usage=USAGE,
    tool_calls=(ToolCall("weather", '{"city": "Rome"}', "call_x"), ToolCall("clock", "{}")),
)


class Backend:
    """Answers every call with the same answer and keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[BridgeCall] = []
        self.answer: Response | Failure = PLAIN

    def __call__(self, call: BridgeCall) -> Response | Failure:
        self.calls.append(call)
        return self.answer


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def server(backend: Backend) -> Iterator[BridgeServer]:
    opened = BridgeServer(backend, socket.create_server(("127.0.0.1", 0)))
    yield opened
    opened.close()


def post(
    server: BridgeServer, path: str, body: Any, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"authorization": f"Bearer {server.token}", **(headers or {})}
        connection.request("POST", path, data, given)
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, text if "event-stream" in answer.getheader("content-type", "") else json.loads(
            text
        )
    finally:
        connection.close()


CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
RESPONSES = {"model": "m", "input": "Hi"}
MESSAGES = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}


@pytest.mark.parametrize("path", BODIES)
def test_every_api_gives_the_model_the_same_prompt(server: BridgeServer, backend: Backend, path: str) -> None:
    status, _ = post(server, path, BODIES[path])
    assert status == 200
    (call,) = backend.calls
    assert [(message.role, message.text) for message in call.prompt.messages] == [("user", "Hi")]
    assert call.prompt.chat and call.model == "m" and call.tools is None and not call.stream


def encode_picture() -> str:
    content = io.BytesIO()
    PIL.Image.new("RGB", (3, 2), "red").save(content, "PNG")
    return base64.b64encode(content.getvalue()).decode()


PICTURE = encode_picture()
URL = f"data:image/png;base64,{PICTURE}"
WITH_IMAGE: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [{"type": "text", "text": "See "}, {"type": "text", "text": "this:"}, {"type": "image_url", "image_url": {"url": URL}}],
    "/v1/responses": [{"type": "input_text", "text": "See this:"}, {"type": "input_image", "image_url": URL}],
    "/v1/messages": [{"type": "text", "text": "See this:"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}],
}  # fmt: skip


@pytest.mark.parametrize("path", WITH_IMAGE)
def test_images_in_requests_reach_the_model(server: BridgeServer, backend: Backend, path: str) -> None:
    key = "input" if path == "/v1/responses" else "messages"
    status, answer = post(
        server, path, {**BODIES[path], key: [{"role": "user", "content": WITH_IMAGE[path]}]}
    )
    assert status == 200, answer
    (message,) = backend.calls[0].prompt.messages
    text, image = message.parts
    assert isinstance(text, Text) and text.text == "See this:"
    assert isinstance(image, Image) and image.load().size == (3, 2)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"authorization": "Bearer wrong"}, 401, id="wrong token"),
        pytest.param({"authorization": ""}, 401, id="no token"),
        pytest.param({"authorization": "", "x-api-key": "wrong"}, 401, id="wrong key"),
        pytest.param({"host": "evil.example"}, 403, id="another host"),
    ],
)
def test_only_the_token_opens_the_endpoint(
    server: BridgeServer, backend: Backend, headers: dict[str, str], status: int
) -> None:
    found, body = post(server, "/v1/chat/completions", CHAT, headers)
    assert found == status and body["type"] == "error" and server.token not in json.dumps(body)
    assert backend.calls == []


def test_a_program_cannot_open_any_number_of_connections(server: BridgeServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(64)]
    try:
        refused = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        idle.append(refused)
        assert refused.recv(100).startswith(b"HTTP/1.1 503 ")
    finally:
        for connection in idle:
            connection.close()
    for _ in range(600):
        try:
            if post(server, "/v1/chat/completions", CHAT)[0] == 200:
                return
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.05)
    pytest.fail("closed connections still count")


def test_one_large_request_is_read_at_a_time() -> None:
    both, met = threading.Barrier(2), []

    def answer(call: BridgeCall) -> Response:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)
            met.append(call.number)
        return PLAIN

    server = BridgeServer(answer, socket.create_server(("127.0.0.1", 0)))
    try:
        body = {**CHAT, "user": "x" * 100_000}
        threads = [
            threading.Thread(target=post, args=(server, "/v1/chat/completions", body)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert met == []
    finally:
        server.close()


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        pytest.param("/v1/chat/completions", b"{", "Expecting property name", id="not JSON"),
        pytest.param("/v1/chat/completions", [1], "must be a JSON object", id="not an object"),
        pytest.param("/v1/chat/completions", {"messages": []}, "`messages` must be a list", id="no messages"),
        pytest.param("/v1/chat/completions", {"messages": [7]}, "must be an object", id="message is a number"),
        pytest.param("/v1/chat/completions", {**CHAT, "n": 3}, "`n` must be 1", id="several answers"),
        pytest.param("/v1/chat/completions", {**CHAT, "temperature": "hot"}, "`temperature` must be a number", id="temperature"),
        pytest.param("/v1/chat/completions", {**CHAT, "stop": [1]}, "stop sequences", id="stop"),
        pytest.param("/v1/chat/completions", {**CHAT, "tools": [{"type": "web_search"}]}, "only tools of the type", id="tool kind"),
        pytest.param(
            "/v1/chat/completions", {**CHAT, "tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "float"}}}]},
            "schema of the tool `a` is invalid", id="tool schema",
        ),
        pytest.param("/v1/chat/completions", {"messages": [{"role": "system", "content": "x"}]}, "besides the system", id="only a system message"),
        pytest.param("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "must be inside the request", id="image without content"),
        pytest.param("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}]}, "must be inside the request", id="image elsewhere"),
        pytest.param("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "%%%"}}]}]}, "cannot be read", id="image that is no base64"),
        pytest.param("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "`input_audio` are not supported", id="audio"),
        pytest.param("/v1/responses", {"input": [{"type": "computer_call"}]}, "`computer_call` are not supported", id="item"),
        pytest.param("/v1/responses", {**RESPONSES, "previous_response_id": "x"}, "send the whole conversation", id="stored conversation"),
        pytest.param("/v1/messages", {**MESSAGES, "tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools of the service", id="service tool"),
        pytest.param("/v1/messages", {"messages": [{"role": "system", "content": ""}]}, "the role `user` or `assistant`", id="role"),
    ],
)  # fmt: skip
def test_bad_requests_say_what_is_wrong(server: BridgeServer, path: str, body: Any, problem: str) -> None:
    status, answer = post(server, path, body)
    assert status == 400 and problem in answer["error"]["message"], answer


def test_unknown_paths_are_not_found(server: BridgeServer) -> None:
    status, answer = post(server, "/v1/embeddings", {"input": "x"})
    assert status == 404 and "/v1/chat/completions" in answer["error"]["message"]


def test_a_failure_is_an_error_that_clients_do_not_repeat(server: BridgeServer, backend: Backend) -> None:
    backend.answer = Failure(request_id="", kind="turn limit", message="no more calls")
    status, answer = post(server, "/v1/messages", MESSAGES)
    assert (status, answer["error"]["type"], answer["error"]["message"]) == (
        400,
        "turn_limit",
        "no more calls",
    )


def test_a_conversation_with_tools_is_read_completely(server: BridgeServer, backend: Backend) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    chat = {
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": schema}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False, "stop": "END", "max_completion_tokens": 5, "temperature": 0.5,
    }  # fmt: skip
    messages = {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}]}]},
        ],
        "tools": [{"name": "weather", "description": "d", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        "stop_sequences": ["END"], "max_tokens": 5, "temperature": 0.5,
    }  # fmt: skip
    responses = {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        ],
        "tools": [{"type": "function", "name": "weather", "description": "d", "parameters": schema}],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False, "max_output_tokens": 5, "temperature": 0.5,
    }  # fmt: skip
    for path, body in zip(BODIES, (chat, responses, messages), strict=True):
        assert post(server, path, body)[0] == 200
    for call in backend.calls:
        assert [message.parts for message in call.prompt.messages] == [
            (Text("Be brief."),),
            (Text("Weather?"),),
            (ToolCall("weather", '{"city": "Rome"}', "c1"),),
            (ToolResult("sunny", "c1", "weather"),),
        ]
        assert call.tools is not None
        assert (call.tools.choice, call.tools.parallel, call.tools.names) == ("weather", False, ("weather",))
        assert call.tools.tools[0].parameters == schema
        assert (call.settings["max_gen_toks"], call.settings["temperature"]) == (5, 0.5)
    assert [call.number for call in backend.calls] == [0, 1, 2]


def test_streams_are_server_sent_events(server: BridgeServer, backend: Backend) -> None:
    backend.answer = CALLS
    status, text = post(server, "/v1/messages", {**MESSAGES, "stream": True})
    assert status == 200
    assert text.startswith("event: message_start\n")
    assert '"partial_json": "{\\"city\\": \\"Rome\\"}"' in text
    _, text = post(server, "/v1/chat/completions", {**CHAT, "stream": True})
    assert text.endswith("data: [DONE]\n\n")


# --- with the packages of the services -----------------------------------------------------------------------------


@pytest.mark.services
@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_package_reads_chat_completions(
    server: BridgeServer, backend: Backend, stream: bool
) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(
        base_url=server.environment["OPENAI_BASE_URL"], api_key=server.token, max_retries=0
    )
    with client:
        assert [model.id for model in client.models.list()] == ["assay"]
        backend.answer = CALLS
        if stream:
            with client.chat.completions.stream(model="m", messages=CHAT["messages"]) as events:
                done = events.get_final_completion()
        else:
            done = client.chat.completions.create(**CHAT)
            assert done.usage.total_tokens == 10
        message = done.choices[0].message
        assert (message.content, done.choices[0].finish_reason) == ("Let me look.", "tool_calls")
        assert [(one.id, one.function.name, one.function.arguments) for one in message.tool_calls] == [
            ("call_x", "weather", '{"city": "Rome"}'),
            ("call_0_1", "clock", "{}"),
        ]
        backend.answer = Failure(request_id="", kind="cost limit", message="over")
        with pytest.raises(openai.BadRequestError, match="over"):
            client.chat.completions.create(**CHAT)


@pytest.mark.services
@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_package_reads_responses(server: BridgeServer, backend: Backend, stream: bool) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=server.environment["OPENAI_BASE_URL"], api_key=server.token) as client:
        for backend.answer in (PLAIN, CALLS):
            if stream:
                with client.responses.stream(**RESPONSES) as events:
                    done = events.get_final_response()
            else:
                done = client.responses.create(**RESPONSES)
            assert done.output_text == backend.answer.value and done.usage.total_tokens == 10
        assert [(one.call_id, one.name, one.arguments) for one in done.output[1:]] == [
            ("call_x", "weather", '{"city": "Rome"}'),
            ("call_1_1", "clock", "{}"),
        ]


@pytest.mark.services
@pytest.mark.parametrize("stream", [False, True])
def test_the_anthropic_package_reads_messages(server: BridgeServer, backend: Backend, stream: bool) -> None:
    anthropic = pytest.importorskip("anthropic")
    address = server.environment["ANTHROPIC_BASE_URL"]
    with anthropic.Anthropic(base_url=address, api_key=server.token, max_retries=0) as client:
        backend.answer = CALLS
        if stream:
            with client.messages.stream(**MESSAGES) as events:
                done = events.get_final_message()
        else:
            done = client.messages.create(**MESSAGES)
        text, weather, clock = done.content
        assert (text.text, done.stop_reason) == ("Let me look.", "tool_use")
        assert (weather.id, weather.name, weather.input) == ("call_x", "weather", {"city": "Rome"})
        assert (clock.id, clock.input) == ("call_0_1", {})
        assert (done.usage.input_tokens, done.usage.output_tokens) == (7, 3)
        with pytest.raises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=address, api_key="wrong", max_retries=0).messages.create(**MESSAGES)
