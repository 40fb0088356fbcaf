"""A real viewer for tests: uvicorn in a thread, requested over HTTP."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from assay.core.errors import InvalidOption
from assay.viewer.web.access_control import build_cookie_name
from assay.viewer.web.app import build_app
from assay.viewer.web.run_catalog import RunCatalog
from assay.viewer.web.server import HOST, open_socket

TOKEN = "a-token-for-tests"
_used_ports: list[int] = []
"""Ports of closed viewers. The browser has cached the scripts that it loaded from them."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Viewer:
    """A running viewer."""

    port: int
    catalog: RunCatalog

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def entry(self) -> str:
        return f"{self.address}/?token={TOKEN}"

    def get(
        self, path: str, *, method: str = "GET", body: str | None = None, cookie: bool = True, **headers: Any
    ) -> Answer:
        """Request a path."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=90)
        sent = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        if cookie:
            sent["cookie"] = f"{build_cookie_name(self.port)}={TOKEN}"
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            return Answer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()

    def get_when_ready(self, path: str) -> Answer:
        """Request a path until the page is ready."""
        for _ in range(100):
            answer = self.get(path)
            if answer.status != 202:
                return answer
            time.sleep(0.05)
        raise AssertionError(f"{path} was never ready")


@contextmanager
def serve_runs(words: Sequence[str | Path]) -> Iterator[Viewer]:
    """Serve the runs in some folders."""
    catalog = RunCatalog([str(word) for word in words])
    listening = _open_socket()
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        build_app(catalog, token=TOKEN, port=port), log_level="error", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Viewer(port, catalog)
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        _used_ports.append(port)


def _open_socket() -> socket.socket:
    while _used_ports:
        try:
            return open_socket(_used_ports.pop())
        except InvalidOption:  # another process has taken the port
            continue
    return open_socket(0)
