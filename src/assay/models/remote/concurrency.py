"""Adaptive concurrency limit and rate limits.

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
from statistics import median
from typing import Any, Literal, TypeVar

__all__ = [
    "INITIAL_CONCURRENCY",
    "CallResult",
    "ConcurrencyLimiter",
    "RateLimit",
    "TokenBucket",
    "Waiter",
    "WindowLimit",
    "find_longest_pause_s",
    "get_rate_limit",
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

_FIRST_PAUSE_S = 0.1
_PAUSE_GROWTH = 1.5
_MAX_LEARNED_PAUSE_S = 5.0
_MAX_LEARNED_AGE_S = 60.0
"""A learned rate is dropped after this time without a rejection."""


_SHARE_WEIGHT = 1 / 16
_MIN_ACCEPTED_SHARE = 0.75
"""Above its limit a server rejects most calls, because rejected ones are replaced at once."""

_RATE_GROWTH_PER_S = 0.02
_MAX_RATE_GROWTH_PER_S = 0.2
"""How fast a learned rate is raised while the server rejects nothing; the growth itself grows with the seconds since the last rejection."""

_LEARNED_BURST_S = 0.1
"""Calls of this time can be sent at once with a learned rate, because timers and a busy event loop are late."""

_WINDOW_S = 60.0
_WINDOW_MARGIN_S = 0.5
"""Calls take different times to reach the server, so that its minute can contain calls that were sent in a longer time."""


class WindowLimit:
    """A limit for calls or tokens per minute that no minute exceeds, whenever it begins. Allows a burst of about one second."""

    def __init__(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self.rate = per_minute / _WINDOW_S
        self._burst = TokenBucket(self.rate)
        self._sent: deque[list[float]] = deque()
        """Time and amount of what was sent in the last minute."""

        self._estimated: dict[float, deque[list[float]]] = {}
        """The same, by amount, for estimates that can be corrected."""

        self._total = 0.0

    def wait_s(self, amount: float) -> float:
        """Return the seconds until `amount` may be sent; an amount above the limit waits for an empty window."""
        now = time.monotonic()
        while self._sent and self._sent[0][0] <= now - _WINDOW_S - _WINDOW_MARGIN_S:
            self._total -= self._sent.popleft()[1]
        if not self._sent:
            self._estimated.clear()
        wait = self._burst.wait_s(amount)
        excess = self._total + min(amount, self.per_minute) - self.per_minute
        if excess <= 1e-9:
            return wait
        for sent_at, sent in self._sent:
            excess -= sent
            if excess <= 1e-9:
                return max(wait, sent_at + _WINDOW_S + _WINDOW_MARGIN_S - now)
        return max(wait, _WINDOW_S)

    def take(self, amount: float) -> None:
        """Count an amount that is being sent."""
        self._burst.take(amount)
        self._total += amount
        sent = [time.monotonic(), amount]
        self._sent.append(sent)
        self._estimated.setdefault(amount, deque()).append(sent)

    def correct(self, estimated: float, used: float) -> None:
        """Replace an amount by the actual one: the oldest of several equal ones, which leaves the window first."""
        self._burst.take(used - estimated)
        if candidates := self._estimated.get(estimated):
            sent = candidates.popleft()
            if self._sent and sent[0] >= self._sent[0][0]:
                sent[1] = used
                self._total += used - estimated


class TokenBucket:
    """A token bucket. It holds what accumulates in one second, unless `capacity` is given."""

    def __init__(self, per_second: float, capacity: float | None = None) -> None:
        self.rate = per_second
        self._capacity = max(per_second, 1.0) if capacity is None else capacity
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
    """Rate limit of one server: pauses it asked for, the rate it was seen to accept, and the user's limits per minute."""

    def __init__(self) -> None:
        self.requests: WindowLimit | None = None
        self.tokens: WindowLimit | None = None
        self.learned: TokenBucket | None = None
        """The rate that the server accepts, if it rejects calls and does not say when to try again."""

        self._paused_until = 0.0
        self._accepted = 0
        """Calls that the server accepted since it last accepted calls again after rejections."""

        self._elapsed_s = 0.0
        """How long that took, up to the last reply; longer breaks between two replies do not count."""

        self._replied_at = 0.0
        self._rejected_at = 0.0
        self._pauses = 0
        """Pauses in a row that were too short."""

    def set_limits(self, rpm: float | None, tpm: float | None) -> None:
        """Set limits per minute; the smallest limit of several models applies."""
        if rpm is not None and (self.requests is None or rpm < self.requests.per_minute):
            self.requests = WindowLimit(rpm)
        if tpm is not None and (self.tokens is None or tpm < self.tokens.per_minute):
            self.tokens = WindowLimit(tpm)

    def pause(self, seconds: float) -> None:
        """Send no calls for this many seconds."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def count_accepted(self, seconds: float = 0.0) -> None:
        """Count a call that the server accepted and answered in so many seconds; try a higher rate than the learned one."""
        now = time.monotonic()
        if self._pauses and now - seconds >= self._rejected_at:  # sent after the rejections, not before them
            self._learn_rate()
            self._accepted, self._elapsed_s, self._pauses = 0, 0.0, 0
        else:
            self._count_time(now)
        self._replied_at = now
        self._accepted += 1
        if self.learned is not None:
            age_s = now - self._rejected_at
            growth = min(_RATE_GROWTH_PER_S * max(age_s, 1.0), _MAX_RATE_GROWTH_PER_S)
            self.learned.rate += growth  # per call, so in one second by this share of the rate
            if age_s > _MAX_LEARNED_AGE_S:
                self.learned = None

    def slow_down(self) -> None:
        """Pause after rejections that do not say how long, and learn the rate.

        A server that counts calls in periods accepts none until its period ends. So the rate is what it accepted, divided by
        the time until the last rejection. The pause after this rejection does not count: it can be longer than necessary.
        """
        now = time.monotonic()
        self.pause(min(_FIRST_PAUSE_S * _PAUSE_GROWTH**self._pauses, _MAX_LEARNED_PAUSE_S))
        self._count_time(now)
        if not self._pauses and self._rejected_at:
            self._learn_rate()
        self._pauses += 1
        self._rejected_at = now

    def _count_time(self, now: float) -> None:
        if self._replied_at:
            self._elapsed_s += min(now - self._replied_at, 2 * _MAX_LEARNED_PAUSE_S)
        self._replied_at = now

    def _learn_rate(self) -> None:
        if self._accepted and self._elapsed_s > 1.0:
            rate = max(self._accepted / self._elapsed_s, 1 / _MAX_LEARNED_PAUSE_S)
            self.learned = TokenBucket(rate, capacity=max(1.0, rate * _LEARNED_BURST_S))

    @property
    def pause_s(self) -> float:
        """Seconds until the end of the pause that the server asked for; 0: none."""
        return max(0.0, self._paused_until - time.monotonic()) if self._paused_until else 0.0

    def wait_s(self, tokens: int) -> float:
        """Return the seconds until a call may be sent; 0: now."""
        if not self._paused_until and self.requests is None and self.tokens is None and self.learned is None:
            return 0.0
        wait = self._paused_until - time.monotonic()
        if wait <= 0:
            self._paused_until = wait = 0.0
        if self.requests is not None:
            wait = max(wait, self.requests.wait_s(1))
        if self.tokens is not None:
            wait = max(wait, self.tokens.wait_s(tokens))
        if self.learned is not None:
            wait = max(wait, self.learned.wait_s(1))
        return wait

    def take(self, tokens: int) -> None:
        """Count a call that is being sent."""
        if self.requests is not None:
            self.requests.take(1)
        if self.tokens is not None:
            self.tokens.take(tokens)
        if self.learned is not None:
            self.learned.take(1)

    def count_delayed(self, tokens: int, delay_s: float) -> None:
        """Count a call again if it was sent long after `take`, because the connection took that long to open."""
        if delay_s < _WINDOW_MARGIN_S / 2:
            return
        if self.requests is not None:
            self.requests.take(1)
        if self.tokens is not None:
            self.tokens.take(tokens)

    def correct_tokens(self, estimated: int, used: int) -> None:
        """Replace the estimated token count of a call by the actual one."""
        if self.tokens is not None:
            self.tokens.correct(estimated, used)


_rate_limits: dict[str, RateLimit] = {}


def get_rate_limit(origin: str) -> RateLimit:
    """Return the rate limit of a server, one object per process."""
    return _rate_limits.setdefault(origin, RateLimit())


def find_longest_pause_s() -> float:
    """Return the seconds until the last paused server accepts calls again; 0 if no server is paused."""
    return max((limit.pause_s for limit in list(_rate_limits.values())), default=0.0)


class Waiter:
    """A call that waits for a slot; the limiter calls `start` once."""

    __slots__ = ("started", "tokens")

    def __init__(self, tokens: int = 0) -> None:
        self.tokens = tokens
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
        """The limit before a pause of unknown length. Few calls are sent after the pause until one is accepted."""

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
            self._queue.remove(waiter)

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
            self.rate_limit.take(waiter.tokens)
            self.in_flight += 1
            if self._streak is not None:
                self._streak.sent += 1
            waiter.started = True
            waiter.start(self._epoch)

    def release(
        self, ticket: int, result: CallResult, seconds: float = 0.0, *, retry_after_s: float | None = None
    ) -> None:
        """Free the slot of a finished call and adapt the limit to its result."""
        self.in_flight -= 1
        match result:
            case "ok":
                self._on_answer(ticket, seconds)
            case "busy":
                self._on_rejection(ticket, retry_after_s)
            case "refused":
                self._lower_to_calls_in_flight(ticket)
            case "late" if ticket == self._epoch:
                self._lower(max(min(2.0, self.limit), self.limit * 0.7))
                self._proven_limit = min(self._proven_limit, self.limit)
            case _:
                pass
        self._start_next()

    # --- rejections ---------------------------------------------------------------------------

    def _on_rejection(self, ticket: int, retry_after_s: float | None) -> None:
        """Lower the limit. If the server rejects calls however few are in flight, wait instead."""
        streak = self._streak
        if streak is None or streak.sent - streak.rejected >= _REJECTIONS_OF_A_RATE_LIMIT:
            streak = self._streak = _RejectionStreak(self._epoch + 1)
        else:
            streak.rejected += ticket >= streak.first_ticket
        is_alone = not self.in_flight and (streak.rejected or retry_after_s is not None)
        if not is_alone and streak.rejected < _REJECTIONS_OF_A_RATE_LIMIT:
            self._lower_to_calls_in_flight(ticket)
            return
        self._streak = None
        self._epoch += 1
        self._round = _Round()
        self._limit_after_pause = max(self._limit_after_pause, self.limit, self._proven_limit)
        if retry_after_s is None:
            self.rate_limit.slow_down()
            self.limit = max(1.0, self._limit_after_pause // 8)
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
        self._accepted_share += (1.0 - self._accepted_share) * _SHARE_WEIGHT
        self._accepted_in_a_row += 1
        if self.limit < self._proven_limit and self._accepted_in_a_row >= self.limit:
            self.limit = self._proven_limit
            self._accepted_in_a_row = 0
        self.rate_limit.count_accepted(seconds)
        if self._streak is not None and ticket >= self._streak.first_ticket:
            self._streak = None
        if ticket == self._epoch and self._limit_after_pause:
            self.limit = max(self.limit, self._limit_after_pause)
            self._limit_after_pause = 0.0
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
