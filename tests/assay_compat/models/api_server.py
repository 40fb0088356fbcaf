"""A server that answers payloads of any form and keeps them."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Server"]


class Server(ThreadingHTTPServer):
    """Answers a text with its last word, a token list with the log probability -1 for each token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[tuple[str | None, dict[str, Any]]] = []
        self.failures: list[tuple[int, str]] = []
        """Status and text of the next responses."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/completions"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.received.append((self.headers["authorization"], body))
        status, text = self.server.failures.pop(0) if self.server.failures else (200, "")
        prompts = body.get("prompt", ["none"])
        prompts = [prompts] if isinstance(prompts, str) else prompts
        choices = [
            {"text": one.split()[-1]}
            if isinstance(one, str)
            else {"text": str(len(one)), "values": [-1.0] * len(one)}
            for one in prompts
        ]
        answer = text.encode() if text else json.dumps({"choices": choices}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass
