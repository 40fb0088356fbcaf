"""HTTP/1.1 on asyncio's own transports: kept connections, one exchange at a time on each.

Made for this use, not for browsing: small requests, whole replies (read by `httptools`), no redirects, no cookies.
General clients cost 0.3 ms of CPU a call and more, which at thousands of calls a second is all the time there is; this
costs 0.1 ms (`benchmarks/remote_models.py`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.models.remote.address import Address, Proxy, tls_context
from assay.models.remote.connection import Connection, Ending, Reply, Tunnel, Unreachable, http_parser

__all__ = ["Call", "HttpClient"]

_IDLE_S = 60.0
"""A connection that nobody used for so long is not trusted any more."""


@dataclass(frozen=True, slots=True)
class Call:
    """What goes out, however often."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"


class HttpClient:
    """Calls one server. Connections are kept and reused; there are as many as there are calls at once."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str],
        verify_certificate: bool = True,
        ca_cert_path: str = "",
        connect_timeout_s: float = 15.0,
    ) -> None:
        self._address = address
        self._verify = verify_certificate
        self._certificates = ca_cert_path
        self._connect_timeout_s = connect_timeout_s
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._head = _head_lines(address, headers)
        self._proxy: Proxy | None = None
        self._prefix = address.path
        self._ready = False

    def _prepare(self) -> None:
        """Find the proxy, once; plain HTTP through one names the whole address."""
        http_parser(self)  # not installed: said before anybody is called
        self._ready = True
        self._proxy = self._address.proxy()
        if self._proxy is not None and self._address.scheme == "http":
            self._prefix = self._address.origin + self._address.path
            if self._proxy.authorization:
                self._head += f"Proxy-Authorization: {self._proxy.authorization}\r\n"

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        timeout_s: float,
        content_type: str = "application/json",
    ) -> Reply:
        """One exchange.

        Raises:
            Unreachable: There is no connection.
            Broken: The connection ended before the reply was whole, or it is no HTTP.
            TooSlow: The reply was not whole in time.
        """
        call = Call(method, path, body, content_type)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        connection = self.send(call, timeout_s, future)
        if connection is None:
            connection = await self.connect()
            self.send_over(connection, call, timeout_s, future)
        try:
            return await future
        except BaseException:
            connection.give_up(future)
            raise

    def send(
        self, call: Call, timeout_s: float, future: asyncio.Future[Reply], tell: Ending | None = None
    ) -> Connection | None:
        """Send it over a kept connection, now; None where one has to be made first (`connect`, then `send_over`)."""
        connection = self._kept()
        if connection is not None:
            self.send_over(connection, call, timeout_s, future, tell)
        return connection

    def send_over(
        self,
        connection: Connection,
        call: Call,
        timeout_s: float,
        future: asyncio.Future[Reply],
        tell: Ending | None = None,
    ) -> None:
        """Send it over this connection."""
        body = call.body
        query = f"?{self._address.query}" if self._address.query else ""
        head = f"{call.method} {self._prefix}{call.path}{query} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"Content-Type: {call.content_type}\r\n"
        if body or call.method == "POST":
            head += f"Content-Length: {len(body)}\r\n"
        connection.exchange(f"{head}\r\n".encode("latin-1"), body, timeout_s, future, tell)

    def _returned(self, connection: Connection) -> None:
        """An exchange has ended."""
        if connection.alive:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self._open.discard(connection)

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.drop()
        self._open.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # transports say goodbye in the next turn of the loop

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            age_s = asyncio.get_running_loop().time() - connection.idle_since
            if connection.alive and age_s < _IDLE_S:
                return connection
            self._open.discard(connection)
            connection.drop()
        return None

    async def connect(self) -> Connection:
        """A new connection.

        Raises:
            Unreachable: There is none.
        """
        if not self._ready:
            self._prepare()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await (self._through(self._proxy) if self._proxy else self._straight())
        except TimeoutError:
            raise Unreachable(f"no connection within {self._connect_timeout_s:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"the certificate is not trusted: {error.verify_message}") from None
        except (OSError, ssl.SSLError) as error:
            raise Unreachable(error.strerror or str(error) or type(error).__name__) from None
        self._open.add(connection)
        return connection

    def _tls(self) -> Any:
        return tls_context(self._verify, self._certificates) if self._address.scheme == "https" else None

    async def _straight(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            partial(Connection, self._returned), self._address.host, self._address.port, ssl=self._tls()
        )
        return connection

    async def _through(self, proxy: Proxy) -> Connection:
        """A connection by way of a proxy; one that is encrypted goes through a tunnel."""
        loop = asyncio.get_running_loop()
        opened = partial(Connection, self._returned)
        _, connection = await loop.create_connection(opened, proxy.host, proxy.port)
        tls = self._tls()
        if tls is None:
            return connection
        there = f"{self._address.host}:{self._address.port}"
        head = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n"
        if proxy.authorization:
            head += f"Proxy-Authorization: {proxy.authorization}\r\n"
        tunnel = connection.transport
        assert tunnel is not None
        status = await Tunnel.open(tunnel, f"{head}\r\n".encode("latin-1"))
        if status != 200:
            tunnel.abort()
            raise OSError(f"the proxy {proxy.host}:{proxy.port} refuses: {status}")
        tunnel.set_protocol(connection)
        encrypted = await loop.start_tls(tunnel, connection, tls, server_hostname=self._address.host)
        assert encrypted is not None
        connection.connection_made(encrypted)
        return connection


def _head_lines(address: Address, headers: Mapping[str, str]) -> str:
    """Everything of the head that is the same for every call."""
    encoding = "identity" if address.is_local else "gzip"
    lines = {"Host": address.host_header, "Accept": "application/json", "Accept-Encoding": encoding}
    lines["User-Agent"] = "assay"
    for name, value in headers.items():
        if any(ch in f"{name}{value}" for ch in "\r\n\0"):
            raise ValueError(f"the header {name!r} has a line break in it")
        lines[name] = value
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items())
