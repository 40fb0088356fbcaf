"""One connection to a server, and the replies that come over it.

A connection that was given up, timed out or said something unasked is closed, never used again: a reply can only ever
reach the call it answers.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Broken", "Connection", "Reply", "TooSlow", "Tunnel", "Unreachable"]

_LARGEST_HEAD = 64 * 1024
_LARGEST_BODY = 512 * 2**20


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
    """One connection; at most one exchange on it at a time."""

    __slots__ = (
        "_body", "_buffer", "_chunked", "_future", "_headers", "_left", "_status", "_timer", "alive", "idle_since",
        "transport",
    )  # fmt: skip

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.alive = False
        self.idle_since = 0.0
        self._future: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reset()

    def _reset(self) -> None:
        self._buffer = b""
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._left = 0
        self._chunked = False

    # --- for whoever calls -------------------------------------------------------------------------

    def exchange(self, data: bytes, timeout_s: float) -> asyncio.Future[Reply]:
        """Send a request; the reply comes as a future."""
        loop = asyncio.get_running_loop()
        self._reset()
        self._future = future = loop.create_future()
        self._timer = loop.call_later(timeout_s, self._late, timeout_s)
        assert self.transport is not None
        self.transport.write(data)
        return future

    def drop(self) -> None:
        """Close it at once, whatever is on its way."""
        self.alive = False
        if self.transport is not None:
            self.transport.abort()
        self._finish(None, Broken("the call was given up"))

    # --- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.alive = True

    def data_received(self, data: bytes) -> None:
        if self._future is None:  # nobody asked
            self.drop()
            return
        self._buffer = self._buffer + data if self._buffer else data
        try:
            if self._status or self._read_head():
                self._read_body()
        except (ValueError, IndexError, zlib.error) as error:
            self._fail(f"not an HTTP reply: {error}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.alive = False
        if self._future is None:
            return
        if self._status and self._left < 0 and error is None:  # a body that ends with its connection
            self._body.append(self._buffer)
            self._complete()
        elif self._status:
            self._finish(None, Broken("the connection ended in the middle of the reply"))
        else:
            why = f": {error}" if error else ""
            self._finish(None, Broken(f"the connection ended before the reply{why}"))

    # --- reading -----------------------------------------------------------------------------------

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _LARGEST_HEAD:
                raise ValueError("its head never ends")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"it begins {first[:40]!r}")
        status = int(rest[:3])
        self._buffer = self._buffer[end + 4 :]
        if 100 <= status < 200:  # another head follows
            return self._read_head()
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"it has the header {line[:40]!r}")
            headers[name.strip().lower()] = value.strip()
        self._headers = headers
        self._chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
        if self._chunked or status in (204, 304):
            self._left = 0
        else:
            length = headers.get("content-length")
            self._left = -1 if length is None else int(length)
            if length is not None and not 0 <= self._left <= _LARGEST_BODY:
                raise ValueError(f"a length of {length}")
        if version == "HTTP/1.0" and headers.get("connection", "").lower() != "keep-alive":
            headers["connection"] = "close"
        self._status = status
        return True

    def _read_body(self) -> None:
        if self._chunked:
            if self._read_chunks():
                self._complete()
        elif self._left < 0:
            if len(self._buffer) > _LARGEST_BODY:
                raise ValueError("its body never ends")
        elif len(self._buffer) >= self._left:
            self._body.append(self._buffer[: self._left])
            self._buffer = self._buffer[self._left :]
            self._complete()

    def _read_chunks(self) -> bool:
        """Take whole chunks out of the buffer; True after the last one and what may trail it."""
        buffer, at = self._buffer, 0
        while (end := buffer.find(b"\r\n", at)) >= 0:
            size = int(buffer[at:end].partition(b";")[0], 16)
            if size < 0 or size > _LARGEST_BODY:
                raise ValueError("a chunk of an impossible size")
            if size == 0:
                done = buffer.find(b"\r\n", end) if buffer[end : end + 4] == b"\r\n\r\n" else -1
                done = end + 4 if done >= 0 else buffer.find(b"\r\n\r\n", end) + 4
                if done < end + 4:
                    break
                self._buffer = buffer[done:]
                return True
            if len(buffer) < end + 2 + size + 2:
                break
            self._body.append(buffer[end + 2 : end + 2 + size])
            at = end + 2 + size + 2
        self._buffer = buffer[at:]
        return False

    def _complete(self) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        encoding = self._headers.get("content-encoding", "").lower()
        if encoding in ("gzip", "deflate"):
            body = zlib.decompress(body, 47)
        elif encoding not in ("", "identity"):
            raise ValueError(f"the encoding {encoding!r}")
        ends = self._left < 0 or self._headers.get("connection", "").lower() == "close"
        if ends or self._buffer:  # it closes, or says more than was asked
            self.alive = False
            if self.transport is not None:
                self.transport.abort()
        self._finish(Reply(self._status, self._headers, body), None)

    def _fail(self, why: str) -> None:
        self.alive = False
        if self.transport is not None:
            self.transport.abort()
        self._finish(None, Broken(why))

    def _late(self, timeout_s: float) -> None:
        self.alive = False
        if self.transport is not None:
            self.transport.abort()
        self._finish(None, TooSlow(f"no whole reply within {timeout_s:g} s"))

    def _finish(self, reply: Reply | None, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        future, self._future = self._future, None
        if future is None or future.done():
            return
        if reply is not None:
            future.set_result(reply)
        elif error is not None:
            future.set_exception(error)


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
