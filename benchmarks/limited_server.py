"""A server with the OpenAI API that limits its clients in one of the ways that real servers do.

    python benchmarks/limited_server.py MODE --limit 20 [--latency_ms 50] [--window_s 2] [--changes 3:60,6:20]    # prints its port

Modes: `queue` (more calls wait), `busy` (429), `retry_after` (429 with `Retry-After: 1`), `connections` (further connections
are closed, and open ones after their answer if the limit falls), `window` (`limit` calls in each period, then 429), `window_retry_after` (with `Retry-After`: the rest of the
period, in whole seconds), `tokens` (calls of different length; 429 if a call exceeds `limit` tokens in any window that ends
with it, counted when calls arrive or when they end). `--changes` sets other limits at times in seconds from the first call.
`GET /v1/statistics` returns the times of all answers, the starts of all periods, the tokens used and the number of rejections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import time
from collections import deque

from latency_server import CHAT, CHAT_REPLY, PreciseSelector

MODES = ("queue", "busy", "retry_after", "connections", "window", "window_retry_after", "tokens")
PROMPT_TOKENS, MAX_ANSWER_TOKENS = 12, 32
MAX_SLOWDOWN = 10.0
"""In the mode `tokens` a call takes up to this multiple of the latency."""


class TokenWindow:
    """The tokens of the last seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._counted: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, tokens: int) -> int:
        """Count tokens; return the sum of the window that ends now."""
        now = time.monotonic()
        while self._counted and self._counted[0][0] <= now - self._window_s:
            self.total -= self._counted.popleft()[1]
        self._counted.append((now, tokens))
        self.total += tokens
        return self.total


class Limits:
    """The state of the server, shared by its connections."""

    def __init__(
        self, mode: str, limit: int, latency_s: float, window_s: float, changes: list[tuple[float, int]]
    ) -> None:
        self.mode, self.latency_s, self.window_s = mode, latency_s, window_s
        self._limit, self._changes = limit, changes
        self.active = self.open = self.rejected = 0
        self.waiting: deque[Connection] = deque()
        self.answers: list[float] = []
        self.began = 0.0
        self._calls = 0
        self.periods: list[float] = []
        """When each period began: with the first call after the one before."""

        self.tokens = 0
        self._arrived, self._ended = TokenWindow(window_s), TokenWindow(window_s)
        self._random = random.Random(1)

    @property
    def limit(self) -> int:
        elapsed = time.monotonic() - self.began if self.began else 0.0
        return ([self._limit] + [limit for after, limit in self._changes if elapsed >= after])[-1]

    def accepts(self) -> bool:
        """Return whether a call is answered now."""
        if not self.mode.startswith("window"):
            return self.active < self.limit
        now = time.monotonic()
        if not self.periods or now >= self.periods[-1] + self.window_s:
            self.periods.append(now)
            self._calls = 0
        self._calls += 1
        return self._calls <= self.limit

    def find_retry_after_s(self) -> int:
        """Return the delay that a rejection asks for; 0: none."""
        if self.mode == "window_retry_after":
            return math.ceil(self.periods[-1] + self.window_s - time.monotonic())
        return int(self.mode == "retry_after")

    def draw_call(self) -> tuple[float, int]:
        """Return the latency and the answer tokens of a call in the mode `tokens`."""
        slowdown = self._random.uniform(1, MAX_SLOWDOWN)
        return self.latency_s * slowdown, self._random.randint(1, MAX_ANSWER_TOKENS)

    def count_arrival(self, tokens: int) -> bool:
        """Count the tokens of a call that arrives; return whether they are within the limit."""
        return self._arrived.add(tokens) <= self.limit

    def count_end(self, tokens: int) -> None:
        """Count the tokens of a call that ends; exceeding the limit then is a rejection, too."""
        self.tokens += tokens
        self.rejected += self._ended.add(tokens) > self.limit


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
            found = {
                "answers": limits.answers,
                "rejected": limits.rejected,
                "periods": limits.periods,
                "tokens": limits.tokens,
            }
            self._write(b"200 OK", json.dumps(found).encode())
            return
        if path.endswith(b"/models"):
            self._write(b"200 OK", b'{"object": "list", "data": [{"id": "limited"}]}')
            return
        limits.began = limits.began or time.monotonic()
        if limits.mode == "tokens":
            self._start_long()
        elif limits.mode == "connections" or limits.accepts():
            self._start()
        elif limits.mode == "queue":
            limits.waiting.append(self)
        else:
            self._reject()

    def _reject(self) -> None:
        self.limits.rejected += 1
        delay_s = self.limits.find_retry_after_s()
        header = b"Retry-After: %d\r\n" % delay_s if delay_s else b""
        self._write(b"429 Too Many Requests", b'{"error": {"message": "slow down"}}', header)

    def _start_long(self) -> None:
        """Begin a call of the mode `tokens`."""
        latency_s, answer_tokens = self.limits.draw_call()
        if self.limits.count_arrival(PROMPT_TOKENS + answer_tokens):
            asyncio.get_running_loop().call_later(latency_s, self._answer_long, answer_tokens)
        else:
            self._reject()

    def _answer_long(self, answer_tokens: int) -> None:
        self.limits.count_end(PROMPT_TOKENS + answer_tokens)
        self.limits.answers.append(time.monotonic())
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": answer_tokens}
        self._write(b"200 OK", json.dumps(CHAT | {"usage": usage}).encode())

    def _start(self) -> None:
        self.limits.active += 1
        asyncio.get_running_loop().call_later(self.limits.latency_s, self._answer)

    def _answer(self) -> None:
        limits = self.limits
        limits.active -= 1
        limits.answers.append(time.monotonic())
        self.transport.write(CHAT_REPLY)
        if limits.mode == "connections" and limits.open > limits.limit:
            self.transport.close()
        while limits.waiting and limits.active < limits.limit:
            limits.waiting.popleft()._start()

    def _write(self, status: bytes, body: bytes, header: bytes = b"") -> None:
        self.transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (status, header, len(body), body)
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--latency_ms", type=float, default=50.0)
    parser.add_argument("--window_s", type=float, default=2.0)
    parser.add_argument("--changes", default="")
    options = parser.parse_args()
    changes = [
        (float(after), int(limit))
        for after, _, limit in (text.partition(":") for text in options.changes.split(",") if text)
    ]
    limits = Limits(options.mode, options.limit, options.latency_ms / 1000, options.window_s, changes)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(limits), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as runner:
        runner.run(main())
