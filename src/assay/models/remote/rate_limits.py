"""Rate limits of a server: the user's limits per minute, pauses that the server asks for, and the rate it was seen to accept.

    limit = get_rate_limit("https://api.example.com")
    limit.set_limits(rpm=None, tpm=60_000)
    limit.wait_s(tokens)                       # seconds until a call that uses at most `tokens` may be sent
    reservation = limit.take(tokens)           # the call is being sent
    limit.settle(reservation, used)            # the reply reports its tokens: the difference is returned

A service may count the tokens of a call when it arrives or when it ends, and in windows that begin at any time. So a call
counts with the largest number of tokens it can use until its reply, and with the actual number for a minute after it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Literal

from assay.models.remote.counting_periods import FIRST_PAUSE_S, PERIODS_TO_REMEMBER, PeriodEstimate
from assay.models.remote.window_limits import WINDOW_MARGIN_S, TokenBucket, WindowEntry, WindowLimit

__all__ = [
    "RateLimit",
    "Reservation",
    "TokenCounting",
    "find_longest_pause_s",
    "get_rate_limit",
    "is_rounded_delay",
]

_LOG = logging.getLogger(__name__)

TokenCounting = Literal["used", "requested"]
"""What a service counts: the tokens that a call used, or those that it could use, when it arrives (OpenAI, Azure)."""

_PAUSE_GROWTH = 1.5
_MAX_LEARNED_PAUSE_S = 5.0
_MAX_LEARNED_AGE_S = 60.0
"""A learned rate is dropped after this time without a rejection."""


_RATE_GROWTH_PER_S = 0.02
_MAX_RATE_GROWTH_PER_S = 0.2
"""How fast a learned rate is raised while the server rejects nothing; the growth itself grows with the seconds since the last rejection."""

_MAX_FAST_GROWTH_PER_S = 0.5
"""It grows with their square if nothing was rejected for longer than the time from which the rate was learned."""

_MAX_LEARNING_S = 15.0
"""A rate is learned from the duration of a period if that is known, up to this time."""

_MAX_ROUNDED_S = 10.0
"""A delay of whole seconds up to this one is rounded up by a considerable share of it."""

_PERIOD_PACE = 2.0
"""A period's calls are sent in half of it: a larger quota is then noticed, and used, within the period."""

_LEARNED_BURST_S = 0.1
"""Calls of this time can be sent at once with a learned rate, because timers and a busy event loop are late."""


class Reservation:
    """What a call takes from the limits per minute, until it is settled or cancelled once."""

    __slots__ = ("is_open", "requests", "tokens")

    def __init__(self, requests: WindowEntry | None, tokens: WindowEntry | None) -> None:
        self.requests = requests
        self.tokens = tokens
        self.is_open = True


class RateLimit:
    """Rate limit of one server: pauses it asked for, the rate it was seen to accept, and the user's limits per minute."""

    def __init__(self) -> None:
        self.requests: WindowLimit | None = None
        self.tokens: WindowLimit | None = None
        self.counting: TokenCounting = "used"
        self.learned: TokenBucket | None = None
        """The rate that the server accepts, if it rejects calls and does not say when to try again."""

        self._has_warned = False
        self._paused_until = 0.0
        self._accepted = 0
        """Calls that the server accepted since it last accepted calls again after rejections."""

        self._elapsed_s = 0.0
        """How long that took, up to the last reply; longer breaks between two replies do not count."""

        self._replied_at = 0.0
        self._rejected_at = 0.0
        self._pauses = 0
        """Pauses in a row that were too short."""

        self._period = PeriodEstimate()
        self._period_rate = 0.0
        """The rate of the last known period."""

        self._promised_at = 0.0
        """The earliest time at which the server promised to accept calls."""

        self._is_delay_constant = False
        """Whether the server asked for the same delay again, so that it is rather overloaded than limiting a rate."""

        self._learning_s = 0.0
        """The rate is learned from at least this time: the duration of the last known period, because calls that were sent
        together also expire together."""

        self._backoffs = 0
        """Pauses in a row that grew."""

    def set_limits(
        self,
        rpm: float | None,
        tpm: float | None,
        *,
        counting: TokenCounting = "used",
        counts_at_start: bool = False,
    ) -> None:
        """Set limits per minute; the smallest limit of several models applies.

        `counts_at_start`: whether the service is known to count the tokens of a call when it arrives.
        """
        if rpm is not None:
            if self.requests is None:
                self.requests = WindowLimit(rpm)
            elif rpm < self.requests.per_minute:
                self.requests.lower(rpm)
        if tpm is not None:
            if self.tokens is None:
                self.counting = counting
                self.tokens = WindowLimit(tpm, until_reply=counting == "used" and not counts_at_start)
            elif tpm < self.tokens.per_minute:
                self.tokens.lower(tpm)

    def pause(self, seconds: float) -> None:
        """Send no calls for this many seconds."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def count_accepted(self, seconds: float = 0.0) -> None:
        """Count a call that the server accepted and answered within `seconds`; try a higher rate than the learned one."""
        now = time.monotonic()
        if self._pauses and now - seconds >= self._rejected_at:  # sent after the rejections, not before them
            self.resume(now - seconds)
        else:
            self._count_time(now)
        self._replied_at = now
        self._accepted += 1
        if self.learned is None:
            return
        age_s = now - self._rejected_at
        if not self._period.duration_s:
            slow = min(_RATE_GROWTH_PER_S * max(age_s, 1.0), _MAX_RATE_GROWTH_PER_S)
            fast = min(_RATE_GROWTH_PER_S * max(age_s - self._learning_s, 0.0) ** 2, _MAX_FAST_GROWTH_PER_S)
            self.learned.rate += max(slow, fast)  # per call, so in one second by this share of the rate
        if age_s > max(_MAX_LEARNED_AGE_S, PERIODS_TO_REMEMBER * self._period.duration_s):
            self.learned = None

    def count_rejected(self) -> None:
        """Count a call that the server rejected."""
        self._period.count_rejected()

    @property
    def has_used_quota(self) -> bool:
        """Whether the server is known to count calls in periods, and accepted as many as in the last one."""
        return self._period.is_used

    def slow_down(self, retry_after_s: float | None = None) -> None:
        """Pause after rejections that do not say exactly how long, and learn the rate.

        `retry_after_s`: a delay that the server has rounded up to whole seconds, so that the actual one is up to a second
        shorter.

        A server that counts calls in periods accepts none until its period ends. Until its duration is known, the rate is what
        the server accepted, divided by the time until the last rejection. The pause after this rejection does not count: it
        can be longer than necessary.
        """
        now = time.monotonic()
        backoff_s = min(FIRST_PAUSE_S * _PAUSE_GROWTH**self._backoffs, _MAX_LEARNED_PAUSE_S)
        pause_s = self._period.find_pause_s(now, backoff_s)
        self._backoffs += pause_s is None or pause_s == backoff_s or not self._period.duration_s
        pause_s = backoff_s if pause_s is None else pause_s
        if retry_after_s:
            pause_s = self._limit_pause_s(now, pause_s, retry_after_s)
        self.pause(pause_s)
        self._count_time(now)
        if not self._pauses and self._rejected_at:
            self._learn_rate()
        self._pauses += 1
        self._rejected_at = now

    def _limit_pause_s(self, now: float, pause_s: float, retry_after_s: float) -> float:
        """Return a pause that ends in the second before the server promised to accept calls.

        If a later rejection promises a later time, the delay is not what remains of a period.
        """
        promised_at = now + retry_after_s
        self._is_delay_constant |= self._pauses > 0 and promised_at > self._promised_at + 1.0
        if self._pauses and now < self._promised_at:
            promised_at = min(self._promised_at, promised_at)
        self._promised_at = promised_at
        left_s = promised_at - now
        can_end_earlier = self._period.is_likely and not self._is_delay_constant
        return min(max(pause_s, left_s - 1.0), left_s) if can_end_earlier else left_s

    def resume(self, sent_at: float) -> None:
        """Send calls again after pauses, because the server accepted a call."""
        if not self._pauses:
            return
        if self._period.duration_s:
            self._period_rate = self._period.accepted_rate
            self._learning_s = min(self._period.duration_s, _MAX_LEARNING_S)
        may_be_larger = self._period.begin(
            sent_at, self._rejected_at, 0 if self._is_delay_constant else self._pauses
        )
        if may_be_larger:
            self.learned = None
        elif (
            self._period_rate and not self._period.rate
        ):  # the server does not count in periods, but accepted this rate
            self._set_learned_rate(self._period_rate)
            self._period_rate = 0.0
            self._accepted, self._elapsed_s = 0, 0.0
        elif not self._is_delay_constant:
            self._learn_rate()
        self._is_delay_constant = False
        if self._period.duration_s or self._elapsed_s >= self._learning_s:
            self._accepted, self._elapsed_s = 0, 0.0
        self._pauses = self._backoffs = 0

    def _count_time(self, now: float) -> None:
        if self._replied_at:
            self._elapsed_s += min(now - self._replied_at, 2 * _MAX_LEARNED_PAUSE_S)
        self._replied_at = now

    def _learn_rate(self) -> None:
        if self._period.rate:
            self._set_learned_rate(_PERIOD_PACE * self._period.rate)
        elif self._accepted and self._elapsed_s > max(1.0, self._learning_s):
            self._set_learned_rate(max(self._accepted / self._elapsed_s, 1 / _MAX_LEARNED_PAUSE_S))

    def _set_learned_rate(self, rate: float) -> None:
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

    def take(self, tokens: int) -> Reservation | None:
        """Count a call that is being sent, with the largest number of tokens it can use."""
        is_quota_larger = self._period.count_sent()
        if self.learned is not None:
            self.learned.take(1)
            if is_quota_larger:
                self.learned = None
        if self.requests is None and self.tokens is None:
            return None
        if self.tokens is not None and tokens > self.tokens.per_minute and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "a call may use %d tokens, more than the limit of %g per minute (`tpm`): such calls are sent alone",
                tokens,
                self.tokens.per_minute,
            )
        return Reservation(
            self.requests.take(1) if self.requests is not None else None,
            self.tokens.take(tokens) if self.tokens is not None else None,
        )

    async def acquire(self, tokens: int) -> Reservation | None:
        """Wait until a call may be sent, and count it."""
        while (wait_s := self.wait_s(tokens)) > 1e-6:
            await asyncio.sleep(wait_s)
        return self.take(tokens)

    def count_delayed(self, reservation: Reservation | None, delay_s: float) -> None:
        """Count a call from now on if it is sent long after `take`, because its connection took that long to open."""
        if reservation is None or delay_s < WINDOW_MARGIN_S / 2:
            return
        if self.requests is not None and reservation.requests is not None:
            self.requests.restart(reservation.requests)
        if self.tokens is not None and reservation.tokens is not None:
            self.tokens.restart(reservation.tokens)

    def settle(self, reservation: Reservation | None, used: int | None) -> None:
        """End the reservation of a call with the tokens that it used; None: unknown, all that it reserved."""
        if reservation is None or not reservation.is_open:
            return
        reservation.is_open = False
        if self.tokens is not None and reservation.tokens is not None:
            self.tokens.settle(reservation.tokens, used)

    def reject(self, reservation: Reservation | None) -> None:
        """End the reservation of a call that the server rejected: it used no tokens, but may count those requested."""
        self.settle(reservation, 0 if self.counting == "used" else None)

    def cancel(self, reservation: Reservation | None) -> None:
        """Return the reservation of a call that was not sent."""
        if reservation is None or not reservation.is_open:
            return
        reservation.is_open = False
        if self.requests is not None and reservation.requests is not None:
            self.requests.cancel(reservation.requests)
        if self.tokens is not None and reservation.tokens is not None:
            self.tokens.cancel(reservation.tokens)


_rate_limits: dict[str, RateLimit] = {}


def get_rate_limit(origin: str) -> RateLimit:
    """Return the rate limit of a server, one object per process."""
    return _rate_limits.setdefault(origin, RateLimit())


def is_rounded_delay(retry_after_s: float) -> bool:
    """Return whether the server may accept calls considerably earlier, because it has rounded the delay up to whole seconds."""
    return retry_after_s <= _MAX_ROUNDED_S and retry_after_s.is_integer()


def find_longest_pause_s() -> float:
    """Return the seconds until the last paused server accepts calls again; 0 if no server is paused."""
    return max((limit.pause_s for limit in list(_rate_limits.values())), default=0.0)
