"""One HTTP/1.1 connection.

A connection is closed and never reused after a cancelled request, a timeout or unexpected data, so a reply always belongs
to the request that was sent last.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from assay.core.errors import MissingPackage

__all__ = [
    "DEFAULT_MAX_BODY_BYTES",
    "ConnectError",
    "Connection",
    "ExchangeCallback",
    "ProxyTunnel",
    "ReadTimeout",
    "ReadTimeouts",
    "RemoteProtocolError",
    "Reply",
    "ReplyTooLarge",
    "load_http_parser",
]

_MAX_HEAD_BYTES = 64 * 1024
DEFAULT_MAX_BODY_BYTES = 64 * 2**20
_MAX_COPIED_BODY_BYTES = 64 * 1024
"""Largest body that is sent together with the head in one system call."""

ExchangeCallback = Callable[["Reply | Exception"], None]
"""Called with the result as soon as an exchange ends, before the awaiting task resumes."""


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


class ReadTimeouts:
    """The timeouts of several connections with one timer. A timer per request would cost several comparisons in Python."""

    def __init__(self) -> None:
        self._deadlines: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0

    def start(self, connection: Connection, timeout_s: float) -> None:
        """Call `connection.on_timeout` after this time, unless it is stopped before."""
        loop = asyncio.get_running_loop()
        deadline = self._deadlines[connection] = loop.time() + timeout_s
        if self._timer is None or deadline < self._fires_at:
            self._set_timer(loop, deadline)

    def stop(self, connection: Connection) -> None:
        """Forget the timeout of a connection."""
        self._deadlines.pop(connection, None)

    def close(self) -> None:
        """Stop the timer."""
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = deadline
        self._timer = loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        """End the exchanges that are late, and wait for the next deadline."""
        loop, self._timer = asyncio.get_running_loop(), None
        now = max(
            loop.time(), self._fires_at
        )  # the loop runs timers that are due within its clock's resolution
        for connection in [one for one, deadline in self._deadlines.items() if deadline <= now]:
            connection.on_timeout()
        if self._deadlines:  # a late exchange may have started another one
            self._set_timer(loop, min(self._deadlines.values()))


class Connection(asyncio.Protocol):
    """One connection with at most one exchange at a time. `httptools` parses the replies."""

    __slots__ = (
        "_body", "_decompressor", "_ends_with_connection", "_error", "_future", "_headers", "_is_complete", "_max_body_bytes", "_on_end", "_on_release", "_parser", "_size", "_status",
        "_timeout_s", "_timeouts", "alive", "idle_since", "transport",
    )  # fmt: skip

    def __init__(
        self,
        on_release: Callable[[Connection], None] | None = None,
        timeouts: ReadTimeouts | None = None,
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.alive = False
        self.idle_since = 0.0
        self._on_release = on_release
        """Called with the connection when an exchange ends; the connection is reusable if `alive`."""

        self._on_end: ExchangeCallback | None = None
        self._future: asyncio.Future[Reply] | None = None
        self._timeouts = timeouts or ReadTimeouts()
        self._timeout_s = 0.0
        self._parser: Any = None
        self._max_body_bytes = DEFAULT_MAX_BODY_BYTES
        self._reset()

    def _reset(self) -> None:
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = self._status = 0
        self._is_complete = self._ends_with_connection = False
        self._decompressor: Any = None
        self._error: Exception | None = None

    # --- exchanges -------------------------------------------------------------------------

    def exchange(
        self,
        head: bytes,
        body: bytes,
        timeout_s: float,
        future: asyncio.Future[Reply],
        on_end: ExchangeCallback | None,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    ) -> None:
        """Send a request; the future receives the reply or the error."""
        self._reset()
        self._max_body_bytes = max_body_bytes
        self._parser = _load_once()(self)
        self._future, self._on_end = future, on_end
        self._timeout_s = timeout_s
        self._timeouts.start(self, timeout_s)
        assert self.transport is not None
        if len(body) <= _MAX_COPIED_BODY_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    def abort(self) -> None:
        """Close the connection immediately."""
        self._fail(RemoteProtocolError("request cancelled"))

    def abandon(self, future: asyncio.Future[Reply]) -> None:
        """Close the connection if it still serves this future; the reply may already have arrived."""
        if self._future is future:
            self.abort()

    # --- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.alive = True

    def data_received(self, data: bytes) -> None:
        if self._future is None:  # unexpected data
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except Exception as error:  # noqa: BLE001 - the parser raises many types on invalid input
            if not self._is_complete:
                self._fail(self._error or RemoteProtocolError(f"invalid HTTP reply: {error}"))
                return
            self.alive = False  # data after a complete reply: keep the reply, do not reuse the connection
        if self._is_complete:
            self._deliver()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.alive = False
        if self._future is None:
            return
        if self._ends_with_connection and error is None:
            self._deliver()
        elif self._status:
            self._fail(RemoteProtocolError("connection closed in the middle of the reply"))
        else:
            why = f": {error}" if error else ""
            self._fail(RemoteProtocolError(f"connection closed before the reply{why}"))

    # --- parser callbacks ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Reject a second reply."""
        if self._is_complete:
            raise ValueError("unexpected second reply")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
        self._size += len(name) + len(value)
        if self._size > _MAX_HEAD_BYTES:
            self._stop(RemoteProtocolError("invalid HTTP reply: the head is too large"))

    def on_headers_complete(self) -> None:
        """Determine how the body ends."""
        headers, self._size = self._headers, 0
        self._status = status = self._parser.get_status_code()
        known = "content-length" in headers or headers.get("transfer-encoding", "").lower().endswith(
            "chunked"
        )
        self._ends_with_connection = not known and status not in (204, 304) and status >= 200
        encoding = headers.get("content-encoding", "").lower()
        if encoding in ("gzip", "deflate"):
            self._decompressor = zlib.decompressobj(47)
        elif encoding not in ("", "identity"):
            self._stop(RemoteProtocolError(f"invalid HTTP reply: unsupported content encoding {encoding!r}"))
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:18]) > self._max_body_bytes:
            self._stop_too_large(f"{int(length[:18]) / 2**20:.0f} MB")

    def on_body(self, data: bytes) -> None:
        """Store a chunk of the body, decompressed; stop when the body becomes too large."""
        room = self._max_body_bytes - self._size
        if self._decompressor is not None:
            try:
                data = self._decompressor.decompress(data, room + 1)
            except zlib.error as error:
                self._stop(RemoteProtocolError(f"invalid HTTP reply: {error}"))
        if len(data) > room:
            self._stop_too_large(f"more than {self._max_body_bytes / 2**20:g} MB")
        self._size += len(data)
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Finish the reply; skip an interim reply (1xx)."""
        if self._status < 200:
            self._reset()
            return
        self._is_complete = True
        self.alive = self._parser.should_keep_alive()  # valid only inside this callback

    def _stop_too_large(self, size: str) -> NoReturn:
        self._stop(
            ReplyTooLarge(
                f"the reply has {size}; the limit is {self._max_body_bytes / 2**20:g} MB (max_reply_mb)"
            )
        )

    def _stop(self, error: Exception) -> NoReturn:
        """Stop the parser; `data_received` reports the error."""
        self._error = error
        raise error

    # --- end of an exchange --------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._decompressor is not None and body and not self._decompressor.eof:
            self._fail(RemoteProtocolError("invalid HTTP reply: the compressed body is truncated"))
            return
        if self._ends_with_connection or not self.alive:
            self._close()
        self._finish(Reply(self._status, self._headers, body), None)

    def on_timeout(self) -> None:
        """End the exchange: the reply was not complete in time."""
        self._fail(ReadTimeout(f"no complete reply within {self._timeout_s:g} s"))

    def _fail(self, error: Exception) -> None:
        self._close()
        self._finish(None, error)

    def _close(self) -> None:
        self.alive = False
        if self.transport is not None:
            self.transport.abort()

    def _finish(self, reply: Reply | None, error: Exception | None) -> None:
        self._timeouts.stop(self)
        self._parser = None  # break the reference cycle
        future, self._future = self._future, None
        tell, self._on_end = self._on_end, None
        if future is None:
            return
        if self._on_release is not None:
            self._on_release(self)
        ended = reply or error
        assert ended is not None
        if tell is not None:
            tell(ended)  # may start the next exchange on this connection
        if future.done():
            return
        if reply is not None:
            future.set_result(reply)
        elif error is not None:
            future.set_exception(error)


def load_http_parser() -> Callable[[Any], Any]:
    """Return the reply parser of `httptools`, which calls the methods of its argument.

    Raises:
        MissingPackage: `httptools` is not installed.
    """
    try:
        from httptools import HttpResponseParser
    except ImportError:
        raise MissingPackage.of("httptools", "a remote model", extra="api") from None
    parser: Callable[[Any], Any] = HttpResponseParser
    return parser


_load_once = cache(load_http_parser)


class ProxyTunnel(asyncio.Protocol):
    """Waits for a proxy's reply to `CONNECT`, which has a head and no body."""

    def __init__(self) -> None:
        self._data = b""
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, transport: asyncio.Transport, request: bytes) -> int:
        waiting = cls()
        transport.set_protocol(waiting)
        transport.write(request)
        return await waiting.status

    def data_received(self, data: bytes) -> None:
        self._data += data
        if b"\r\n\r\n" in self._data and not self.status.done():
            words = self._data.split(b" ", 2)
            self.status.set_result(int(words[1]) if len(words) > 1 and words[1].isdigit() else 0)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.status.done():
            self.status.set_result(0)
