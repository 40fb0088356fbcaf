"""Answers that come one by one are kept and judged in small groups.

Writing to the disk and a turn of the thread that judges cost the same for one answer as for twenty. A model behind a
network sends hundreds a second, each at its own moment; dealt with singly they cost twice the processor time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from assay.core.ports import Model

__all__ = ["Gathering", "short_turns"]

_FEW = 64
"""So many are a group."""

_SHARE = 4.0
"""Wait so many times as long as the last group took: little where keeping is quick."""

_LONGEST_S = 0.025


_TURN_S = 0.001


@contextmanager
def short_turns(model: Model) -> Iterator[None]:
    """Where many calls are open, let threads take turns more often than Python's five milliseconds.

    Each thread that renders, encodes or writes may hold a reply up for a whole turn, and there are several.
    """
    before = sys.getswitchinterval()
    if model.traits.in_flight > 1 and before > _TURN_S:
        sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Gathering:
    """Waits a moment for company."""

    def __init__(self) -> None:
        self._took_s = 0.0

    async def wait(self, arrived: int, *, of: int) -> None:
        """Let a few more arrive, if there are few and more to come; nobody waits for the first."""
        if arrived < _FEW and arrived < of and self._took_s:
            await asyncio.sleep(min(_SHARE * self._took_s, _LONGEST_S))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """While a group is dealt with."""
        began = time.monotonic()
        yield
        self._took_s = time.monotonic() - began
