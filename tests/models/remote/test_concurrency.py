"""How many calls are open at once."""

from __future__ import annotations

import asyncio
import math
import random
from types import SimpleNamespace

import pytest
from tests.models.remote.simulated_server import SimulatedServer

from assay.models.remote import concurrency
from assay.models.remote.concurrency import CallResult, ConcurrencyLimiter
from assay.models.remote.rate_limits import RateLimit


async def rounds(gate: ConcurrencyLimiter, count: int, seconds: float = 0.01) -> None:
    """Full rounds of good answers, as fast as the gate lets them."""
    for _ in range(count):
        tickets = [await gate.acquire() for _ in range(int(gate.limit))]
        for ticket in tickets:
            gate.release(ticket, "ok", seconds)


def test_the_limit_doubles_up_to_the_maximum() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(100)
        limits = [gate.limit]
        for _ in range(5):
            await rounds(gate, 1)
            limits.append(gate.limit)
        assert limits == [8, 16, 32, 64, 100, 100]
        assert ConcurrencyLimiter(3).limit == 3

    asyncio.run(go())


def test_calls_that_are_not_rejected_become_the_limit() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(64, initial=64)
        tickets = [await gate.acquire() for _ in range(64)]
        for ticket in tickets[:40]:
            gate.release(ticket, "busy")
        assert gate.limit == 24

    asyncio.run(go())


@pytest.mark.parametrize("limit", [1, 4, 20, 300])
@pytest.mark.parametrize(
    ("rejection", "retry_after_s"), [("busy", None), ("busy", 1.0), ("refused", None)], ids=str
)
def test_the_limit_of_the_server_is_found(
    monkeypatch: pytest.MonkeyPatch, limit: int, rejection: CallResult, retry_after_s: float | None
) -> None:
    server = SimulatedServer(monkeypatch, lambda _: limit)
    server.rejection, server.retry_after_s = rejection, retry_after_s
    server.serve(ConcurrencyLimiter(1024), 10)
    assert server.measure_rate(1, 10) > 0.95 * limit / 0.05
    assert server.rejected < 0.03 * len(server.answers) + 10


@pytest.mark.parametrize("retry_after_s", [None, 1.0])
@pytest.mark.parametrize("open_calls", [2048, 10_000], ids=["refilled", "all at once"])
def test_the_end_of_a_run_does_not_wait_for_rejected_calls(
    monkeypatch: pytest.MonkeyPatch, retry_after_s: float | None, open_calls: int
) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 100)
    server.retry_after_s = retry_after_s
    seconds = server.finish(ConcurrencyLimiter(1024), 10_000, open_calls)
    assert seconds < 10_000 * 0.05 / 100 / 0.95
    first_second = server.measure_rate(0, 1)
    assert first_second > 0.8 * 100 / 0.05, "the warm-up takes less than 5 % of the calls"


@pytest.mark.parametrize("retry_after_s", [None, 1.0])
def test_a_limit_that_changes_is_found_within_five_seconds(
    monkeypatch: pytest.MonkeyPatch, retry_after_s: float | None
) -> None:
    server = SimulatedServer(monkeypatch, lambda s: 20 if s < 10 else 200 if s < 20 else 15)
    server.retry_after_s = retry_after_s
    server.serve(ConcurrencyLimiter(1024), 30)
    assert server.measure_rate(15, 20) > 0.95 * 200 / 0.05
    assert server.measure_rate(22, 30) > 0.95 * 15 / 0.05


def test_a_queue_of_the_server_is_kept_short_but_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 30)
    server.queues = True
    limiter = ConcurrencyLimiter(1024)
    server.serve(limiter, 20)
    assert server.measure_rate(1, 20) > 0.98 * 30 / 0.05
    assert 30 <= limiter.limit < 150


def test_answers_that_become_longer_do_not_lower_the_limit_permanently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 10_000)
    server.latency = lambda: 0.02 if server.now - server.began < 5 else 1.0
    limiter = ConcurrencyLimiter(64)
    server.serve(limiter, 120)
    assert limiter.limit > 48
    assert server.measure_rate(80, 120) > 48


@pytest.mark.parametrize("kind", ["some take long", "lognormal"])
def test_answers_of_different_lengths_do_not_lower_the_limit(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 10_000)
    draw = random.Random(1)
    latencies = {
        "some take long": (0.178, lambda: 4.0 if draw.random() < 0.02 else 0.1),
        "lognormal": (math.exp(0.5), lambda: math.exp(draw.gauss(0, 1))),
    }
    mean_s, server.latency = latencies[kind]
    server.serve(ConcurrencyLimiter(128), 60)
    assert server.measure_rate(20, 60) > 0.75 * 128 / mean_s


def test_failures_at_random_do_not_lower_the_limit_permanently(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 10_000)
    server.failure_rate = 0.05
    server.serve(ConcurrencyLimiter(64, initial=64), 20)
    assert server.measure_rate(5, 20) > 0.3 * 64 / 0.05


@pytest.mark.parametrize(("period_s", "quota"), [(2, 200), (2, 20), (10, 500), (60, 600)])
@pytest.mark.parametrize("timer_delay_s", [0.0, 0.008], ids=["idle", "busy event loop"])
def test_calls_are_sent_as_soon_as_a_period_of_the_server_begins(
    monkeypatch: pytest.MonkeyPatch, period_s: int, quota: int, timer_delay_s: float
) -> None:
    """The server accepts `quota` calls in each period, and rejects the others without `Retry-After`."""
    server = SimulatedServer(monkeypatch, lambda _: 0)
    server.timer_delay_s = timer_delay_s
    server.accept_in_periods(period_s, lambda _: quota)
    server.serve(ConcurrencyLimiter(1024), 20 * period_s)
    assert server.measure_rate(period_s, 20 * period_s) > 0.98 * quota / period_s
    assert server.rejected < 0.05 * len(server.answers) + 20 * 6


def test_long_answers_do_not_delay_the_calls_of_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 0)
    server.latency = lambda: 4.0
    server.accept_in_periods(10, lambda _: 100)
    server.serve(ConcurrencyLimiter(1024), 200)
    assert server.measure_rate(100, 200) > 0.9 * 10


def test_a_quota_that_changes_is_used_in_the_next_period(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 0)
    server.timer_delay_s = 0.004
    server.accept_in_periods(2, lambda s: 200 if s < 20 else 600 if s < 40 else 100)
    server.serve(ConcurrencyLimiter(1024), 60)
    assert server.measure_rate(20, 24) > 0.9 * 300
    assert server.measure_rate(42, 60) > 0.95 * 50
    assert server.rejected < 0.1 * len(server.answers)


@pytest.mark.parametrize("window_s", [2, 5, 10])
@pytest.mark.parametrize("timer_delay_s", [0.0, 0.008], ids=["idle", "busy event loop"])
def test_a_rate_is_learned_if_calls_expire_one_by_one(
    monkeypatch: pytest.MonkeyPatch, window_s: int, timer_delay_s: float
) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 0)
    server.timer_delay_s = timer_delay_s
    server.accept_in_sliding_windows(window_s, lambda _: 500)
    server.serve(ConcurrencyLimiter(1024), 120)
    assert server.measure_rate(10, 120) > 0.85 * 500 / window_s
    assert server.rejected < 0.3 * len(server.answers)


@pytest.mark.parametrize("timer_delay_s", [0.0, 0.004, 0.008], ids=["idle", "busy", "very busy event loop"])
def test_a_higher_limit_is_used_within_five_seconds_if_calls_expire_one_by_one(
    monkeypatch: pytest.MonkeyPatch, timer_delay_s: float
) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 0)
    server.timer_delay_s = timer_delay_s
    server.accept_in_sliding_windows(2, lambda s: 200 if s < 16 else 600)
    server.serve(ConcurrencyLimiter(1024), 36)
    assert server.measure_rate(21, 36) > 0.85 * 300


@pytest.mark.parametrize(
    ("period_s", "quota"), [(1, 20), (1, 200), (1.5, 60), (2, 200), (3.3, 100), (10, 500)]
)
@pytest.mark.parametrize("timer_delay_s", [0.0, 0.008], ids=["idle", "busy event loop"])
def test_a_delay_in_whole_seconds_does_not_delay_the_next_period(
    monkeypatch: pytest.MonkeyPatch, period_s: float, quota: int, timer_delay_s: float
) -> None:
    server = SimulatedServer(monkeypatch, lambda _: 0)
    server.timer_delay_s = timer_delay_s
    server.accept_in_periods_of_calls(period_s, quota)
    server.serve(ConcurrencyLimiter(1024), 20.5 * period_s)
    assert server.measure_rate(period_s, 20.5 * period_s) > 0.93 * quota / period_s
    assert server.rejected < 0.05 * len(server.answers) + 20 * 6


@pytest.mark.parametrize("retry_after_s", [1.0, 2.0, 3.0])
def test_a_delay_that_stays_the_same_is_not_a_period(
    monkeypatch: pytest.MonkeyPatch, retry_after_s: float
) -> None:
    server = SimulatedServer(monkeypatch, lambda s: 0 if 20 <= s < 40 else 50)
    server.retry_after_s = retry_after_s
    server.serve(ConcurrencyLimiter(1024), 70)
    assert sum(20.2 < one - server.began < 39.9 for one in server.sent) < 30
    assert server.measure_rate(44, 70) > 0.97 * 50 / 0.05


def test_a_delay_that_the_server_asks_for_applies_to_all_calls_if_it_rejects_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SimulatedServer(monkeypatch, lambda s: 0 if 2 <= s < 5 else 50)
    server.retry_after_s = 3.0
    server.serve(ConcurrencyLimiter(1024), 10)
    assert sum(2.2 < one - server.began < 4.9 for one in server.sent) < 5
    assert server.measure_rate(6, 10) > 0.9 * 50 / 0.05


def test_timeouts_decrease_the_limit_to_at_least_one() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(8)
        for _ in range(30):
            gate.release(await gate.acquire(), "late")
        assert gate.limit == 2
        gate.release(await gate.acquire(), "busy")
        assert gate.limit == 1
        gate.release(await gate.acquire(), "failed")
        assert gate.limit == 1

    asyncio.run(go())


def test_the_limit_does_not_grow_if_throughput_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the calls, twice the time each: nothing is gained."""
    now = 1000.0
    monkeypatch.setattr(concurrency, "time", SimpleNamespace(monotonic=lambda: now))

    async def go() -> None:
        nonlocal now
        gate = ConcurrencyLimiter(1000)
        for _ in range(12):
            tickets = [await gate.acquire() for _ in range(int(gate.limit))]
            seconds = 0.01 * len(tickets)
            now += seconds
            for ticket in tickets:
                gate.release(ticket, "ok", seconds)
        assert gate.limit < 64, gate.limit

    asyncio.run(go())


def test_calls_never_exceed_the_limit_and_all_are_started() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(5)
        most = done = 0

        async def call() -> None:
            nonlocal most, done
            ticket = await gate.acquire()
            most = max(most, gate.in_flight)
            await asyncio.sleep(0.001)
            gate.release(ticket, "ok", 0.001)
            done += 1

        await asyncio.gather(*[call() for _ in range(60)])
        assert (most, done, gate.in_flight) == (5, 60, 0)

    asyncio.run(go())


def test_a_call_does_not_wait_for_the_tokens_of_a_cancelled_one() -> None:
    class Budget(RateLimit):
        def wait_s(self, tokens: int) -> float:
            return 60.0 if tokens > 100 else 0.0

    async def go() -> None:
        gate = ConcurrencyLimiter(8, Budget())
        large = asyncio.create_task(gate.acquire(500))
        small = asyncio.create_task(gate.acquire(50))
        await asyncio.sleep(0)
        assert gate.queued == 2
        large.cancel()
        async with asyncio.timeout(5):
            await small
        assert (gate.queued, gate.in_flight) == (0, 1)

    asyncio.run(go())


def test_a_cancelled_waiter_occupies_no_slot() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(1)
        ticket = await gate.acquire()
        waiting = [asyncio.create_task(gate.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        gate.release(ticket, "ok", 0.01)
        waiting[1].cancel()  # it was called in the same moment
        await asyncio.sleep(0.01)
        assert await waiting[2] == 0
        assert gate.in_flight == 1

    asyncio.run(go())


def test_a_held_limiter_starts_no_calls() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(4)
        running = await gate.acquire()
        gate.hold(True)
        waiting = [asyncio.ensure_future(gate.acquire()) for _ in range(2)]
        await asyncio.sleep(0)
        gate.release(running, "ok", 0.1)
        await asyncio.sleep(0)
        assert gate.in_flight == 0 and not any(one.done() for one in waiting)
        gate.hold(False)
        assert len(await asyncio.gather(*waiting)) == gate.in_flight == 2

    asyncio.run(go())
