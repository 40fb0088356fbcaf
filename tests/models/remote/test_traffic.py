"""How many calls are open at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from assay.models.remote import traffic
from assay.models.remote.traffic import Budget, Gate, Lane, lane_of


async def rounds(gate: Gate, count: int, seconds: float = 0.01) -> None:
    """Full rounds of good answers, as fast as the gate lets them."""
    for _ in range(count):
        tickets = [await gate.enter() for _ in range(int(gate.limit))]
        for ticket in tickets:
            gate.leave(ticket, "ok", seconds)


def test_it_starts_modestly_and_doubles_up_to_its_ceiling() -> None:
    async def go() -> None:
        gate = Gate(100)
        limits = [gate.limit]
        for _ in range(5):
            await rounds(gate, 1)
            limits.append(gate.limit)
        assert limits == [8, 16, 32, 64, 100, 100]
        assert Gate(3).limit == 3

    asyncio.run(go())


def test_a_busy_server_halves_it_once_for_all_calls_of_that_time() -> None:
    async def go() -> None:
        gate = Gate(64, start=64)
        tickets = [await gate.enter() for _ in range(64)]
        for ticket in tickets[:40]:
            gate.leave(ticket, "busy")
        assert gate.limit == 32
        for ticket in tickets[40:]:
            gate.leave(ticket, "ok", 0.1)
        assert gate.limit <= 34, "what was sent before says nothing about now"

    asyncio.run(go())


def test_after_trouble_it_grows_slowly() -> None:
    async def go() -> None:
        gate = Gate(64, start=20)
        gate.leave(await gate.enter(), "busy")
        assert gate.limit == 10
        await rounds(gate, 3)
        assert 10 < gate.limit <= 14

    asyncio.run(go())


def test_timeouts_shrink_it_too_and_one_call_stays_allowed() -> None:
    async def go() -> None:
        gate = Gate(8)
        for _ in range(30):
            gate.leave(await gate.enter(), "late")
        assert gate.limit == 2
        for _ in range(30):
            gate.leave(await gate.enter(), "busy")
        assert gate.limit == 1
        gate.leave(await gate.enter(), "failed")
        assert gate.limit == 1

    asyncio.run(go())


def test_a_server_that_only_gets_slower_is_given_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the calls, twice the time each: nothing is gained."""
    now = 1000.0
    monkeypatch.setattr(traffic, "time", SimpleNamespace(monotonic=lambda: now))

    async def go() -> None:
        nonlocal now
        gate = Gate(1000)
        for _ in range(12):
            tickets = [await gate.enter() for _ in range(int(gate.limit))]
            seconds = 0.01 * len(tickets)
            now += seconds
            for ticket in tickets:
                gate.leave(ticket, "ok", seconds)
        assert gate.limit < 64, gate.limit

    asyncio.run(go())


def test_never_more_are_open_than_allowed_and_all_get_their_turn() -> None:
    async def go() -> None:
        gate = Gate(5)
        most = done = 0

        async def call() -> None:
            nonlocal most, done
            ticket = await gate.enter()
            most = max(most, gate.active)
            await asyncio.sleep(0.001)
            gate.leave(ticket, "ok", 0.001)
            done += 1

        await asyncio.gather(*[call() for _ in range(60)])
        assert (most, done, gate.active) == (5, 60, 0)

    asyncio.run(go())


def test_who_stops_waiting_takes_no_place_with_him() -> None:
    async def go() -> None:
        gate = Gate(1)
        ticket = await gate.enter()
        waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        gate.leave(ticket, "ok", 0.01)
        waiting[1].cancel()  # it was called in the same moment
        await asyncio.sleep(0.01)
        assert await waiting[2] == 0
        assert gate.active == 1

    asyncio.run(go())


def test_a_pause_holds_every_model_on_the_same_server() -> None:
    async def go() -> None:
        one, other = Gate(4, lane_of("http://test-pause")), Gate(4, lane_of("http://test-pause"))
        free = Gate(4, lane_of("http://test-elsewhere"))
        one.lane.quiet(0.08)
        began = asyncio.get_running_loop().time()
        assert free.lane.wait_s(0) == 0
        await asyncio.gather(one.enter(), other.enter())
        assert asyncio.get_running_loop().time() - began >= 0.079

    asyncio.run(go())


def test_budgets_per_minute_are_kept_and_the_smaller_one_counts() -> None:
    async def go() -> None:
        lane = Lane()
        lane.limit(6000, None)
        lane.limit(1200, None)
        lane.limit(9000, None)
        gate = Gate(100, lane, start=100)
        began = asyncio.get_running_loop().time()
        for _ in range(26):  # twenty at once, then twenty a second
            gate.leave(await gate.enter(), "ok", 0.001)
        assert asyncio.get_running_loop().time() - began >= 0.25

    asyncio.run(go())


def test_tokens_are_settled_when_their_number_is_known() -> None:
    budget = Budget(60_000)
    budget.take(600)
    assert budget.wait_s(300) == 0
    lane = Lane()
    lane.tokens = budget
    lane.settle(600, 5600)
    assert 4.5 < budget.wait_s(300) < 5.5
    assert budget.wait_s(10**9) < 10, "a call larger than the budget goes out alone, not never"
