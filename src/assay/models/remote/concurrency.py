"""Adaptive concurrency limit and rate limits.

The limit grows while the server keeps up and shrinks when the server reports overload or times out.

    limiter = ConcurrencyLimiter(max_concurrency=32)
    limiter.enqueue(waiter)                       # calls waiter.start(ticket) when a slot is free
    limiter.release(ticket, "ok", seconds=0.4)    # or "busy", "late", "failed"; starts the next waiter

All models that call the same server share its rate limit; each model has its own concurrency limiter.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Literal, TypeVar

__all__ = [
    "INITIAL_CONCURRENCY",
    "CallResult",
    "ConcurrencyLimiter",
    "RateLimit",
    "TokenBucket",
    "Waiter",
    "find_longest_pause_s",
    "get_rate_limit",
    "iterate_completed",
]

T = TypeVar("T")

CallResult = Literal["ok", "busy", "late", "failed"]

INITIAL_CONCURRENCY = 8
"""Initial number of concurrent calls to an unknown server."""

_DECREASE_FACTOR = {"busy": 0.5, "late": 0.7}
_MIN_LIMIT = {"busy": 1.0, "late": 2.0}
_MAX_SLOWDOWN = 2.0
"""A latency above this multiple of the best one, without more throughput, means that the server is saturated."""

_MIN_SPEEDUP_TO_GROW = 1.05
"""Smallest relative gain in throughput that justifies a higher limit."""


class TokenBucket:
    """A token bucket for calls or tokens per minute. Allows a burst of about one second."""

    def __init__(self, per_minute: float) -> None:
        self.rate = per_minute / 60.0
        self._capacity = max(self.rate, 1.0)
        self._available = self._capacity
        self._refilled_at = time.monotonic()

    def wait_s(self, amount: float) -> float:
        """Return the seconds until `amount` is available."""
        self._refill()
        return max(0.0, (min(amount, self._capacity) - self._available) / self.rate)

    def take(self, amount: float) -> None:
        """Take `amount`; the balance may become negative and delays later calls."""
        self._refill()
        self._available -= amount

    def _refill(self) -> None:
        now = time.monotonic()
        self._available = min(self._capacity, self._available + (now - self._refilled_at) * self.rate)
        self._refilled_at = now


class RateLimit:
    """Rate limit of one server: pauses the server asked for, and the user's limits per minute."""

    def __init__(self) -> None:
        self.requests: TokenBucket | None = None
        self.tokens: TokenBucket | None = None
        self._paused_until = 0.0

    def set_limits(self, rpm: float | None, tpm: float | None) -> None:
        """Set limits per minute; the smallest limit of several models applies."""
        if rpm is not None and (self.requests is None or rpm / 60 < self.requests.rate):
            self.requests = TokenBucket(rpm)
        if tpm is not None and (self.tokens is None or tpm / 60 < self.tokens.rate):
            self.tokens = TokenBucket(tpm)

    def pause(self, seconds: float) -> None:
        """Send no calls for this many seconds."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    @property
    def pause_s(self) -> float:
        """Seconds until the end of the pause that the server asked for; 0: none."""
        return max(0.0, self._paused_until - time.monotonic()) if self._paused_until else 0.0

    def wait_s(self, tokens: int) -> float:
        """Return the seconds until a call may be sent; 0: now."""
        if not self._paused_until and self.requests is None and self.tokens is None:
            return 0.0
        wait = self._paused_until - time.monotonic()
        if wait <= 0:
            self._paused_until = wait = 0.0
        if self.requests is not None:
            wait = max(wait, self.requests.wait_s(1))
        if self.tokens is not None:
            wait = max(wait, self.tokens.wait_s(tokens))
        return wait

    def take(self, tokens: int) -> None:
        """Count a call that is being sent."""
        if self.requests is not None:
            self.requests.take(1)
        if self.tokens is not None:
            self.tokens.take(tokens)

    def correct_tokens(self, estimated: int, used: int) -> None:
        """Replace the estimated token count of a call by the actual one."""
        if self.tokens is not None:
            self.tokens.take(used - estimated)


_rate_limits: dict[str, RateLimit] = {}


def get_rate_limit(origin: str) -> RateLimit:
    """Return the rate limit of a server, one object per process."""
    return _rate_limits.setdefault(origin, RateLimit())


def find_longest_pause_s() -> float:
    """Return the seconds until the last paused server accepts calls again; 0 if no server is paused."""
    return max((limit.pause_s for limit in list(_rate_limits.values())), default=0.0)


class Waiter:
    """A call that waits for a slot; the limiter calls `start` once."""

    __slots__ = ("started", "timer", "tokens")

    def __init__(self, tokens: int = 0) -> None:
        self.tokens = tokens
        self.started = False
        self.timer: asyncio.TimerHandle | None = None
        """Runs while the waiter has a slot and the rate limit delays it."""

    def start(self, ticket: int) -> None:
        """Start the call. Pass the ticket to `release` when the call ends."""
        raise NotImplementedError

    def is_cancelled(self) -> bool:
        """Return whether the caller was cancelled."""
        raise NotImplementedError


class _FutureWaiter(Waiter):
    """A waiter that resolves a future."""

    __slots__ = ("ticket",)

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.ticket: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def start(self, ticket: int) -> None:
        self.ticket.set_result(ticket)

    def is_cancelled(self) -> bool:
        return self.ticket.done()


class ConcurrencyLimiter:
    """Starts calls in order of arrival, as many at once as the server can handle."""

    def __init__(
        self, max_concurrency: int, rate_limit: RateLimit | None = None, *, initial: int = INITIAL_CONCURRENCY
    ) -> None:
        self.max_concurrency = max(1, max_concurrency)
        self.limit = float(min(self.max_concurrency, initial))
        self.in_flight = 0
        self.rate_limit = rate_limit or RateLimit()
        self._queue: deque[Waiter] = deque()
        self._held = False
        self._was_overloaded = False
        """Whether the server was ever overloaded; from then on the limit grows slowly."""

        self._epoch = 0
        """Number of decreases. Calls sent before the last decrease do not cause another one."""

        self._completed = 0
        self._total_latency_s = 0.0
        self._round_started_at = 0.0
        self._best_latency = 0.0
        self._last_rate = 0.0

    async def acquire(self, tokens: int = 0) -> int:
        """Wait for a slot. Pass the returned ticket to `release`."""
        waiter = _FutureWaiter(tokens)
        self.enqueue(waiter)
        try:
            return await waiter.ticket
        except asyncio.CancelledError:
            if waiter.started:  # the slot was assigned at the same moment
                self._release_slot()
            else:
                self.withdraw_waiter(waiter)
            raise

    def enqueue(self, waiter: Waiter) -> None:
        """Call `waiter.start` when a slot is free: now, or inside the `release` of another call."""
        if self._held or self._queue or self.in_flight >= int(self.limit):
            self._queue.append(waiter)
        else:
            self.in_flight += 1
            self._start(waiter)

    def hold(self, held: bool) -> None:
        """Start no calls while `held`; calls in flight continue."""
        self._held = held
        self._start_next()

    def withdraw_waiter(self, waiter: Waiter) -> None:
        """Remove a waiter that has not started."""
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
            self._release_slot()
        elif waiter in self._queue:
            self._queue.remove(waiter)

    def _start(self, waiter: Waiter) -> None:
        """Start a waiter that has a slot as soon as the rate limit allows it."""
        wait_s = self.rate_limit.wait_s(waiter.tokens)
        if wait_s > 0:
            waiter.timer = asyncio.get_running_loop().call_later(wait_s, self._start_after_pause, waiter)
            return
        self.rate_limit.take(waiter.tokens)
        waiter.started = True
        waiter.start(self._epoch)

    def _start_after_pause(self, waiter: Waiter) -> None:
        waiter.timer = None
        if waiter.is_cancelled():
            self._release_slot()
        else:
            self._start(waiter)

    def _release_slot(self) -> None:
        self.in_flight -= 1
        self._start_next()

    def release(self, ticket: int, result: CallResult, seconds: float = 0.0) -> None:
        """Free the slot of a finished call and adapt the limit to its result."""
        self.in_flight -= 1
        if result == "ok":
            self._grow(seconds)
        elif result in _DECREASE_FACTOR and ticket == self._epoch:
            self.limit = max(min(_MIN_LIMIT[result], self.limit), self.limit * _DECREASE_FACTOR[result])
            self._was_overloaded = True
            self._epoch += 1
            self._start_round()
        self._start_next()

    def _grow(self, seconds: float) -> None:
        """After each full round of replies, check whether more concurrency increased the throughput."""
        if self.limit >= self.max_concurrency:
            return
        now = time.monotonic()
        if not self._completed:
            self._round_started_at = self._round_started_at or now - seconds
        self._completed += 1
        self._total_latency_s += seconds
        if self._completed < self.limit:
            return
        rate = self._completed / max(now - self._round_started_at, 1e-6)
        latency = self._total_latency_s / self._completed
        self._best_latency = min(self._best_latency or latency, latency)
        slower = latency > _MAX_SLOWDOWN * self._best_latency
        if slower and rate < _MIN_SPEEDUP_TO_GROW * self._last_rate:
            self.limit = max(1.0, self.limit * 0.9)
            self._was_overloaded = True
        elif self._was_overloaded:
            self.limit = min(self.max_concurrency, self.limit + max(1.0, 0.05 * self.limit))
        else:
            self.limit = min(self.max_concurrency, self.limit * 2)
        self._last_rate = rate
        self._start_round()

    def _start_round(self) -> None:
        self._completed, self._total_latency_s, self._round_started_at = 0, 0.0, time.monotonic()

    def _start_next(self) -> None:
        while not self._held and self._queue and self.in_flight < int(self.limit):
            waiter = self._queue.popleft()
            if not waiter.is_cancelled():
                self.in_flight += 1
                self._start(waiter)


async def iterate_completed(works: Sequence[Coroutine[Any, Any, list[T]]]) -> AsyncIterator[T]:
    """Run coroutines concurrently and yield their results as they complete; cancel the rest on early exit.

    `asyncio.as_completed` costs several times as much, which matters at thousands of calls a second.
    """
    loop = asyncio.get_running_loop()
    done: deque[asyncio.Task[list[T]]] = deque()
    waiting: asyncio.Future[None] | None = None

    def on_done(task: asyncio.Task[list[T]]) -> None:
        done.append(task)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    tasks = [loop.create_task(work) for work in works]
    for task in tasks:
        task.add_done_callback(on_done)
    left = len(tasks)
    try:
        while left:
            if not done:
                waiting = loop.create_future()
                await waiting
            while done:
                left -= 1
                for result in done.popleft().result():
                    yield result
    finally:
        if left:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
