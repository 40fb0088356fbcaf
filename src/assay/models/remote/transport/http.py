"""The HTTP client of remote models: aiohttp, with the errors and limits that API calls need.

No redirects, no cookies, no retries of a request that was sent: the caller decides about them. A connection is closed and
never reused after a cancelled request, a timeout or unexpected data, so a reply always belongs to its request.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from assay.core.errors import MissingPackage
from assay.models.remote.transport.address import Address, Proxy, build_tls_context

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.connector import Connection
    from yarl import URL

__all__ = [
    "DEFAULT_MAX_BODY_BYTES",
    "ConnectError",
    "Exchange",
    "HttpClient",
    "HttpRequest",
    "ReadTimeout",
    "RemoteProtocolError",
    "Reply",
    "ReplyTooLarge",
]

DEFAULT_MAX_BODY_BYTES = 64 * 2**20
_MAX_HEAD_LINE_BYTES = 64 * 1024
_MAX_BODY_IN_ONE_WRITE_BYTES = 2**20
"""aiohttp warns about larger bodies of bytes; they are sent in pieces."""

_MAX_IDLE_S = 60.0
"""Idle connections older than this are closed instead of reused."""


class ConnectError(Exception):
    """The connection could not be opened: refused, unknown host, untrusted certificate."""


class RemoteProtocolError(Exception):
    """The connection closed before the reply was complete, or the server sent invalid HTTP."""


class ReplyTooLarge(Exception):
    """The body of the reply is larger than the limit, before or after decompression."""


class ReadTimeout(Exception):
    """The reply was not complete within the timeout."""


@dataclass(slots=True)
class Reply:
    """A complete HTTP reply."""

    status: int
    headers: Mapping[str, str]
    """Keys are lower case."""

    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(slots=True)
class HttpRequest:
    """A request that can be sent several times."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    """Largest accepted body of the reply, after decompression."""


class Exchange:
    """One request and its reply. Await `reply`; call `cancel` to close the connection."""

    __slots__ = ("_on_connect", "_on_end", "_task", "has_new_connection", "is_connected", "reply")

    def __init__(
        self,
        reply: asyncio.Future[Reply] | None = None,
        on_connect: Callable[[], None] | None = None,
        on_end: Callable[[Exchange, Reply | Exception], None] | None = None,
    ) -> None:
        self.reply: asyncio.Future[Reply] = reply or asyncio.get_running_loop().create_future()
        self.is_connected = False
        self.has_new_connection = False
        """Whether the connection was opened for this exchange."""

        self._on_connect, self._on_end = on_connect, on_end
        self._task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Close the connection, unless the reply is complete. Calls `on_end` immediately."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._finish(RemoteProtocolError("request cancelled"))

    def start(self, send: Callable[[], Coroutine[Any, Any, Reply]]) -> asyncio.Task[None]:
        """Run `send`, which returns the reply, in a task."""
        self._task = asyncio.get_running_loop().create_task(self._run(send))
        return self._task

    def record_connection(self, *, is_new: bool) -> None:
        """Record that the request has a connection."""
        self.is_connected, self.has_new_connection = True, is_new
        if is_new and self._on_connect is not None:
            self._on_connect()

    async def _run(self, send: Callable[[], Coroutine[Any, Any, Reply]]) -> None:
        _current_exchange.set(self)
        try:
            outcome: Reply | Exception = await send()
        except asyncio.CancelledError:  # by `cancel`, or because the event loop ends
            self._finish(RemoteProtocolError("request cancelled"))
            raise
        except Exception as error:  # noqa: BLE001 - reported to the caller
            outcome = error
        self._finish(outcome)

    def _finish(self, outcome: Reply | Exception) -> None:
        """Call `on_end` before the task that awaits the reply resumes, so that its slot is free at once."""
        on_end, self._on_end = self._on_end, None
        self._on_connect = self._task = (
            None  # cycles would keep the request, with its images, until a garbage collection
        )
        if on_end is not None:
            on_end(self, outcome)
        if self.reply.done():
            return
        if isinstance(outcome, Exception):
            self.reply.set_exception(outcome)
        else:
            self.reply.set_result(outcome)


_current_exchange: ContextVar[Exchange] = ContextVar("current_exchange")


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
        for name, value in headers.items():
            if any(ch in f"{name}{value}" for ch in "\r\n\0"):
                raise ValueError(f"the header {name!r} contains a line break")
        encoding = "identity" if address.is_local else "gzip"
        self._headers = {"Accept": "application/json", "Accept-Encoding": encoding, "User-Agent": "assay"}
        self._headers.update(headers)
        self._address = address
        self._tls = (verify_certificate, ca_cert_path, client_cert_path)
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._proxy: Proxy | None = None
        self._headers_by_type: dict[str, dict[str, str]] = {}
        self._running: dict[asyncio.Task[None], Exchange] = {}
        self._urls: dict[str, URL] = {}
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

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
        exchange = Exchange()
        self.start(exchange, HttpRequest(method, path, body, content_type), timeout_s)
        try:
            return await exchange.reply
        except BaseException:
            exchange.cancel()
            raise

    def start(self, exchange: Exchange, request: HttpRequest, timeout_s: float) -> None:
        """Send a request. The exchange receives the reply or one of the errors of `request`."""

        task = exchange.start(lambda: self._send(exchange, request, timeout_s))
        self._running[task] = exchange
        task.add_done_callback(self._running.pop)

    async def close(self) -> None:
        """Cancel the running requests and close every connection."""
        running = dict(self._running)
        for exchange in running.values():
            exchange.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await asyncio.sleep(0)  # transports close in the next iteration of the loop

    # --- one exchange -------------------------------------------------------------------------

    async def _send(self, exchange: Exchange, request: HttpRequest, timeout_s: float) -> Reply:
        session = self._session or self._open_session()
        import aiohttp

        status = 0
        try:
            async with session.request(
                request.method,
                self._urls.get(request.path) or self._build_url(request.path),
                data=_to_payload(request),
                headers=self._build_headers(request.content_type if request.body else ""),
                timeout=self._timeouts.get(timeout_s) or self._build_timeout(timeout_s),
                allow_redirects=False,
                proxy=self._proxy.url if self._proxy is not None else None,
                proxy_headers=self._proxy.headers if self._proxy is not None else None,
            ) as reply:
                status = reply.status
                headers = {name.lower(): value for name, value in reply.headers.items()}
                body = await _read_body(reply, headers, request.max_body_bytes)
        except TimeoutError as error:
            if exchange.is_connected:
                raise ReadTimeout(f"no complete reply within {timeout_s:g} s") from None
            waited_s = timeout_s if timeout_s <= self._connect_timeout_s else self._connect_timeout_s
            raise ConnectError(f"no connection within {waited_s:g} s") from error
        except aiohttp.ClientError as error:
            raise self._classify(error, exchange, has_reply=bool(status)) from None
        return Reply(status, headers, body)

    def _open_session(self) -> aiohttp.ClientSession:
        """Open the session with the first request, inside the event loop. Finds the proxy once."""
        try:
            import aiohttp
        except ImportError:
            raise MissingPackage.of("aiohttp", "a remote model", extra="api") from None
        self._proxy = self._address.find_proxy()
        tls = build_tls_context(*self._tls) if self._address.scheme == "https" else True
        self._session = aiohttp.ClientSession(
            connector=_build_connector(tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # aiohttp accepts truncated gzip data
            skip_auto_headers=("Content-Type",),
            max_line_size=_MAX_HEAD_LINE_BYTES,
            max_field_size=_MAX_HEAD_LINE_BYTES,
        )
        return self._session

    def _build_headers(self, content_type: str) -> dict[str, str]:
        """Return the headers of a request. They are not those of the session, which aiohttp also sends to the proxy of a tunnel."""
        found = self._headers_by_type.get(content_type)
        if found is None:
            found = dict(self._headers)
            if content_type:
                found["Content-Type"] = content_type
            if self._proxy is not None and self._address.scheme == "http":
                found |= self._proxy.headers
            self._headers_by_type[content_type] = found
        return found

    def _build_url(self, path: str) -> URL:
        from yarl import URL

        query = f"?{self._address.query}" if self._address.query else ""
        url = URL(f"{self._address.origin}{self._address.path}{path}{query}", encoded=True)
        self._urls = {path: url} if len(self._urls) >= 64 else self._urls | {path: url}
        return url

    def _build_timeout(self, timeout_s: float) -> aiohttp.ClientTimeout:
        import aiohttp

        # `connect`, not `sock_connect`: with the lookup of the name and the tunnel of a proxy
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=self._connect_timeout_s)
        self._timeouts = {timeout_s: timeout}
        return timeout

    def _classify(
        self, error: aiohttp.ClientError, exchange: Exchange, *, has_reply: bool
    ) -> ConnectError | RemoteProtocolError:
        """Translate an error of aiohttp."""
        import aiohttp

        if isinstance(error, aiohttp.ClientHttpProxyError):
            proxy = self._proxy
            place = f"{proxy.host}:{proxy.port}" if proxy is not None else "?"
            return ConnectError(f"the proxy {place} rejected the tunnel: HTTP {error.status}")
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = error.certificate_error
            return ConnectError(f"untrusted certificate: {getattr(why, 'verify_message', why)}")
        if not exchange.is_connected:
            why = getattr(error, "os_error", error)
            return ConnectError(getattr(why, "strerror", "") or str(why) or type(why).__name__)
        invalid = _find_parser_error(error)
        if invalid is not None:
            return RemoteProtocolError(f"invalid HTTP reply: {invalid}")
        if has_reply:
            return RemoteProtocolError("connection closed in the middle of the reply")
        detail = f": {error.strerror or error}" if isinstance(error, OSError) else ""
        return RemoteProtocolError(f"connection closed before the reply{detail}")


def _build_connector(tls: Any) -> aiohttp.TCPConnector:
    """Return a connector that tells each exchange whether its connection is new."""
    import aiohttp

    class RecordingConnector(aiohttp.TCPConnector):
        async def connect(self, req: Any, traces: Any, timeout: aiohttp.ClientTimeout) -> Connection:
            while True:
                connection = await super().connect(req, traces, timeout)
                protocol = connection.protocol
                is_new = protocol not in known
                if is_new or protocol is None or not protocol.should_close:
                    break
                connection.close()  # data arrived that no request asked for
            if is_new and protocol is not None:
                known.add(protocol)
            exchange = _current_exchange.get(None)
            if exchange is not None:
                exchange.record_connection(is_new=is_new)
            return connection

    known: WeakSet[Any] = WeakSet()
    return RecordingConnector(limit=0, ssl=tls, keepalive_timeout=_MAX_IDLE_S)


def _to_payload(request: HttpRequest) -> bytes | io.BytesIO | None:
    body = request.body
    if len(body) > _MAX_BODY_IN_ONE_WRITE_BYTES:
        return io.BytesIO(body)
    return body or (b"" if request.method == "POST" else None)


async def _read_body(reply: aiohttp.ClientResponse, headers: Mapping[str, str], limit: int) -> bytes:
    """Return the complete body, decompressed.

    Raises:
        RemoteProtocolError: The body cannot be decompressed.
        ReplyTooLarge: The body is larger than the limit.
    """
    encoding = headers.get("content-encoding", "").lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise RemoteProtocolError(f"invalid HTTP reply: unsupported content encoding {encoding!r}")
    length = reply.content_length
    if length is not None and length > limit:
        raise _build_size_error(f"{length / 2**20:.0f} MB", limit)
    if length is not None and not encoding:
        return await reply.read()
    decompressor = _Decompressor() if encoding not in ("", "identity") else None
    parts: list[bytes] = []
    size = 0
    async for data in reply.content.iter_any():
        for part in (data,) if decompressor is None else decompressor.read(data, limit - size + 1):
            size += len(part)
            if size > limit:
                raise _build_size_error(f"more than {limit / 2**20:g} MB", limit)
            parts.append(part)
    if decompressor is not None and not decompressor.is_complete:
        raise RemoteProtocolError("invalid HTTP reply: the compressed body is truncated")
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Decompressor:
    """Decompresses gzip, which may have several members, and deflate. Bytes after the last member are ignored."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(47)
        self._members_read = 0
        self._is_at_start = True

    @property
    def is_complete(self) -> bool:
        """Whether no member is truncated."""
        return self._is_at_start

    def read(self, data: bytes, limit: int) -> Iterator[bytes]:
        """Yield what the data contain, at most `limit` bytes of each member.

        Raises:
            RemoteProtocolError: The data are invalid.
        """
        while data:
            try:
                part = self._member.decompress(data, limit)
            except zlib.error as error:
                if self._members_read and self._is_at_start:
                    return
                raise RemoteProtocolError(f"invalid HTTP reply: {error}") from None
            self._is_at_start = self._member.eof
            data = self._member.unused_data
            if self._member.eof:
                self._member = zlib.decompressobj(47)
                self._members_read += 1
            yield part


def _build_size_error(size: str, limit: int) -> ReplyTooLarge:
    return ReplyTooLarge(f"the reply has {size}; the limit is {limit / 2**20:g} MB (max_reply_mb)")


def _find_parser_error(error: BaseException) -> str | None:
    """Return the message of the error of aiohttp's parser that caused this one."""
    from aiohttp import ClientResponseError
    from aiohttp.http_exceptions import ContentLengthError, HttpProcessingError, TransferEncodingError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ClientResponseError):
            return cause.message or str(cause)
        if isinstance(cause, HttpProcessingError):
            truncated = isinstance(cause, ContentLengthError) or (
                isinstance(cause, TransferEncodingError) and "Not enough data" in str(cause)
            )
            return None if truncated else cause.message
        cause = cause.__cause__ or cause.__context__
    return None
