"""The shared timer of the timeouts of several connections, in simulated time. `test_http.py` tests whole exchanges."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from assay.models.remote.transport import connection as module
from assay.models.remote.transport.connection import ReadTimeouts


class SimulatedLoop:
    """An event loop that only has timers."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None], list[bool]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> SimpleNamespace:
        cancelled: list[bool] = []
        self._timers.append((when, callback, cancelled))
        return SimpleNamespace(cancel=lambda: cancelled.append(True))

    def advance(self, seconds: float) -> int:
        """Run the timers of this time in order; return how many ran."""
        end, ran = self.now + seconds, 0
        while due := [one for one in self._timers if one[0] <= end]:
            first = min(due, key=lambda one: one[0])
            self._timers.remove(first)
            self.now = max(self.now, first[0])
            if not first[2]:
                first[1]()
                ran += 1
        self.now = end
        return ran


class LateExchange:
    """Stands for a connection: records when its timeout ended the exchange."""

    def __init__(
        self, timeouts: ReadTimeouts, loop: SimulatedLoop, then: Callable[[], None] = lambda: None
    ) -> None:
        self._timeouts, self._loop, self._then = timeouts, loop, then
        self.ended_at: float | None = None

    def start(self, timeout_s: float) -> LateExchange:
        self._timeouts.start(self, timeout_s)  # type: ignore[arg-type]
        return self

    def stop(self) -> None:
        self._timeouts.stop(self)  # type: ignore[arg-type]

    def on_timeout(self) -> None:
        self.stop()
        self.ended_at = self._loop.now
        self._then()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> SimulatedLoop:
    found = SimulatedLoop()
    fake: Any = SimpleNamespace(get_running_loop=lambda: found)
    monkeypatch.setattr(module, "asyncio", fake)
    return found


def test_each_exchange_ends_at_its_own_deadline(loop: SimulatedLoop) -> None:
    timeouts = ReadTimeouts()
    long, answered, short = (LateExchange(timeouts, loop).start(timeout_s) for timeout_s in (10, 4, 2))
    answered.stop()
    loop.advance(60)
    assert (long.ended_at, answered.ended_at, short.ended_at) == (10, None, 2)


def test_an_exchange_that_starts_when_another_one_is_late_delays_no_third(loop: SimulatedLoop) -> None:
    timeouts = ReadTimeouts()
    following = LateExchange(timeouts, loop)

    def start_following() -> None:
        following.start(100)

    first = LateExchange(timeouts, loop, then=start_following).start(2)
    third = LateExchange(timeouts, loop).start(5)
    loop.advance(200)
    assert (first.ended_at, third.ended_at, following.ended_at) == (2, 5, 102)


def test_answered_exchanges_of_one_timeout_share_a_timer(loop: SimulatedLoop) -> None:
    timeouts, ran = ReadTimeouts(), 0
    for _ in range(1000):
        exchange = LateExchange(timeouts, loop).start(300)
        ran += loop.advance(0.05)
        exchange.stop()
    assert ran == 0
    assert loop.advance(1000) == 1, "one timer for all of them"


def test_no_timer_is_left_when_the_client_closes(loop: SimulatedLoop) -> None:
    timeouts = ReadTimeouts()
    exchange = LateExchange(timeouts, loop).start(2)
    timeouts.close()
    assert loop.advance(60) == 0
    assert exchange.ended_at is None
