"""A server with the OpenAI API that limits its clients in one of the ways that real servers do.

    python benchmarks/limited_server.py MODE --limit 20 [--latency_ms 50] [--changes 3:60,6:20]    # prints its port

Modes: `queue` (more calls wait), `busy` (429), `retry_after` (429 with `Retry-After: 1`), `connections` (further connections
are closed), `window` (`limit` calls in each period of two seconds, then 429). `--changes` sets other limits after so many
seconds from the first call. `GET /v1/statistics` returns the times of all answers and the number of rejections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import deque

from latency_server import CHAT_REPLY, PreciseSelector

WINDOW_S = 2.0


class Limits:
    """The state of the server, shared by its connections."""

    def __init__(self, mode: str, limit: int, latency_s: float, changes: list[tuple[float, int]]) -> None:
        self.mode, self.latency_s = mode, latency_s
        self._limit, self._changes = limit, changes
        self.active = self.open = self.rejected = 0
        self.waiting: deque[Connection] = deque()
        self.answers: list[float] = []
        self.began = 0.0
        self._window, self._calls = 0.0, 0

    @property
    def limit(self) -> int:
        elapsed = time.monotonic() - self.began if self.began else 0.0
        return ([self._limit] + [limit for after, limit in self._changes if elapsed >= after])[-1]

    def accepts(self) -> bool:
        """Return whether a call is answered now."""
        if self.mode != "window":
            return self.active < self.limit
        now = time.monotonic()
        if now >= self._window + WINDOW_S:
            self._window, self._calls = now, 0
        self._calls += 1
        return self._calls <= self.limit


class Connection(asyncio.Protocol):
    """One connection; one call at a time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer = transport, bytearray()
        self.limits.open += 1
        if self.limits.mode == "connections" and self.limits.open > self.limits.limit:
            self.limits.rejected += 1
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.open -= 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end])
        length = sum(
            int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"
        )
        if len(self.buffer) >= end + 4 + length:
            del self.buffer[: end + 4 + length]
            self._receive(head.split(b" ", 2)[1])

    def _receive(self, path: bytes) -> None:
        limits = self.limits
        if path.endswith(b"/statistics"):
            found = {"answers": limits.answers, "rejected": limits.rejected}
            self._write(b"200 OK", json.dumps(found).encode())
            return
        if path.endswith(b"/models"):
            self._write(b"200 OK", b'{"object": "list", "data": [{"id": "limited"}]}')
            return
        limits.began = limits.began or time.monotonic()
        if limits.mode == "connections" or limits.accepts():
            self._start()
        elif limits.mode == "queue":
            limits.waiting.append(self)
        else:
            limits.rejected += 1
            delay = b"Retry-After: 1\r\n" if limits.mode == "retry_after" else b""
            self._write(b"429 Too Many Requests", b'{"error": {"message": "slow down"}}', delay)

    def _start(self) -> None:
        self.limits.active += 1
        asyncio.get_running_loop().call_later(self.limits.latency_s, self._answer)

    def _answer(self) -> None:
        limits = self.limits
        limits.active -= 1
        limits.answers.append(time.monotonic())
        self.transport.write(CHAT_REPLY)
        while limits.waiting and limits.active < limits.limit:
            limits.waiting.popleft()._start()

    def _write(self, status: bytes, body: bytes, header: bytes = b"") -> None:
        self.transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (status, header, len(body), body)
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["queue", "busy", "retry_after", "connections", "window"])
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--latency_ms", type=float, default=50.0)
    parser.add_argument("--changes", default="")
    options = parser.parse_args()
    changes = [
        (float(after), int(limit))
        for after, _, limit in (text.partition(":") for text in options.changes.split(",") if text)
    ]
    limits = Limits(options.mode, options.limit, options.latency_ms / 1000, changes)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(limits), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as runner:
        runner.run(main())
