"""The HTTP endpoint of a bridge: OpenAI- and Anthropic-compatible, for one document, with a token of its own."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from assay.agents.external.bridge_protocols import PROTOCOLS, BridgeCall, BridgeRequestError, format_sse
from assay.core.records.responses import Failure, Response
from assay.core.secrets import redact

__all__ = ["AnswerCall", "BridgeServer"]

AnswerCall = Callable[[BridgeCall], Response | Failure]
"""Answers a call; blocks until the answer is there. Called from the thread of the connection."""

_MAX_BODY_BYTES = 32 << 20
_LARGE_BODY_BYTES = 64 << 10
"""Of requests with a larger body, one is read and answered at a time, so that a program cannot fill the memory of Assay."""

_MAX_CONNECTIONS = 64
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)
_IDLE_S = 600.0
_ERROR_CODES = {"too long": "context_length_exceeded"}
"""Codes of OpenAI, by kind of failure: programs that shorten their conversation look for this one."""


class BridgeServer:
    """Serves one listening socket in threads of its own until it is closed."""

    def __init__(self, answer: AnswerCall, listener: socket.socket, *, model: str = "assay") -> None:
        self.token = secrets.token_urlsafe(24)
        """What a client sends as its API key."""

        self.port: int = listener.getsockname()[1]
        self._answer, self._model = answer, model
        self._lock = threading.Lock()
        self._calls = 0
        self._server = _Server(listener, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="assay-bridge", daemon=True
        )
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which the packages of OpenAI and Anthropic, and programs that use them, find the endpoint."""
        address = f"http://127.0.0.1:{self.port}"
        return {
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_BASE": f"{address}/v1",
            "OPENAI_API_KEY": self.token,
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": self.token,
            "ASSAY_BRIDGE_MODEL": self._model,
        }

    def close(self) -> None:
        """Stop serving and close all connections."""
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()
        self._thread.join()

    # --- for the handler ---------------------------------------------------------------------------

    def accepts(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the token."""
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), self.token.encode())

    def handle(self, path: str, body: Any) -> tuple[BridgeCall, Response | Failure]:
        """Return the call and its answer.

        Raises:
            BridgeRequestError: The request is not understood.
        """
        if not isinstance(body, Mapping):
            raise BridgeRequestError("the body must be a JSON object")
        try:
            call = PROTOCOLS[path].parse(body)
        except (TypeError, KeyError, AttributeError, ValueError) as problem:
            raise BridgeRequestError(f"malformed request: {type(problem).__name__}: {problem}") from None
        with self._lock:
            call = replace(call, number=self._calls)
            self._calls += 1
        return call, self._answer(call)

    def list_models(self) -> dict[str, Any]:
        """Return the answer to `GET /v1/models`."""
        return {
            "object": "list",
            "data": [{"id": self._model, "object": "model", "created": 0, "owned_by": "assay"}],
        }


class _Server(ThreadingHTTPServer):
    """Serves a socket that listens already, perhaps inside a sandbox."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, bridge: BridgeServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.bridge = listener, bridge
        self._connections: set[socket.socket] = set()
        self.large_body_lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            with suppress(OSError):
                request.setblocking(False)
                request.sendall(_TOO_MANY)
            self.shutdown_request(request)
            return
        self._connections.add(request)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().close_request(request)

    def close_connections(self) -> None:
        """Close what clients keep open."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that end during an answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "assay-bridge", ""
    timeout = _IDLE_S
    server: _Server

    def do_GET(self) -> None:
        if self._is_allowed():
            if self._find_path() == "/models":
                self._send_json(200, self.server.bridge.list_models())
            else:
                self._send_error(404, "not_found", f"there is no `{self.path[:80]}`")

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        path = self._find_path()
        if path not in PROTOCOLS:
            known = ", ".join(f"/v1{name}" for name in PROTOCOLS)
            self._send_error(404, "not_found", f"there is no `{self.path[:80]}`; known: {known}")
            return
        try:
            length = self._read_length()
            with self.server.large_body_lock if length > _LARGE_BODY_BYTES else nullcontext():
                call, answer = self.server.bridge.handle(path, json.loads(self.rfile.read(length)))
        except (BridgeRequestError, ValueError, RecursionError) as problem:
            self._send_error(400, "invalid_request_error", str(problem))
            return
        if isinstance(answer, Failure):  # the engine has retried already, so clients should not
            code = _ERROR_CODES.get(answer.kind, answer.kind.replace(" ", "_"))
            self._send_error(400, code, redact(answer.message))
        elif call.stream:
            self._send_events(format_sse(PROTOCOLS[path].stream(call, answer)))
        else:
            self._send_json(200, PROTOCOLS[path].answer(call, answer))

    def _find_path(self) -> str:
        return self.path.partition("?")[0].removeprefix("/v1").rstrip("/")

    def _is_allowed(self) -> bool:
        host = self.headers.get("host", "").partition(":")[0]
        if host not in (
            "127.0.0.1",
            "localhost",
        ):  # a web page that resolves its name to the loopback address
            self._send_error(403, "forbidden", "the host must be 127.0.0.1")
            return False
        if not self.server.bridge.accepts({name.lower(): value for name, value in self.headers.items()}):
            self._send_error(401, "authentication_error", "invalid token")
            return False
        return True

    def _read_length(self) -> int:
        length = int(self.headers.get("content-length") or 0)
        if not 0 < length <= _MAX_BODY_BYTES:
            raise BridgeRequestError(f"the body must have between 1 and {_MAX_BODY_BYTES} bytes")
        return length

    def _send_error(self, status: int, kind: str, message: str) -> None:
        self.close_connection = True  # the body may not have been read
        error = {"type": kind, "code": kind, "message": message}
        self._send_json(status, {"type": "error", "error": error})

    def _send_json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _send_events(self, pieces: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: headers hold the token."""
