"""A server that lies: replies that look like answers, and are none, for every protocol that Assay speaks.

`BEHAVIOURS` names them. `check_behaviour` runs a task while the server lies, and again when it is honest.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.making import write_task

import assay

DOCUMENTS = 3
MAX_CALLS = 2
"""Calls per request: the first one and one retry."""

Json = Any
Handler = BaseHTTPRequestHandler
Lie = Callable[[Handler, Json], None]
"""Sends a reply; gets the honest one."""


def _dump(value: Json) -> bytes:
    return json.dumps(value).encode()


def send(
    handler: Handler, body: bytes, headers: Mapping[str, str] | None = None, *, status: int = 200
) -> None:
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): text for name, text in (headers or {}).items()}
    head = "".join(f"{name}: {text}\r\n" for name, text in lines.items() if text)
    handler.wfile.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode("latin-1") + body)
    handler.close_connection = True


# --- lies of any HTTP server ---------------------------------------------------------------------------


def _status(status: int, **headers: str) -> Lie:
    return lambda handler, honest: send(handler, _dump(honest), headers, status=status)


def _body(body: bytes, **headers: str) -> Lie:
    return lambda handler, honest: send(handler, body, headers)


def _reset(handler: Handler, honest: Json) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


def _close_midway(handler: Handler, honest: Json) -> None:
    body = _dump(honest)
    send(handler, body[: len(body) // 2], {"Content_Length": str(len(body))})


def _never_end(handler: Handler, honest: Json) -> None:
    send(handler, _dump(honest), {"Content_Length": ""})
    with suppress(OSError):
        for _ in range(100):
            handler.wfile.write(b" " * 65536)


def _zip_bomb(handler: Handler, honest: Json) -> None:
    packer = zlib.compressobj(9, wbits=31)
    body = packer.compress(_dump(honest)) + packer.compress(b" " * 2**24) + packer.flush()
    send(handler, body, {"Content_Encoding": "gzip"})


def _as_other_type(handler: Handler, honest: Json) -> None:
    send(handler, _dump(honest), {"Content_Type": "text/html"})


def _cut_gzip(handler: Handler, honest: Json) -> None:
    packer = zlib.compressobj(wbits=31)
    send(handler, (packer.compress(_dump(honest)) + packer.flush())[:-6], {"Content_Encoding": "gzip"})


def _with_error(error: Any) -> Lie:
    return lambda handler, honest: send(handler, _dump({**honest, "error": error}))


_GENERAL: Mapping[str, Lie] = {
    "status 500": _status(500),
    "status 502": _status(502),
    "status 503 until 9999": _status(503, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"),
    "status 529": _status(529),
    "status 429 for ever": _status(429, Retry_After="inf"),
    "status 429 for hours": _status(429, Retry_After="86400"),
    "status 408": _status(408),
    "status 302": _status(302, Location="http://127.0.0.1:9/"),
    "HTML": _as_other_type,
    "empty body": _body(b""),
    "null": _body(b"null"),
    "a number": _body(b"42"),
    "a list": _body(b"[]"),
    "an empty object": _body(b"{}"),
    "cut JSON": _body(b'{"choices": [{"message": {"content": "4'),
    "deep JSON": _body(b"[" * 200_000 + b"]" * 200_000),
    "not UTF-8": _body(b'{"choices": "\xff\xfe"}'),
    "not gzip": _body(b"junk", Content_Encoding="gzip"),
    "cut gzip": _cut_gzip,
    "unknown encoding": _body(b"junk", Content_Encoding="br"),
    "gzip bomb": _zip_bomb,
    "endless body": _never_end,
    "announced terabyte": _body(b"{}", Content_Length="1099511627776"),
    "closed midway": _close_midway,
    "reset": _reset,
    "error beside the answer": _with_error({"message": "the engine died", "code": 500}),
    "error text beside the answer": _with_error("the engine died"),
}

# --- protocols -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol: the model that speaks it, its honest reply, and its own lies."""

    model: str
    arguments: Mapping[str, Any]
    honest: Callable[[Json], Json]
    """Makes a reply from the call."""

    lies: Mapping[str, Callable[[Json], Json]]
    """Change an honest reply."""

    scores: bool = False
    """Whether it returns log probabilities."""


def _set(path: str, value: Any) -> Callable[[Json], Json]:
    """Return a function that sets a value in a reply: `choices.0.finish_reason`."""

    def change(reply: Json) -> Json:
        *way, last = path.split(".")
        place = reply
        for word in way:
            place = place[int(word)] if isinstance(place, list) else place[word]
        if value is ...:
            del place[last]
        else:
            place[last if isinstance(place, dict) else int(last)] = value
        return reply

    return change


def _chat(call: Json) -> Json:
    return {"choices": [{"index": 0, "message": {"content": "4"}, "finish_reason": "stop"}]}


def _text(call: Json) -> Json:
    return {"choices": [{"index": 0, "text": "4", "finish_reason": "stop"}]}


def _scores(call: Json) -> Json:
    choices = []
    prompts = call["prompt"] if isinstance(call["prompt"], list) else [call["prompt"]]
    for index, prompt in enumerate(prompts):
        words = [word if number == 0 else f" {word}" for number, word in enumerate(prompt.split(" "))]
        offsets = [sum(map(len, words[:number])) for number in range(len(words))]
        numbers = [None, *[-0.5 - len(word) for word in words[1:]]]
        given = {
            "tokens": words,
            "text_offset": offsets,
            "token_logprobs": numbers,
            "top_logprobs": [None if number is None else {"x": -0.1} for number in numbers],
        }
        choices.append({"index": index, "text": prompt, "logprobs": given, "finish_reason": "length"})
    return {"choices": choices}


def _spoil_scores(value: Any) -> Callable[[Json], Json]:
    def change(reply: Json) -> Json:
        for choice in reply["choices"]:
            choice["logprobs"]["token_logprobs"][-1] = value
        return reply

    return change


def _responses(call: Json) -> Json:
    content = [{"type": "output_text", "text": "4"}]
    return {"status": "completed", "error": None, "output": [{"type": "message", "content": content}]}


def _messages(call: Json) -> Json:
    return {"type": "message", "content": [{"type": "text", "text": "4"}], "stop_reason": "end_turn"}


def _content(call: Json) -> Json:
    return {"candidates": [{"content": {"parts": [{"text": "4"}]}, "finishReason": "STOP"}]}


_CHOICE_ERROR = {"choice error": _set("choices.0.error", {"message": "engine died"})}
_FAILED_REASONS = ("error", "abort", "cancelled", "timeout", "insufficient_system_resource", "brand_new")
_REASONS = {f"finish {name}": _set("choices.0.finish_reason", name) for name in _FAILED_REASONS}
_STATUSES = ("failed", "cancelled", "incomplete", "in_progress", "queued", "brand_new")
_STOPS = ("pause_turn", "model_context_window_exceeded", "compaction", "brand_new", None)
_GEMINI = (
    "OTHER", "MALFORMED_FUNCTION_CALL", "LANGUAGE", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE",
    "FINISH_REASON_UNSPECIFIED", "BRAND_NEW", None,
)  # fmt: skip

PROTOCOLS: Mapping[str, Protocol] = {
    "chat": Protocol(
        "openai", {"probe": False}, _chat,
        {
            **_REASONS, **_CHOICE_ERROR,
            "no choices": _set("choices", []), "text null": _set("choices.0.message.content", None),
            "text number": _set("choices.0.message.content", 4), "no message": _set("choices.0.message", ...),
            "nothing": lambda reply: {"choices": [{"message": {"content": ""}, "finish_reason": None}]},
        },
    ),
    "text": Protocol(
        "openai-completions", {"probe": False, "tokenizer_backend": "none"}, _text,
        {
            **_REASONS, **_CHOICE_ERROR, "no choices": _set("choices", []),
            "text null": _set("choices.0.text", None), "text list": _set("choices.0.text", ["4"]),
        },
    ),
    "scores": Protocol(
        "openai-completions", {"probe": False, "tokenizer_backend": "none"}, _scores,
        {
            "not a number": _spoil_scores(float("nan")), "infinity": _spoil_scores(float("inf")),
            "minus infinity": _spoil_scores(float("-inf")), "positive": _spoil_scores(7.5),
            "absurd": _spoil_scores(-1e308), "a text": _spoil_scores("-1.0"),
            "no scores": _set("choices.0.logprobs", None), "finish abort": _set("choices.0.finish_reason", "abort"),
            "choice error": _set("choices.0.error", "engine died"), "no choices": _set("choices", []),
        },
        scores=True,
    ),
    "responses": Protocol(
        "openai", {"probe": False, "api": "responses"}, _responses,
        {
            **{f"status {name}": _set("status", name) for name in _STATUSES},
            "error": _set("error", {"message": "engine died"}), "no output": _set("output", []),
        },
    ),
    "messages": Protocol(
        "anthropic", {}, _messages,
        {
            **{f"stop {name}": _set("stop_reason", name) for name in _STOPS},
            "an error": lambda reply: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            "no content": _set("content", ...),
        },
    ),
    "gemini": Protocol(
        "gemini", {}, _content,
        {
            **{f"finish {name}": _set("candidates.0.finishReason", name) for name in _GEMINI},
            "no candidates": _set("candidates", []),
        },
    ),
}  # fmt: skip


def _change(change: Callable[[Json], Json]) -> Lie:
    return lambda handler, honest: send(handler, _dump(change(honest)))


BEHAVIOURS: Mapping[str, tuple[Protocol, Lie]] = {
    f"{name}: {lie}": (protocol, act)
    for name, protocol in PROTOCOLS.items()
    for lie, act in {
        **_GENERAL,
        **{lie: _change(change) for lie, change in protocol.lies.items()},
    }.items()
}


# --- runs ----------------------------------------------------------------------------------------------


class LyingServer:
    """Lies while `lie` is set."""

    def __init__(self, protocol: Protocol, lie: Lie) -> None:
        self.protocol = protocol
        self.lie: Lie | None = lie
        self.calls = 0
        """Requests, of which a call for scores can contain several."""

        self.port = 0

    def serve(self, handler: Handler) -> None:
        call = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        prompts = call.get("prompt")
        self.calls += len(prompts) if isinstance(prompts, list) else 1
        honest = self.protocol.honest(call)
        if self.lie is not None:
            self.lie(handler, honest)
        else:
            send(handler, _dump(honest))


@contextmanager
def start_lying_server(protocol: Protocol, lie: Lie) -> Iterator[LyingServer]:
    """Run the server on a free port."""
    lying = LyingServer(protocol, lie)

    class RequestHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with suppress(OSError):  # the client disconnects from an endless body
                lying.serve(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), RequestHandler)
    server.daemon_threads, server.block_on_close = True, False
    lying.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield lying
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def check_behaviour(folder: Path, name: str) -> int:
    """Run a task with a lying server, then with the honest one; return the number of calls.

    While it lies, every document fails, and neither the journal nor the cache has an answer. Afterwards the same command
    asks every request once and all scores are right.
    """
    protocol, lie = BEHAVIOURS[name]
    home = folder / "home"
    with start_lying_server(protocol, lie) as server, _environment(ASSAY_HOME=str(home)):
        task = _write_task(folder, protocol)
        limits = {
            "max_retries": MAX_CALLS - 1, "retry_backoff_s": 0.002, "timeout": 3, "total_timeout": 20,
            "max_retry_wait": 0.02, "max_reply_mb": 1,
        }  # fmt: skip

        def run() -> Any:
            return assay.run(
                model=protocol.model,
                model_args={
                    "model": "m", "base_url": f"http://127.0.0.1:{server.port}/v1", **limits, **protocol.arguments,
                },
                tasks=[task],
                output_path=str(folder / "out"),
                log_samples=False,
            )  # fmt: skip

        first = run()
        requests = DOCUMENTS * (2 if protocol.scores else 1)
        assert dict(first.journal.count_outcomes("lied")) == {"failed": DOCUMENTS}, "a lie was scored"
        assert _count(first.folder / "journal.sqlite") == 0, "a lie is in the journal"
        assert _count(home / "cache.sqlite") == 0, "a lie is in the cache"
        assert requests <= server.calls <= requests * MAX_CALLS
        lied, server.lie = server.calls, None
        second = run()
        assert dict(second.journal.count_outcomes("lied")) == {"scored": DOCUMENTS}
        assert [estimate.value for estimate in second.estimates] == [1.0]
        assert server.calls - lied == requests, "a request was sent twice, or not at all"
        assert _count(second.folder / "journal.sqlite") == _count(home / "cache.sqlite") == requests
        return server.calls


def _write_task(folder: Path, protocol: Protocol) -> str:
    rows = [{"question": f"What is {n} + {4 - n}?", "answer": "4"} for n in range(DOCUMENTS)]
    if not protocol.scores:
        return str(write_task(folder / "tasks", "lied", rows))
    keys: dict[str, Any] = {
        "output_type": "multiple_choice",
        "doc_to_choice": ["4", "fourteen"],
        "doc_to_target": 0,
    }
    return str(write_task(folder / "tasks", "lied", rows, **keys, metric_list=[{"metric": "acc"}]))


def _count(path: Path) -> int:
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as database:
        count: int = database.execute("SELECT count(*) FROM responses").fetchone()[0]
        return count


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    values |= {"ANTHROPIC_API_KEY": "not-a-real-key", "GEMINI_API_KEY": "not-a-real-key"}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
