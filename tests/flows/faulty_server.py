"""An HTTP server that answers prompts, logs its calls, and fails a share of them in thirteen ways."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Question = tuple[str, int]
"""A prompt and its repeat."""

_Handler = BaseHTTPRequestHandler


class FaultyServer:
    """Gives a unique answer to every call, so an answer identifies its call."""

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self._seed = seed
        self.port = 0
        self.calls: Counter[Question] = Counter()
        self.given: dict[Question, list[str]] = {}
        """Every complete answer, in order."""

        self.faults: dict[Question, list[str]] = {}
        self._attempts: Counter[Question] = Counter()
        self._lock = threading.Lock()
        self.stop = threading.Event()

    @property
    def fault_count(self) -> int:
        return sum(map(len, self.faults.values()))

    def clear_calls(self) -> None:
        """Clear the calls and faults, but not the answers."""
        self.calls.clear()
        self.faults.clear()

    def serve(self, handler: _Handler) -> None:
        payload = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        question = (payload["prompt"], payload["repeat"])
        with self._lock:
            self.calls[question] += 1
            self._attempts[question] += 1
            generator = random.Random(f"{self._seed} {question} {self._attempts[question]}")
            kind = generator.choice(list(FAULTS)) if generator.random() < self.share else ""
            text = f" {generator.randrange(4)} ({generator.randrange(10**9)})"
            (self.faults if kind else self.given).setdefault(question, []).append(kind or text)
        if kind:
            FAULTS[kind](self, handler, text)
        else:
            send(handler, 200, format_completion(text))


def format_completion(text: str) -> str:
    return json.dumps({"choices": [{"text": text, "finish_reason": "stop"}]})


def send(
    handler: _Handler, status: int, body: str, *, content_type: str = "application/json", size: int = 0
) -> None:
    data = body.encode()
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(size or len(data)))
    handler.end_headers()
    handler.wfile.write(data)
    handler.close_connection = True


def _reset(server: FaultyServer, handler: _Handler, text: str) -> None:
    """Reset the connection, as when a server is killed."""
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True


def _never_answer(server: FaultyServer, handler: _Handler, text: str) -> None:
    server.stop.wait(60)
    handler.close_connection = True


def _stall_midway(server: FaultyServer, handler: _Handler, text: str) -> None:
    """Send half of the body and keep the connection open."""
    body = format_completion(text)
    send(handler, 200, body[: len(body) // 2], size=len(body))
    handler.wfile.flush()
    server.stop.wait(60)


def _close_midway(server: FaultyServer, handler: _Handler, text: str) -> None:
    """Send half of the body and close the connection."""
    body = format_completion(text)
    send(handler, 200, body[: len(body) // 2], size=len(body))


def _make_fault(status: int, body: str, **details: Any) -> Callable[[FaultyServer, _Handler, str], None]:
    return lambda server, handler, text: send(handler, status, body, **details)


FAULTS: Mapping[str, Callable[[FaultyServer, _Handler, str], None]] = {
    "HTML page": _make_fault(200, format_completion(" 1"), content_type="text/html"),
    "closed midway": _close_midway,
    "truncated JSON": _make_fault(200, '{"choices": [{"text": " 1", "finish_'),
    "internal error": _make_fault(500, format_completion(" 1")),
    "not an object": _make_fault(200, "1"),
    "no choices": _make_fault(200, '{"choices": []}'),
    "no text": _make_fault(200, '{"choices": [{"text": null, "finish_reason": "stop"}]}'),
    "empty body": _make_fault(200, ""),
    "overloaded": _make_fault(503, "<html>try again later</html>", content_type="text/html"),
    "rate limit": _make_fault(429, "slow down"),
    "no response": _never_answer,
    "stalled body": _stall_midway,
    "connection reset": _reset,
}
"""Faults by name. A seed selects them by position, so new faults go to the end."""


@contextmanager
def start_faulty_server(share: float, seed: int) -> Iterator[FaultyServer]:
    """Run the server on a free port."""
    faulty = FaultyServer(share, seed)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                faulty.serve(self)
            except OSError:  # the client disconnected
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    faulty.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield faulty
    finally:
        faulty.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()
