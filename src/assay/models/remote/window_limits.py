"""Limits per minute that no minute exceeds."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["WINDOW_MARGIN_S", "TokenBucket", "WindowEntry", "WindowLimit"]

_WINDOW_S = 60.0
WINDOW_MARGIN_S = 0.5
"""Calls take different times to reach the server, so that its minute can contain calls that were sent in a longer time."""

_POLL_INTERVAL_S = 0.1
"""How often calls look for tokens that other models of the server return."""

_MEAN_WEIGHT = 1 / 32


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


class WindowEntry:
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
        self._entries: deque[WindowEntry] = deque()
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

    def take(self, amount: float) -> WindowEntry:
        """Count an amount that is being sent."""
        entry = WindowEntry(amount, self._estimate(amount))
        self._burst.take(entry.expected)
        self._total += amount
        if not self._until_reply:
            self._append(entry)
        return entry

    def restart(self, entry: WindowEntry) -> None:
        """Count an amount from now on, because its call was sent only now."""
        if self._until_reply or not entry.is_counted:
            return
        self._entries.remove(entry)
        self._append(entry)

    def settle(self, entry: WindowEntry, used: float | None) -> None:
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

    def cancel(self, entry: WindowEntry) -> None:
        """Return an amount that was not sent."""
        self._burst.take(-entry.expected)
        if entry.is_counted:
            self._total -= entry.amount
            entry.amount = 0.0

    def _estimate(self, amount: float) -> float:
        return amount if self._mean is None else min(amount, self._mean)

    def _append(self, entry: WindowEntry) -> None:
        entry.expires_at = time.monotonic() + self.window_s + WINDOW_MARGIN_S
        self._entries.append(entry)

    def _remove(self, entry: WindowEntry) -> None:
        self._total -= entry.amount
        entry.is_counted = False
