"""An HTTP test server with an OpenAI-compatible chat API and configurable failures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | tuple[int, str] | float
"""What to say; a status with a body; or seconds to keep silent before an empty answer."""


class JudgeServer:
    """Counts what it is asked. `reply(payload, number)` decides what it says."""

    def __init__(self, reply: Callable[[dict[str, Any], int], Reply]) -> None:
        self.reply = reply
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.open = self.most_open = 0
        self.lock = threading.Lock()
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        payload = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            number = len(self.asked)
            self.asked.append(payload)
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            self.paths.append(handler.path)
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            reply = self.reply(payload, number)
        finally:
            with (
                self.lock
            ):  # before the reply is sent: the client may send its next request as soon as it has it
                self.open -= 1
        self._send(handler, reply)

    def _send(self, handler: BaseHTTPRequestHandler, said: Reply) -> None:
        status, body = 200, ""
        if isinstance(said, float):
            time.sleep(said)
        elif isinstance(said, tuple):
            status, body = said
        else:
            message = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
            body = json.dumps({"model": "served", "choices": [message], "usage": usage})
        data = body.encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        if status == 429:
            handler.send_header("Retry-After", "0.01")
        handler.end_headers()
        handler.wfile.write(data)


@contextmanager
def serving(reply: Callable[[dict[str, Any], int], Reply]) -> Iterator[JudgeServer]:
    """A server on a free port, for the length of a block."""
    judge = JudgeServer(reply)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                judge.answer(self)
            except OSError:  # whoever asked went away
                self.close_connection = True

        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    judge.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
