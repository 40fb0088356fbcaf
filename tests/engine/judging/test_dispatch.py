"""Tests of the judge dispatcher. Tests of judging on workers are in tests/flows/test_replicas.py."""

from __future__ import annotations

import asyncio

import pytest

from assay.engine.judging.dispatch import gather_or_cancel


def test_the_other_parts_are_cancelled_before_a_failure_is_raised() -> None:
    stopped = []

    async def piece(number: int) -> int:
        try:
            await asyncio.sleep(0 if number == 1 else 3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # cleanup takes a moment
            stopped.append(number)
            raise
        raise ValueError("out of luck")

    async def work() -> None:
        with pytest.raises(ValueError, match="out of luck"):
            await gather_or_cancel(piece(number) for number in range(3))
        assert stopped == [0, 2]

    asyncio.run(work())


def test_parts_are_combined_in_order() -> None:
    async def piece(number: int) -> int:
        for _ in range(5 - number):
            await asyncio.sleep(0)
        return number

    async def work() -> list[int]:
        return await gather_or_cancel(piece(number) for number in range(5))

    assert asyncio.run(work()) == [0, 1, 2, 3, 4]
