"""Where documents are judged. Judging on workers is in tests/flows/test_replicas.py."""

from __future__ import annotations

import asyncio

import pytest

from assay.engine.judging.dispatch import _gather_or_cancel


def test_where_one_piece_fails_the_others_have_been_stopped_when_it_is_told() -> None:
    stopped = []

    async def piece(number: int) -> int:
        try:
            await asyncio.sleep(0 if number == 1 else 3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # what it has to put away takes a moment
            stopped.append(number)
            raise
        raise ValueError("out of luck")

    async def work() -> None:
        with pytest.raises(ValueError, match="out of luck"):
            await _gather_or_cancel(piece(number) for number in range(3))
        assert stopped == [0, 2]

    asyncio.run(work())


def test_pieces_are_put_together_in_their_order() -> None:
    async def piece(number: int) -> int:
        for _ in range(5 - number):
            await asyncio.sleep(0)
        return number

    async def work() -> list[int]:
        return await _gather_or_cancel(piece(number) for number in range(5))

    assert asyncio.run(work()) == [0, 1, 2, 3, 4]
