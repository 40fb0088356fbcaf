"""An HTTP/1.1 client on asyncio transports with keep-alive connections, one exchange at a time on each.

It supports what API calls need: small requests, complete replies (parsed by `httptools`), no redirects, no cookies.
General clients need 0.3 ms of CPU time per call or more, which limits them to a few thousand calls a second; this one
needs 0.1 ms (`benchmarks/remote_models.py`).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.models.remote.transport.address import Address, Proxy, build_tls_context
from assay.models.remote.transport.connection import (
    DEFAULT_MAX_BODY_BYTES,
    ConnectError,
    Connection,
    ExchangeCallback,
    ProxyTunnel,
    ReadTimeouts,
    Reply,
    load_http_parser,
)

__all__ = ["HttpClient", "HttpRequest"]

_MAX_IDLE_S = 60.0
"""Idle connections older than this are closed instead of reused."""

_MAX_CACHED_HEADS = 64


@dataclass(slots=True)
class HttpRequest:
    """A request that can be sent several times."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    """Largest accepted body of the reply, after decompression."""


class HttpClient:
    """Sends requests to one server. Reuses connections; opens one per concurrent request."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str],
        verify_certificate: bool = True,
        ca_cert_path: str = "",
        client_cert_path: str = "",
        connect_timeout_s: float = 15.0,
    ) -> None:
        self._address = address
        self._verify = verify_certificate
        self._certificates, self._client_certificate = ca_cert_path, client_cert_path
        self._connect_timeout_s = connect_timeout_s
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._head = _build_head_lines(address, headers)
        self._proxy: Proxy | None = None
        self._prefix = address.path
        self._timeouts = ReadTimeouts()
        self._heads: dict[tuple[str, str, str], bytes] = {}
        """The heads of requests, up to the length of the body, by method, path and content type."""

        self._ready = False

    def _prepare(self) -> None:
        """Find the proxy once. Plain HTTP through a proxy needs the full URL in the request line."""
        load_http_parser()  # report a missing package before connecting
        self._ready = True
        self._proxy = self._address.find_proxy()
        if self._proxy is not None and self._address.scheme == "http":
            self._prefix = self._address.origin + self._address.path
            if self._proxy.authorization:
                self._head += f"Proxy-Authorization: {self._proxy.authorization}\r\n"

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        timeout_s: float,
        content_type: str = "application/json",
    ) -> Reply:
        """Send a request and return the reply.

        Raises:
            ConnectError: The connection could not be opened.
            RemoteProtocolError: The connection closed before the reply was complete, or the reply is invalid.
            ReadTimeout: The reply was not complete in time.
        """
        call = HttpRequest(method, path, body, content_type)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        connection = self.send_on_idle(call, timeout_s, future)
        if connection is None:
            connection = await self.connect()
            self.send_on(connection, call, timeout_s, future)
        try:
            return await future
        except BaseException:
            connection.abandon(future)
            raise

    def send_on_idle(
        self,
        request: HttpRequest,
        timeout_s: float,
        future: asyncio.Future[Reply],
        on_end: ExchangeCallback | None = None,
    ) -> Connection | None:
        """Send a request on an idle connection; return None if there is none (then use `connect` and `send_on`)."""
        connection = self._take_idle()
        if connection is not None:
            self.send_on(connection, request, timeout_s, future, on_end)
        return connection

    def send_on(
        self,
        connection: Connection,
        request: HttpRequest,
        timeout_s: float,
        future: asyncio.Future[Reply],
        on_end: ExchangeCallback | None = None,
    ) -> None:
        """Send a request on this connection."""
        body, method = request.body, request.method
        key = (method, request.path, request.content_type if body else "")
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _MAX_CACHED_HEADS:
                self._heads.clear()
            head = self._heads[key] = self._build_head(*key)
        length = b"Content-Length: %d\r\n\r\n" % len(body) if body or method == "POST" else b"\r\n"
        connection.exchange(head + length, body, timeout_s, future, on_end, request.max_body_bytes)

    def _build_head(self, method: str, path: str, content_type: str) -> bytes:
        query = f"?{self._address.query}" if self._address.query else ""
        head = f"{method} {self._prefix}{path}{query} HTTP/1.1\r\n{self._head}"
        if content_type:
            head += f"Content-Type: {content_type}\r\n"
        return head.encode("latin-1")

    def _on_release(self, connection: Connection) -> None:
        """Return a connection to the pool after an exchange."""
        if connection.alive:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            self._open.discard(connection)

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()
        self._timeouts.close()
        await asyncio.sleep(0)  # transports close in the next iteration of the loop

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            age_s = time.monotonic() - connection.idle_since
            if connection.alive and age_s < _MAX_IDLE_S:
                return connection
            self._open.discard(connection)
            connection.abort()
        return None

    async def connect(self) -> Connection:
        """Open a new connection.

        Raises:
            ConnectError: The connection could not be opened.
        """
        if not self._ready:
            self._prepare()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await (
                    self._connect_through_proxy(self._proxy) if self._proxy else self._connect_directly()
                )
        except TimeoutError:
            raise ConnectError(f"no connection within {self._connect_timeout_s:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise ConnectError(f"untrusted certificate: {error.verify_message}") from None
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(error.strerror or str(error) or type(error).__name__) from None
        self._open.add(connection)
        return connection

    def _build_tls(self) -> Any:
        if self._address.scheme != "https":
            return None
        return build_tls_context(self._verify, self._certificates, self._client_certificate)

    async def _connect_directly(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            partial(Connection, self._on_release, self._timeouts),
            self._address.host,
            self._address.port,
            ssl=self._build_tls(),
        )
        return connection

    async def _connect_through_proxy(self, proxy: Proxy) -> Connection:
        """Connect through a proxy; HTTPS uses a `CONNECT` tunnel."""
        loop = asyncio.get_running_loop()
        opened = partial(Connection, self._on_release, self._timeouts)
        _, connection = await loop.create_connection(opened, proxy.host, proxy.port)
        tls = self._build_tls()
        if tls is None:
            return connection
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        there = f"{host}:{self._address.port}"
        head = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n"
        if proxy.authorization:
            head += f"Proxy-Authorization: {proxy.authorization}\r\n"
        tunnel = connection.transport
        assert tunnel is not None
        status = await ProxyTunnel.open(tunnel, f"{head}\r\n".encode("latin-1"))
        if status != 200:
            tunnel.abort()
            raise OSError(f"the proxy {proxy.host}:{proxy.port} rejected the tunnel: HTTP {status}")
        tunnel.set_protocol(connection)
        encrypted = await loop.start_tls(tunnel, connection, tls, server_hostname=self._address.host)
        assert encrypted is not None
        connection.connection_made(encrypted)
        return connection


def _build_head_lines(address: Address, headers: Mapping[str, str]) -> str:
    """Return the header lines that all requests share."""
    encoding = "identity" if address.is_local else "gzip"
    lines = {"Host": address.host_header, "Accept": "application/json", "Accept-Encoding": encoding}
    lines["User-Agent"] = "assay"
    for name, value in headers.items():
        if any(ch in f"{name}{value}" for ch in "\r\n\0"):
            raise ValueError(f"the header {name!r} contains a line break")
        lines[name] = value
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items())
