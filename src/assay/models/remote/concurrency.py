"""Adaptive concurrency limit.

The limit grows while the server keeps up and shrinks when the server rejects calls, refuses connections or times out.

    limiter = ConcurrencyLimiter(max_concurrency=32)
    limiter.enqueue(waiter)                       # calls waiter.start(ticket) when a slot is free
    limiter.release(ticket, "ok", seconds=0.4)    # or "busy", "refused", "late", "failed"; starts the next waiter

All models that call the same server share its rate limit; each model has its own concurrency limiter.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Literal, TypeVar

from assay.models.remote.rate_limits import RateLimit, Reservation, is_rounded_delay

__all__ = [
    "INITIAL_CONCURRENCY",
    "CallResult",
    "ConcurrencyLimiter",
    "Waiter",
    "iterate_completed",
]

T = TypeVar("T")

CallResult = Literal["ok", "busy", "refused", "late", "failed"]
"""`busy`: the server rejected the call; `refused`: it accepted no further connection; `late`: no reply in time."""

INITIAL_CONCURRENCY = 8
"""Initial number of concurrent calls to an unknown server."""

_MAX_SLOWDOWN = 2.0
"""A latency above this multiple of the best one, without more throughput, means that the server is saturated."""

_SLOW_ROUNDS = 3
"""So many rounds in a row must be slow, because the latencies of a few answers vary."""

_MIN_SPEEDUP_TO_GROW = 1.05
"""Smallest relative gain in throughput that justifies a higher limit."""

_MIN_PROBE_INTERVAL_S = 0.25
_MAX_PROBE_INTERVAL_S = 2.0
"""How long the limit stays after a rejection before a higher one is tried. Doubles with each attempt that fails."""

_MIN_QUEUED_S_TO_PROBE = 1.0
"""A rejected call is retried after about this time. If the queue ends sooner and gets no further calls, all would wait for it."""

_REJECTIONS_OF_A_RATE_LIMIT = 3
"""If the server rejects this many calls that were sent after a rejection, all but fewer than this, it limits their rate."""

_REJECTION_TIMES_TO_WAIT = 4
_MIN_PROBE_WAIT_S = 0.005
"""A call after a pause counts as accepted if it is not rejected within this multiple of the average time, plus the minimum."""

_SHARE_WEIGHT = 1 / 16
_MIN_ACCEPTED_SHARE = 0.75
"""Above its limit a server rejects most calls, because rejected ones are replaced at once."""


class Waiter:
    """A call that waits for a slot; the limiter calls `start` once."""

    __slots__ = ("reservation", "started", "tokens")

    def __init__(self, tokens: int = 0) -> None:
        self.tokens = tokens
        """The largest number of tokens that the call can use."""

        self.reservation: Reservation | None = None
        """What the call takes from the limits per minute, once it has started."""

        self.started = False

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


@dataclass(slots=True)
class _RejectionStreak:
    """What became of the calls that were sent after a rejection, while the server accepted none of them."""

    first_ticket: int
    limits: tuple[float, float, float]
    """The limit, the proven limit and the accepted share before the rejections, which say nothing about them if the rate is limited."""

    sent: int = 0
    rejected: int = 0


@dataclass(slots=True)
class _Round:
    """Replies since the last decision: as many as calls are allowed at once."""

    latencies: list[float] = field(default_factory=list)
    started_at: float = 0.0


class ConcurrencyLimiter:
    """Starts calls in order of arrival, as many at once as the server can handle.

    The limit doubles after each round of replies until the server rejects calls, or answers more slowly without answering
    more. The calls that are in flight when one is rejected are those that the server accepts, so they become the limit. From
    then on a higher limit is tried at intervals, first by one call, then by twice as many while it succeeds.
    """

    def __init__(
        self, max_concurrency: int, rate_limit: RateLimit | None = None, *, initial: int = INITIAL_CONCURRENCY
    ) -> None:
        self.max_concurrency = max(1, max_concurrency)
        self.limit = float(min(self.max_concurrency, initial))
        self.in_flight = 0
        self.rate_limit = rate_limit or RateLimit()
        self._queue: deque[Waiter] = deque()
        self._held = False
        self._timer: asyncio.TimerHandle | None = None
        """Runs while the rate limit delays the first waiter."""

        self._epoch = 0
        """Number of decreases; the ticket of a call. Calls sent before the last decrease say nothing about the new limit."""

        self._is_probing = False
        """Whether the server was ever overloaded: the limit no longer doubles, but is raised in steps at intervals."""

        self._step = 1.0
        self._interval_s = _MIN_PROBE_INTERVAL_S
        self._next_probe_at = 0.0
        self._accepted_share = 1.0
        """Moving average over the last calls."""

        self._proven_limit = 0.0
        """The highest limit at which the server accepted most calls. The limit returns to it after a round without rejections,
        so that failures at random do not lower it permanently."""

        self._accepted_in_a_row = 0

        self._streak: _RejectionStreak | None = None

        self._limit_after_pause = 0.0
        """The limit before a pause."""

        self._awaits_probe = False
        """Whether the length of the pause is unknown, so that one call is sent after it until the server accepts it."""

        self._rejection_s = 0.0
        """Moving average of the time until a rejection. A call that takes much longer is not rejected."""

        self._enqueued = 0
        """Calls enqueued since the last round ended, retries included."""

        self._round = _Round()
        self._best_latency = 0.0
        self._slow_rounds = 0
        self._last_rate = 0.0
        self._saturated: tuple[float, float] | None = None
        """Limit and latency when the server was last saturated."""

    @property
    def queued(self) -> int:
        """Number of calls that wait for a slot."""
        return len(self._queue)

    async def acquire(self, tokens: int = 0) -> int:
        """Wait for a slot. Pass the returned ticket to `release`."""
        waiter = _FutureWaiter(tokens)
        self.enqueue(waiter)
        try:
            return await waiter.ticket
        except asyncio.CancelledError:
            if waiter.started:  # the slot was assigned at the same moment
                self.in_flight -= 1
                self.rate_limit.cancel(waiter.reservation)
                self._start_next()
            else:
                self.withdraw_waiter(waiter)
            raise

    def enqueue(self, waiter: Waiter) -> None:
        """Call `waiter.start` when a slot is free: now, or inside the `release` of another call."""
        self._queue.append(waiter)
        self._enqueued += 1
        if len(self._queue) == 1:
            self._start_next()

    def hold(self, held: bool) -> None:
        """Start no calls while `held`; calls in flight continue."""
        self._held = held
        self._start_next()

    def withdraw_waiter(self, waiter: Waiter) -> None:
        """Remove a waiter that has not started."""
        if waiter in self._queue:
            is_first = self._queue[0] is waiter
            self._queue.remove(waiter)
            if is_first:  # the next one may need fewer tokens
                self._start_next()

    def _start_next(self) -> None:
        """Start waiters while there are slots and the rate limit allows it."""
        while not self._held and self._queue and self.in_flight < int(self.limit):
            waiter = self._queue[0]
            if waiter.is_cancelled():
                self._queue.popleft()
                continue
            wait_s = self.rate_limit.wait_s(waiter.tokens)
            if wait_s > 1e-6:  # less is a rounding error, for which no timer runs
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._start_next)
                return
            self._queue.popleft()
            waiter.reservation = self.rate_limit.take(waiter.tokens)
            self.in_flight += 1
            if self._streak is not None:
                self._streak.sent += 1
            waiter.started = True
            waiter.start(self._epoch)
            if self._awaits_probe:
                delay_s = _REJECTION_TIMES_TO_WAIT * self._rejection_s + _MIN_PROBE_WAIT_S
                probe = partial(self._resume_after_probe, self._epoch, time.monotonic())
                asyncio.get_running_loop().call_later(delay_s, probe)

    def _resume_after_probe(self, epoch: int, sent_at: float) -> None:
        """Return to the limit before a pause, if the call after it was not rejected; its answer can take long."""
        if epoch == self._epoch and self._awaits_probe:
            self.rate_limit.resume(sent_at)
            self._restore_limit()
            self._start_next()

    def _restore_limit(self) -> None:
        self.limit = max(self.limit, self._limit_after_pause)
        self._limit_after_pause, self._awaits_probe = 0.0, False

    def release(
        self, ticket: int, result: CallResult, seconds: float = 0.0, *, retry_after_s: float | None = None
    ) -> None:
        """Free the slot of a finished call and adapt the limit to its result."""
        self.in_flight -= 1
        match result:
            case "ok":
                self._on_answer(ticket, seconds)
            case "busy":
                self._on_rejection(ticket, seconds, retry_after_s)
            case "refused":
                self._lower_to_calls_in_flight(ticket)
            case "late" if ticket == self._epoch:
                self._lower(max(min(2.0, self.limit), self.limit * 0.7))
                self._proven_limit = min(self._proven_limit, self.limit)
            case _:
                pass
        self._start_next()

    def settle(self, reservation: Reservation | None, used: int | None) -> None:
        """End the reservation of a call with the tokens that it used, and start calls that waited for tokens."""
        if reservation is not None:
            self.rate_limit.settle(reservation, used)
            self._start_next()

    # --- rejections ---------------------------------------------------------------------------

    def _on_rejection(self, ticket: int, seconds: float, retry_after_s: float | None) -> None:
        """Lower the limit. If the server rejects calls however few are in flight, wait instead."""
        self.rate_limit.count_rejected()
        self._rejection_s += (seconds - self._rejection_s) * (_SHARE_WEIGHT if self._rejection_s else 1.0)
        if self._awaits_probe and ticket < self._epoch:
            return  # it was sent before the pause
        streak = self._streak
        if streak is None or streak.sent - streak.rejected >= _REJECTIONS_OF_A_RATE_LIMIT:
            limits = (self.limit, self._proven_limit, self._accepted_share)
            streak = self._streak = _RejectionStreak(self._epoch + 1, limits)
        else:
            streak.rejected += ticket >= streak.first_ticket
        is_alone = not self.in_flight and (streak.rejected or retry_after_s is not None)
        is_rough = retry_after_s is None or is_rounded_delay(retry_after_s)
        is_expected = is_rough and (self._awaits_probe or self.rate_limit.has_used_quota)
        if not is_alone and not is_expected and streak.rejected < _REJECTIONS_OF_A_RATE_LIMIT:
            self._lower_to_calls_in_flight(ticket)
            return
        self._streak = None
        self._epoch += 1
        self._round = _Round()
        limit, self._proven_limit, self._accepted_share = streak.limits
        self._limit_after_pause = max(self._limit_after_pause, limit, self._proven_limit)
        if retry_after_s is None or is_rough:
            self.rate_limit.slow_down(retry_after_s)
            self.limit, self._awaits_probe = 1.0, True
        else:
            self.rate_limit.pause(retry_after_s)
            self.limit = self._limit_after_pause

    def _lower_to_calls_in_flight(self, ticket: int) -> None:
        self._accepted_share -= self._accepted_share * _SHARE_WEIGHT
        self._accepted_in_a_row = 0
        if self.limit > self._proven_limit and ticket == self._epoch:
            self._interval_s = min(2 * self._interval_s, _MAX_PROBE_INTERVAL_S)
            self._next_probe_at = time.monotonic() + self._interval_s
        self._lower(min(self.limit, max(1.0, float(self.in_flight))))
        if self._accepted_share < _MIN_ACCEPTED_SHARE:
            self._proven_limit = min(self._proven_limit, self.limit)

    def _lower(self, limit: float) -> None:
        self.limit = limit
        self._epoch += 1
        self._is_probing, self._step = True, 1.0
        self._round = _Round()

    # --- answers ------------------------------------------------------------------------------

    def _on_answer(self, ticket: int, seconds: float) -> None:
        """After each full round of replies, check whether more concurrency increased the throughput."""
        now = time.monotonic()
        if self._awaits_probe and ticket < self._epoch:  # it was sent before the pause
            self.rate_limit.count_accepted(seconds)
            return
        self._accepted_share += (1.0 - self._accepted_share) * _SHARE_WEIGHT
        self._accepted_in_a_row += 1
        if self.limit < self._proven_limit and self._accepted_in_a_row >= self.limit:
            self.limit = self._proven_limit
            self._accepted_in_a_row = 0
        self.rate_limit.count_accepted(seconds)
        if self._streak is not None and ticket >= self._streak.first_ticket:
            self._streak = None
        if ticket == self._epoch and self._limit_after_pause:
            self._restore_limit()
        current = self._round
        if not current.latencies:
            current.started_at = current.started_at or now - seconds
        current.latencies.append(seconds)
        if len(current.latencies) < self.limit:
            return
        rate = len(current.latencies) / max(now - current.started_at, 1e-6)
        self._end_round(now, rate, median(current.latencies))  # a few long answers do not mean a slow server
        self._last_rate = rate
        self._round = _Round(started_at=now)

    def _end_round(self, now: float, rate: float, latency: float) -> None:
        self._best_latency = min(self._best_latency or latency, latency)
        if self._accepted_share > _MIN_ACCEPTED_SHARE:
            self._proven_limit = max(self._proven_limit, self.limit)
        if latency > _MAX_SLOWDOWN * self._best_latency and rate < _MIN_SPEEDUP_TO_GROW * self._last_rate:
            self._slow_rounds += 1
            if self._slow_rounds >= _SLOW_ROUNDS:
                self._on_saturation(now, latency)
            return
        self._slow_rounds = 0
        is_fed, self._enqueued = 2 * self._enqueued > self.limit, 0
        if not self._is_probing:
            self.limit = min(float(self.max_concurrency), self.limit * 2)
        elif now >= self._next_probe_at and (is_fed or len(self._queue) > _MIN_QUEUED_S_TO_PROBE * rate):
            self._next_probe_at = now if self.limit < self.max_concurrency else now + self._interval_s
            self.limit = min(float(self.max_concurrency), self.limit + self._step)
            if self._step > 1.0:  # the step before succeeded
                self._interval_s = _MIN_PROBE_INTERVAL_S
            self._step *= 2

    def _on_saturation(self, now: float, latency: float) -> None:
        """Lower the limit, unless that did not help before: then answers take longer for another reason."""
        if self._saturated is not None:
            limit, before = self._saturated
            if self.limit < 0.5 * limit and latency > 0.8 * before:
                self._best_latency, self._saturated = latency, None
                return
        if self._saturated is None or self.limit > self._saturated[0]:
            self._saturated = (self.limit, latency)
        self._interval_s = min(2 * self._interval_s, _MAX_PROBE_INTERVAL_S)
        self._is_probing, self._step = True, 1.0
        self._next_probe_at = now + self._interval_s
        self.limit = max(1.0, self.limit * 0.9)
        self._proven_limit = min(self._proven_limit, self.limit)


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
