"""Retry policy, and one attempt of a call.

An attempt releases its slot as soon as its reply is complete, before the task of the caller resumes. With many calls in flight
replies arrive in groups; waiting for the next iteration of the event loop would leave the server idle meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from assay.models.remote.concurrency import CallResult, ConcurrencyLimiter, Waiter
from assay.models.remote.errors import BUSY_STATUSES, CallError, read_retry_after
from assay.models.remote.rate_limits import Reservation
from assay.models.remote.transport.http import (
    ConnectError,
    Exchange,
    HttpClient,
    HttpRequest,
    ReadTimeout,
    RemoteProtocolError,
    Reply,
)

__all__ = ["Attempt", "RetryPolicy"]

_MAX_PAUSE_S = 60.0
_REMAINING_HEADERS = ("x-ratelimit-remaining-requests", "anthropic-ratelimit-requests-remaining")
"""Headers that report the remaining quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long a call is retried."""

    retries: int = 8
    """Attempts after the first."""

    timeout_s: float = 300.0
    """Timeout of one attempt."""

    total_timeout_s: float = 1800.0
    """Timeout of all attempts of a call, delays included."""

    max_retry_wait_s: float = 300.0
    """Longest delay that a server can ask for with `Retry-After`; longer ones are shortened to it."""

    initial_delay_s: float = 0.5
    max_delay_s: float = 30.0

    def compute_delay(self, failed: int, error: CallError, generator: random.Random) -> float:
        """Return the delay before the next attempt: exponential backoff with jitter, at least what the server asks for."""
        doubled = min(self.max_delay_s, self.initial_delay_s * 2.0 ** (failed - 1))
        jittered = doubled * generator.uniform(0.5, 1.0)
        if error.retry_after_s is None:
            return jittered
        return min(error.retry_after_s, self.max_retry_wait_s) + jittered * 0.1


class Attempt(Waiter):
    """One attempt of a call. Await `reply`; call `cancel` to abandon it."""

    __slots__ = (
        "_exchange", "_http", "_is_abandoned", "_limiter", "_max_retry_wait_s", "_request", "_started_at", "_ticket", "_timeout_s", "reply", "seconds",
    )  # fmt: skip

    def __init__(
        self,
        limiter: ConcurrencyLimiter,
        http: HttpClient,
        request: HttpRequest,
        timeout_s: float,
        tokens: int,
        max_retry_wait_s: float = 300.0,
    ) -> None:
        super().__init__(tokens)
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.seconds = 0.0
        """Duration from the start of the attempt to its end."""

        self._limiter, self._http = limiter, http
        self._request, self._timeout_s = request, timeout_s
        self._max_retry_wait_s = max_retry_wait_s
        self._exchange: Exchange | None = None
        self._is_abandoned = False
        self._ticket = 0
        self._started_at = 0.0
        limiter.enqueue(self)

    def start(self, ticket: int) -> None:
        """Send the request."""
        self._ticket, self._started_at = ticket, time.monotonic()
        self._exchange = Exchange(self.reply, self._on_connect, self._on_end)
        self._http.start(self._exchange, self._request, self._timeout_s)

    def is_cancelled(self) -> bool:
        """Return whether the caller was cancelled."""
        return self.reply.done()

    def cancel(self) -> None:
        """Abandon the attempt."""
        self._is_abandoned = True
        if not self.started:
            self._limiter.withdraw_waiter(self)
        elif self._exchange is not None:
            self._exchange.cancel()
            self.settle(None)

    def settle(self, used: int | None) -> None:
        """Report the tokens that the call used; None: unknown. The first report counts."""
        self._limiter.settle(self.reservation, used)

    def _on_connect(self) -> None:
        """Count the request when it is sent, not when its connection was requested."""
        self._limiter.rate_limit.count_delayed(self.reservation, time.monotonic() - self._started_at)

    def _on_end(self, exchange: Exchange, outcome: Reply | Exception) -> None:
        """Free the slot for the next call, before the reply is parsed."""
        self.seconds = time.monotonic() - self._started_at
        if self.reservation is not None:
            self._settle_failure(self.reservation, outcome)
        result, retry_after_s = self._classify(exchange, outcome)
        self._limiter.release(self._ticket, result, self.seconds, retry_after_s=retry_after_s)

    def _settle_failure(self, reservation: Reservation, outcome: Reply | Exception) -> None:
        """End the reservation of a call without an answer; that of an answer ends when its tokens are known."""
        rate_limit = self._limiter.rate_limit
        if isinstance(outcome, ConnectError):
            rate_limit.cancel(reservation)
        elif isinstance(outcome, Exception):
            rate_limit.settle(reservation, None)
        elif outcome.status in BUSY_STATUSES:
            rate_limit.reject(reservation)
        elif not 200 <= outcome.status < 300:
            rate_limit.settle(reservation, None)

    def _classify(self, exchange: Exchange, outcome: Reply | Exception) -> tuple[CallResult, float | None]:
        """Return the result for the concurrency limiter, and the delay a busy server asks for.

        Where the server reports its quota, a delay means that it is used up, so it applies to all calls at once.
        """
        if isinstance(outcome, ReadTimeout):
            return "late", None
        if isinstance(outcome, Exception):  # a server with too many connections closes new ones
            is_refused = isinstance(outcome, ConnectError) or (
                exchange.has_new_connection and isinstance(outcome, RemoteProtocolError)
            )
            return "refused" if is_refused and not self._is_abandoned else "failed", None
        headers, status = outcome.headers, outcome.status
        if (_REMAINING_HEADERS[0] in headers or _REMAINING_HEADERS[1] in headers) and (
            wait_s := read_retry_after(headers)
        ):
            self._limiter.rate_limit.pause(min(wait_s, _MAX_PAUSE_S, self._max_retry_wait_s))
        if status in BUSY_STATUSES:
            wait_s = read_retry_after(headers, outcome.body)
            return "busy", None if wait_s is None else min(wait_s, self._max_retry_wait_s)
        return "ok" if 200 <= status < 300 else "failed", None
