"""A server and a client in simulated time: how many calls a `ConcurrencyLimiter` gets answered."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from assay.models.remote import concurrency, counting_periods, rate_limits, window_limits
from assay.models.remote.concurrency import CallResult, ConcurrencyLimiter, Waiter


class _Call(Waiter):
    def __init__(self, server: SimulatedServer) -> None:
        super().__init__()
        self.server = server
        self.ticket = 0

    def start(self, ticket: int) -> None:
        self.ticket = ticket
        self.server.receive(self)

    def is_cancelled(self) -> bool:
        return False


class SimulatedServer:
    """Answers `limit()` calls at once after `latency()` seconds and rejects the others.

    A rejected call is tried again after half a second, or after the delay that the server asks for.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: Callable[[float], int]) -> None:
        self.now = 1000.0
        self.began = self.now
        self.limit = limit
        self.latency: Callable[[], float] = lambda: 0.05
        self.rejection: CallResult = "busy"
        self.retry_after_s: float | None = None
        self.find_retry_after_s: Callable[[], float | None] = lambda: self.retry_after_s
        self.failure_rate = 0.0
        self.timer_delay_s = 0.0
        """How late the timers of the event loop are."""

        self.queues = False
        self.active = 0
        self.answers: list[float] = []
        self.sent: list[float] = []
        self.rejected = 0
        self.limiter: ConcurrencyLimiter
        self._waiting: list[_Call] = []
        self._random = random.Random(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        for module in (concurrency, counting_periods, rate_limits, window_limits):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        loop = SimpleNamespace(call_later=self._call_later)
        monkeypatch.setattr(concurrency, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))

    def _call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        self._number += 1
        state = {"cancelled": False}
        run = lambda: None if state["cancelled"] else callback()  # noqa: E731
        heapq.heappush(self._events, (self.now + delay + self.timer_delay_s, self._number, run))
        return SimpleNamespace(cancel=lambda: state.update(cancelled=True))

    def accept_in_periods(self, period_s: float, quota: Callable[[float], int]) -> None:
        """Accept so many calls in each period, whose number depends on the time of the simulation."""
        counts: dict[int, int] = {}

        def accept(elapsed: float) -> int:
            number = int(elapsed // period_s)
            counts[number] = counts.get(number, 0) + 1
            if counts[number] <= quota(elapsed):
                return self.active + 1
            counts[number] -= 1
            return 0

        self.limit = accept

    def accept_in_periods_of_calls(self, period_s: float, quota: int) -> None:
        """Accept so many calls in each period, which begins with a call. `Retry-After` is the rest of it in whole seconds."""
        began, count = -period_s, 0

        def accept(elapsed: float) -> int:
            nonlocal began, count
            if elapsed >= began + period_s:
                began, count = elapsed, 0
            count += 1
            return self.active + 1 if count <= quota else 0

        self.limit = accept
        self.find_retry_after_s = lambda: float(math.ceil(began + period_s - (self.now - self.began)))

    def accept_in_sliding_windows(self, window_s: float, quota: Callable[[float], int]) -> None:
        """Accept so many calls in each window, whenever it begins."""
        accepted: deque[float] = deque()

        def accept(elapsed: float) -> int:
            while accepted and accepted[0] <= elapsed - window_s:
                accepted.popleft()
            if len(accepted) >= quota(elapsed):
                return 0
            accepted.append(elapsed)
            return self.active + 1

        self.limit = accept

    def receive(self, call: _Call) -> None:
        self.sent.append(self.now)
        fails = self._random.random() < self.failure_rate
        is_full = fails or self.active >= self.limit(self.now - self.began)
        if fails or (is_full and not self.queues):
            self.rejected += 1
            retry_after_s = self.find_retry_after_s()
            self._call_later(0.001, lambda: self._reject(call, retry_after_s))
        elif is_full:
            self._waiting.append(call)
            call.started_at = self.now  # type: ignore[attr-defined]
        else:
            self._begin(call, self.now)

    def _begin(self, call: _Call, sent_at: float) -> None:
        self.active += 1
        self._call_later(self.latency(), lambda: self._answer(call, sent_at))

    def _answer(self, call: _Call, sent_at: float) -> None:
        self.active -= 1
        self.answers.append(self.now)
        while self._waiting and self.active < self.limit(self.now - self.began):
            waiting = self._waiting.pop(0)
            self._begin(waiting, waiting.started_at)  # type: ignore[attr-defined]
        self.limiter.release(call.ticket, "ok", self.now - sent_at)

    def _reject(self, call: _Call, retry_after_s: float | None) -> None:
        self.limiter.release(call.ticket, self.rejection, 0.001, retry_after_s=retry_after_s)
        self._call_later(retry_after_s or 0.5, lambda: self.limiter.enqueue(_Call(self)))

    def serve(self, limiter: ConcurrencyLimiter, seconds: float) -> None:
        """Let a client send calls without end for this time."""
        self.limiter = limiter
        for _ in range(3000):
            limiter.enqueue(_Call(self))
        end = self.now + seconds
        while self._events and self._events[0][0] < end:
            self.now, _, callback = heapq.heappop(self._events)
            callback()
            while limiter.queued < 1000:
                limiter.enqueue(_Call(self))
        self.now = end

    def finish(self, limiter: ConcurrencyLimiter, count: int, open_calls: int = 2048) -> float:
        """Let a client send this many calls, with at most `open_calls` in flight or queued; return the seconds it takes."""
        self.limiter, opened = limiter, 0
        while len(self.answers) < count:
            while opened < min(count, len(self.answers) + open_calls):
                limiter.enqueue(_Call(self))
                opened += 1
            self.now, _, callback = heapq.heappop(self._events)
            callback()
        return self.now - self.began

    def measure_rate(self, begin: float, end: float) -> float:
        """Return the answers per second between two times of the simulation."""
        return sum(begin <= one - self.began < end for one in self.answers) / (end - begin)
