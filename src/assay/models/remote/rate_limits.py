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
from collections import deque
from typing import Literal

__all__ = [
    "RateLimit",
    "Reservation",
    "TokenBucket",
    "TokenCounting",
    "WindowLimit",
    "find_longest_pause_s",
    "get_rate_limit",
    "is_rounded_delay",
]

_LOG = logging.getLogger(__name__)

TokenCounting = Literal["used", "requested"]
"""What a service counts: the tokens that a call used, or those that it could use, when it arrives (OpenAI, Azure)."""

_FIRST_PAUSE_S = 0.1
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

_LEARNED_BURST_S = 0.1
"""Calls of this time can be sent at once with a learned rate, because timers and a busy event loop are late."""

_WINDOW_S = 60.0
_WINDOW_MARGIN_S = 0.5
"""Calls take different times to reach the server, so that its minute can contain calls that were sent in a longer time."""


_MIN_PAUSES_OF_A_PERIOD = 3
"""If the server rejects a call after each of this many pauses, it counts calls in periods and the period is not over."""

_PERIODS_TO_REMEMBER = 3
_PERIOD_PACE = 2.0
"""A period's calls are sent in half of it: a larger quota is then noticed, and used, within the period."""

_MAX_QUOTA_GROWTH = 1.1
"""If a period accepts this multiple of the last one's calls, its quota is larger; calls are then sent as fast as possible."""

_MAX_PAUSE_SHARE = 0.1
"""The end of the first period is missed by at most this share of it."""

_MIN_PERIOD_S, _MIN_QUOTA = 0.5, 4
"""Smaller periods and quotas are learned as a rate."""

_MIN_USED_SHARE = 0.9
"""A rejection after this share of the quota means that the quota is used."""

_MIN_EARLY_SHARE = 0.8
"""If a period ends before this share of its expected duration, the estimate is wrong."""

_MIN_CONTINUOUS_SHARE = 0.5
_MAX_REST_SHARE = 0.5
_CONTINUOUS_S = 60.0
"""If it even ends before this share, or the next one accepts less than this share of its calls, calls expire one by one: no
periods are assumed for this time."""

_PROBE_SPACING_SHARE, _MIN_PROBE_SPACING_S = 1 / 100, 0.015
_PROBE_LEAD_SHARE, _MIN_PROBE_LEAD_S = 1 / 100, 0.02
_PROBE_TRAIL_SHARE, _MIN_PROBE_TRAIL_S = 1 / 20, 0.1
"""Around its expected end, how often the end of a period is probed, how long before and how long after."""

_PROBES_OF_AN_INTERVAL = 8
"""By how many probes the interval in which the period may end is divided, so that it is smaller next time."""

_VERIFICATION_INTERVAL = 4
"""One in this number of periods is also probed long before its end, in case the server no longer counts in periods."""

_POLL_INTERVAL_S = 0.1
"""How often calls look for tokens that other models of the server return."""

_MEAN_WEIGHT = 1 / 32


class _Entry:
    """The amount of one call in a window."""

    __slots__ = ("amount", "expected", "expires_at", "is_counted")

    def __init__(self, amount: float, expected: float) -> None:
        self.amount = amount
        self.expected = expected
        self.expires_at = 0.0
        self.is_counted = True


class WindowLimit:
    """A limit for calls or tokens per minute that no minute exceeds, whenever it begins. Allows a burst of about one second.

    With `until_reply`, an amount counts from the start of its call until a minute after its end, because the service may
    count it at either time; else until a minute after the start.
    """

    def __init__(self, per_minute: float, *, until_reply: bool = False, window_s: float = _WINDOW_S) -> None:
        self.per_minute = per_minute
        self.window_s = window_s
        self._until_reply = until_reply
        self._burst = TokenBucket(per_minute / window_s)
        self._entries: deque[_Entry] = deque()
        """The amounts whose time is known, in the order in which they expire."""

        self._total = 0.0

        self._mean: float | None = None
        """Moving average of the actual amounts: the pace of calls follows from it, not from their largest amounts."""

    @property
    def counted(self) -> float:
        """The sum of all amounts that count, including those of calls in flight."""
        return self._total

    def lower(self, per_minute: float) -> None:
        """Set a smaller limit; what was sent still counts."""
        self.per_minute = per_minute
        self._burst = TokenBucket(per_minute / self.window_s)

    def wait_s(self, amount: float) -> float:
        """Return the seconds until `amount` may be sent; an amount above the limit waits for an empty window."""
        now = time.monotonic()
        while self._entries and self._entries[0].expires_at <= now:
            self._remove(self._entries.popleft())
        if not self._entries and self._total < 1e-6:
            self._total = 0.0  # rounding errors
        wait = self._burst.wait_s(self._estimate(amount))
        excess = self._total + min(amount, self.per_minute) - self.per_minute
        if excess <= 1e-9:
            return wait
        for entry in self._entries:
            excess -= entry.amount
            if excess <= 1e-9:
                return max(wait, entry.expires_at - now)
        return max(wait, _POLL_INTERVAL_S)  # calls in flight have to end first

    def take(self, amount: float) -> _Entry:
        """Count an amount that is being sent."""
        entry = _Entry(amount, self._estimate(amount))
        self._burst.take(entry.expected)
        self._total += amount
        if not self._until_reply:
            self._append(entry)
        return entry

    def restart(self, entry: _Entry) -> None:
        """Count an amount from now on, because its call was sent only now."""
        if self._until_reply or not entry.is_counted:
            return
        self._entries.remove(entry)
        self._append(entry)

    def settle(self, entry: _Entry, used: float | None) -> None:
        """Replace an amount by the actual one at the end of its call; None: unknown, it remains."""
        if used is not None:
            self._burst.take(used - entry.expected)
            if used:
                mean = used if self._mean is None else self._mean
                self._mean = mean + (used - mean) * _MEAN_WEIGHT
            if entry.is_counted:
                self._total += used - entry.amount
                entry.amount = used
        if self._until_reply:
            self._append(entry)

    def cancel(self, entry: _Entry) -> None:
        """Return an amount that was not sent."""
        self._burst.take(-entry.expected)
        if entry.is_counted:
            self._total -= entry.amount
            entry.amount = 0.0

    def _estimate(self, amount: float) -> float:
        return amount if self._mean is None else min(amount, self._mean)

    def _append(self, entry: _Entry) -> None:
        entry.expires_at = time.monotonic() + self.window_s + _WINDOW_MARGIN_S
        self._entries.append(entry)

    def _remove(self, entry: _Entry) -> None:
        self._total -= entry.amount
        entry.is_counted = False


class Reservation:
    """What a call takes from the limits per minute, until it is settled or cancelled once."""

    __slots__ = ("is_open", "requests", "tokens")

    def __init__(self, requests: _Entry | None, tokens: _Entry | None) -> None:
        self.requests = requests
        self.tokens = tokens
        self.is_open = True


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


class _PeriodEstimate:
    """When a server that counts calls in periods accepts calls again, and how many it accepts in a period.

    A period lasts from the first accepted call after rejections to the next such call.
    """

    def __init__(self) -> None:
        self.duration_s = 0.0
        """The largest duration that the last periods allow; 0: the server is not known to count calls in periods."""

        self.quota = 0
        self._shortest_s = 0.0
        """The smallest duration that they allow: a call at this time was rejected."""

        self._is_continuous_until = 0.0
        self._samples: deque[tuple[float, float]] = deque(maxlen=_PERIODS_TO_REMEMBER)
        """The shortest and longest durations of the last periods."""

        self._early_quota = 0
        """The calls of the last period, if it ended earlier than expected."""

        self._number = 0
        self._began_at = 0.0
        self._sent = 0
        """Calls of this period that were not rejected."""

    def count_sent(self) -> bool:
        """Count a call that is being sent; return whether the quota of the period is larger than expected."""
        if not self._began_at:
            self._began_at = time.monotonic()
        self._sent += 1
        return bool(self.duration_s) and self._sent > _MAX_QUOTA_GROWTH * self.quota + 1

    def count_rejected(self) -> None:
        """Take back a call that was rejected."""
        self._sent -= 1

    @property
    def is_likely(self) -> bool:
        """Whether calls are counted in periods, or enough were accepted for a period."""
        return bool(self.duration_s) or self._sent >= _MIN_QUOTA

    @property
    def accepted_rate(self) -> float:
        """The rate, or that of the current period if it accepted more calls."""
        return max(self.quota, self._sent - 1) / self.duration_s if self.duration_s else 0.0

    @property
    def rate(self) -> float:
        """Calls per second; 0: the server is not known to count calls in periods."""
        return self.quota / self.duration_s if self.duration_s else 0.0

    @property
    def is_continuous(self) -> bool:
        """Whether calls were seen to expire one by one."""
        return self._began_at < self._is_continuous_until

    @property
    def is_used(self) -> bool:
        """Whether the period accepted as many calls as the last one."""
        return bool(self.duration_s) and self._sent >= _MIN_USED_SHARE * self.quota

    def find_pause_s(self, now: float, pause_s: float) -> float | None:
        """Return the pause until the next probe, at most `pause_s`; None if the period should be over, but is not."""
        elapsed_s = now - self._began_at
        if not self.duration_s:
            return min(pause_s, max(_FIRST_PAUSE_S, _MAX_PAUSE_SHARE * elapsed_s))
        left_s = self._shortest_s - max(_MIN_PROBE_LEAD_S, _PROBE_LEAD_SHARE * self.duration_s) - elapsed_s
        if left_s > 0:
            is_known = len(self._samples) > 1 and self.is_used and self._number % _VERIFICATION_INTERVAL
            return left_s if is_known else min(pause_s, left_s)
        if elapsed_s < self.duration_s + max(_MIN_PROBE_TRAIL_S, _PROBE_TRAIL_SHARE * self.duration_s):
            interval_s = (self.duration_s - self._shortest_s) / _PROBES_OF_AN_INTERVAL
            return max(_MIN_PROBE_SPACING_S, _PROBE_SPACING_SHARE * self.duration_s, interval_s)
        return None

    def begin(self, sent_at: float, rejected_at: float, pauses: int) -> bool:
        """Begin a period with a call that was accepted after `pauses`; `rejected_at`: the last rejection before it.

        Returns whether the quota may be larger than expected, because calls were accepted again before the period ended.
        """
        duration_s, quota = sent_at - self._began_at, self._sent - 1
        is_early = bool(self.duration_s) and duration_s < _MIN_EARLY_SHARE * self._shortest_s
        is_proven = pauses >= _MIN_PAUSES_OF_A_PERIOD
        is_sudden = is_early and not is_proven
        if quota < _MAX_REST_SHARE * self._early_quota or (
            is_sudden and duration_s < _MIN_CONTINUOUS_SHARE * self.duration_s
        ):
            self._is_continuous_until = sent_at + _CONTINUOUS_S
        self._early_quota = quota if is_sudden else 0
        is_short = duration_s < _MIN_PERIOD_S or quota < _MIN_QUOTA
        if is_early or is_short:
            self._samples.clear()
        is_plausible = is_proven or (self.duration_s and not is_early)
        if sent_at >= self._is_continuous_until and is_plausible and not is_short:
            self._samples.append((rejected_at - self._began_at, duration_s))
            self.quota = quota
        self.duration_s = min((longest for _, longest in self._samples), default=0.0)
        self._shortest_s = min(max((one for one, _ in self._samples), default=0.0), self.duration_s)
        self._began_at, self._sent = sent_at, 1
        self._number += 1
        return is_sudden and quota >= _MAX_REST_SHARE * self.quota and not self.is_continuous


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

        self._period = _PeriodEstimate()
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
        if age_s > max(_MAX_LEARNED_AGE_S, _PERIODS_TO_REMEMBER * self._period.duration_s):
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
        backoff_s = min(_FIRST_PAUSE_S * _PAUSE_GROWTH**self._backoffs, _MAX_LEARNED_PAUSE_S)
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
        if reservation is None or delay_s < _WINDOW_MARGIN_S / 2:
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
