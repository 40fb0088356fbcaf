"""Answers that come one by one are dealt with in small groups."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from assay.engine.running.batching import ResponseBatcher, shorten_thread_switches
from assay.testing import ScriptedModel


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            waited.append(seconds)
        else:  # a server that earlier tests started
            await really_sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waited


def make_batcher(seconds: float) -> ResponseBatcher:
    gathering = ResponseBatcher()
    with gathering.measure():
        time.sleep(seconds)
    return gathering


def test_the_first_response_is_not_delayed(waits: list[float]) -> None:
    asyncio.run(ResponseBatcher().wait(1, in_flight=100))
    assert waits == []


def test_few_responses_wait_in_proportion_to_the_last_batch_up_to_a_limit(waits: list[float]) -> None:
    asyncio.run(make_batcher(0.002).wait(1, in_flight=100))
    asyncio.run(make_batcher(0.02).wait(1, in_flight=100))
    assert 0.008 <= waits[0] <= 0.025 and waits[1] == 0.025


def test_many_responses_and_the_last_ones_are_not_delayed(waits: list[float]) -> None:
    gathering = make_batcher(0.002)
    asyncio.run(gathering.wait(64, in_flight=1000))
    asyncio.run(gathering.wait(3, in_flight=3))
    assert waits == []


@pytest.mark.parametrize(("in_flight", "turn_s"), [(1, 0.005), (8, 0.001)])
def test_the_switch_interval_is_short_only_with_many_requests_in_flight(
    in_flight: int, turn_s: float
) -> None:
    model = ScriptedModel(lambda asked: "", in_flight=in_flight)
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        with shorten_thread_switches(model):
            assert sys.getswitchinterval() == pytest.approx(turn_s)
        assert sys.getswitchinterval() == pytest.approx(0.005)
    finally:
        sys.setswitchinterval(before)
