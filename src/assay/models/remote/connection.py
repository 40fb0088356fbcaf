"""One connection to a server, and the replies that come over it.

A connection that was given up, timed out or said something unasked is closed, never used again: a reply can only ever
reach the call it answers.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.errors import MissingPackage

__all__ = ["Broken", "Connection", "Ending", "Reply", "TooSlow", "Tunnel", "Unreachable", "http_parser"]

_LARGEST_HEAD = 64 * 1024
_LARGEST_BODY = 512 * 2**20
_WORTH_COPYING = 64 * 1024
"""A body up to this size goes out together with its head, in one call of the system."""

Ending = Callable[["Reply | Exception"], None]
"""Told what became of an exchange in the very moment it ends, before whoever awaits it."""


class Unreachable(Exception):
    """No connection: refused, unknown host, bad certificate."""


class Broken(Exception):
    """The connection ended, or what came over it is not HTTP, before the reply was whole."""


class TooSlow(Exception):
    """The reply was not whole in time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""

    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Connection(asyncio.Protocol):
    """One connection; at most one exchange on it at a time. What comes over it is read by `httptools`."""

    __slots__ = (
        "_body", "_error", "_future", "_headers", "_home", "_parser", "_size", "_status", "_tell", "_timer", "_until_end",
        "_whole", "alive", "idle_since", "transport",
    )  # fmt: skip

    def __init__(self, home: Callable[[Connection], None] | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.alive = False
        self.idle_since = 0.0
        self._home = home
        """Called with the connection whenever an exchange on it ends: it may be used again, if it is alive."""

        self._tell: Ending | None = None
        self._future: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parser: Any = None
        self._forget()

    def _forget(self) -> None:
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = self._status = 0
        self._whole = self._until_end = False
        self._error = ""

    # --- for whoever calls -------------------------------------------------------------------------

    def exchange(
        self, head: bytes, body: bytes, timeout_s: float, future: asyncio.Future[Reply], tell: Ending | None
    ) -> None:
        """Send a request; the reply, or the error, comes as the future's."""
        self._forget()
        self._parser = http_parser(self)
        self._future, self._tell = future, tell
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._late, timeout_s)
        assert self.transport is not None
        if len(body) <= _WORTH_COPYING:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    def drop(self) -> None:
        """Close it at once, whatever is on its way."""
        self._end(Broken("the call was given up"))

    def give_up(self, future: asyncio.Future[Reply]) -> None:
        """Close it, if this is what it is still busy with: the reply may have come in the same moment."""
        if self._future is future:
            self.drop()

    # --- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.alive = True

    def data_received(self, data: bytes) -> None:
        if self._future is None:  # nobody asked
            self.drop()
            return
        try:
            self._parser.feed_data(data)
        except Exception as error:  # noqa: BLE001 - whatever the parser makes of what a server says
            if not self._whole:
                self._end(Broken(f"not an HTTP reply: {self._error or error}"))
                return
            self.alive = (
                False  # it says more than was asked: the reply is whole, the connection is not used again
            )
        if self._whole:
            self._complete()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.alive = False
        if self._future is None:
            return
        if self._until_end and error is None:  # a body that ends with its connection
            self._complete()
        elif self._status:
            self._end(Broken("the connection ended in the middle of the reply"))
        else:
            why = f": {error}" if error else ""
            self._end(Broken(f"the connection ended before the reply{why}"))

    # --- what the parser calls ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A reply begins; a second one was not asked for."""
        if self._whole:
            raise ValueError("a reply nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
        self._grow(len(name) + len(value), _LARGEST_HEAD, "its head never ends")

    def on_headers_complete(self) -> None:
        """The head is there; whether the body says where it ends is known."""
        headers, self._size = self._headers, 0
        self._status = status = self._parser.get_status_code()
        known = "content-length" in headers or headers.get("transfer-encoding", "").lower().endswith(
            "chunked"
        )
        self._until_end = not known and status not in (204, 304) and status >= 200

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._body.append(data)
        self._grow(len(data), _LARGEST_BODY, "its body never ends")

    def on_message_complete(self) -> None:
        """The reply is whole, or was only the server's word that it goes on (1xx)."""
        if self._status < 200:
            self._forget()
            return
        self._whole = True
        self.alive = self._parser.should_keep_alive()  # asked later, it speaks of the next one

    def _grow(self, size: int, most: int, why: str) -> None:
        self._size += size
        if self._size > most:
            self._error = why
            raise ValueError(why)

    # --- ends --------------------------------------------------------------------------------------

    def _complete(self) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        try:
            body = _unpacked(body, self._headers.get("content-encoding", "").lower())
        except (ValueError, zlib.error) as error:
            self._end(Broken(f"not an HTTP reply: {error}"))
            return
        if self._until_end or not self.alive:
            self._close()
        self._finish(Reply(self._status, self._headers, body), None)

    def _late(self, timeout_s: float) -> None:
        self._end(TooSlow(f"no whole reply within {timeout_s:g} s"))

    def _end(self, error: Exception) -> None:
        self._close()
        self._finish(None, error)

    def _close(self) -> None:
        self.alive = False
        if self.transport is not None:
            self.transport.abort()

    def _finish(self, reply: Reply | None, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._parser = None  # the two point at each other
        future, self._future = self._future, None
        tell, self._tell = self._tell, None
        if future is None:
            return
        if self._home is not None:
            self._home(self)
        ended = reply or error
        assert ended is not None
        if tell is not None:
            tell(ended)  # the next call may be under way on this connection when it returns
        if future.done():
            return
        if reply is not None:
            future.set_result(reply)
        elif error is not None:
            future.set_exception(error)


def http_parser(listener: Any) -> Any:
    """The parser of `httptools`, which is that of Node.js.

    Raises:
        MissingPackage: It is not installed.
    """
    try:
        from httptools import HttpResponseParser
    except ImportError:
        raise MissingPackage.of("httptools", "a remote model", extra="api") from None
    return HttpResponseParser(listener)


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise ValueError(f"the encoding {encoding!r}")
    unpacking = zlib.decompressobj(47)
    unpacked = unpacking.decompress(body, _LARGEST_BODY)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError("its body is cut off, or far too large")
    return unpacked


class Tunnel(asyncio.Protocol):
    """Waits for a proxy's word that the tunnel is open: a head without a body."""

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
