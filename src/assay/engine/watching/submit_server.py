"""The HTTP API of a watch: submit a checkpoint with a priority, and read the status. Every request needs the token."""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from assay.core.errors import InvalidOption
from assay.engine.watching.checkpoints import CheckpointFinder
from assay.engine.watching.submissions import Submissions, resolve_submission

__all__ = ["serve_submissions"]

_LOG = logging.getLogger(__name__)
_MAX_BODY_BYTES = 64 * 1024
_TIMEOUT_S = 10.0


class _SubmitServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], submissions: Submissions, finder: CheckpointFinder, token: str
    ) -> None:
        self.submissions, self.finder, self.token = submissions, finder, token
        self.wake = threading.Event()
        super().__init__(address, _SubmitHandler)


class _SubmitHandler(BaseHTTPRequestHandler):
    server: _SubmitServer
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        if self.path != "/status":
            self._answer(404, {"error": "GET /status, POST /checkpoints"})
            return
        self._answer(200, self.server.submissions.status)

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        if self.path != "/checkpoints":
            self._answer(404, {"error": "GET /status, POST /checkpoints"})
            return
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self._answer(413, {"error": f"a submission has at most {_MAX_BODY_BYTES} bytes"})
            return
        try:
            content = json.loads(self.rfile.read(int(length)))
            name, priority = resolve_submission(self.server.finder, content)
        except (ValueError, RecursionError):
            self._answer(400, {"error": "the body is not JSON"})
        except InvalidOption as error:
            self._answer(400, {"error": error.what})
        else:
            self.server.submissions.add(name, priority)
            self.server.wake.set()
            self._answer(202, {"checkpoint": name, "priority": priority})

    def _is_allowed(self) -> bool:
        """Check the token, in constant time; answer the request if it is wrong."""
        given = self.headers.get("authorization", "").encode("utf-8", "replace")
        if hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            return True
        self._answer(401, {"error": "wrong or missing token"})
        return False

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.info("submit API: %s", args[0] if args else format)


@contextmanager
def serve_submissions(
    submissions: Submissions,
    finder: CheckpointFinder,
    *,
    token: str,
    wake: threading.Event,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[str]:
    """Serve the API while a watch runs; yield its URL. `wake` is set when a checkpoint was submitted.

    Raises:
        InvalidOption: The port cannot be used.
    """
    try:
        server = _SubmitServer((host, port), submissions, finder, token)
    except OSError as error:
        raise InvalidOption(
            f"cannot listen on {host}:{port}: {error.strerror}", where="--submit_port"
        ) from None
    server.wake = wake
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
