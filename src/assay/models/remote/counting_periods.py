"""Servers that count calls in periods: when such a server accepts calls again, and how many."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["FIRST_PAUSE_S", "PERIODS_TO_REMEMBER", "PeriodEstimate"]

FIRST_PAUSE_S = 0.1
"""The first pause after a rejection, if the server does not say when to try again."""

_MIN_PAUSES_OF_A_PERIOD = 3
"""If the server rejects a call after each of this many pauses, it counts calls in periods and the period is not over."""

PERIODS_TO_REMEMBER = 3
"""From this number of periods the duration is estimated."""

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


class PeriodEstimate:
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
        self._samples: deque[tuple[float, float]] = deque(maxlen=PERIODS_TO_REMEMBER)
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
            return min(pause_s, max(FIRST_PAUSE_S, _MAX_PAUSE_SHARE * elapsed_s))
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
