"""How many calls are open at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from assay.models.remote import concurrency
from assay.models.remote.concurrency import ConcurrencyLimiter, RateLimit, TokenBucket, get_rate_limit


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


def test_overload_halves_the_limit_once_per_round() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(64, initial=64)
        tickets = [await gate.acquire() for _ in range(64)]
        for ticket in tickets[:40]:
            gate.release(ticket, "busy")
        assert gate.limit == 32
        for ticket in tickets[40:]:
            gate.release(ticket, "ok", 0.1)
        assert gate.limit <= 34, "what was sent before says nothing about now"

    asyncio.run(go())


def test_after_overload_the_limit_grows_slowly() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(64, initial=20)
        gate.release(await gate.acquire(), "busy")
        assert gate.limit == 10
        await rounds(gate, 3)
        assert 10 < gate.limit <= 14

    asyncio.run(go())


def test_timeouts_decrease_the_limit_to_at_least_one() -> None:
    async def go() -> None:
        gate = ConcurrencyLimiter(8)
        for _ in range(30):
            gate.release(await gate.acquire(), "late")
        assert gate.limit == 2
        for _ in range(30):
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


def test_a_pause_applies_to_all_models_of_a_server() -> None:
    async def go() -> None:
        one, other = (
            ConcurrencyLimiter(4, get_rate_limit("http://test-pause")),
            ConcurrencyLimiter(4, get_rate_limit("http://test-pause")),
        )
        free = ConcurrencyLimiter(4, get_rate_limit("http://test-elsewhere"))
        one.rate_limit.pause(0.08)
        began = asyncio.get_running_loop().time()
        assert free.rate_limit.wait_s(0) == 0
        await asyncio.gather(one.acquire(), other.acquire())
        assert asyncio.get_running_loop().time() - began >= 0.079

    asyncio.run(go())


def test_the_smaller_rate_limit_applies() -> None:
    async def go() -> None:
        lane = RateLimit()
        lane.set_limits(6000, None)
        lane.set_limits(1200, None)
        lane.set_limits(9000, None)
        gate = ConcurrencyLimiter(100, lane, initial=100)
        began = asyncio.get_running_loop().time()
        for _ in range(26):  # twenty at once, then twenty a second
            gate.release(await gate.acquire(), "ok", 0.001)
        assert asyncio.get_running_loop().time() - began >= 0.25

    asyncio.run(go())


def test_token_estimates_are_corrected() -> None:
    budget = TokenBucket(60_000)
    budget.take(600)
    assert budget.wait_s(300) == 0
    lane = RateLimit()
    lane.tokens = budget
    lane.correct_tokens(600, 5600)
    assert 4.5 < budget.wait_s(300) < 5.5
    assert budget.wait_s(10**9) < 10, "a call larger than the budget goes out alone, not never"


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
