"""Process responses in small batches.

Writing and judging cost the same for one response as for twenty. A model behind a network sends hundreds a second; processed
one by one they take twice the processor time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from assay.core.ports import Model

__all__ = ["ResponseBatcher", "shorten_thread_switches"]

FULL_BATCH = 64
"""Responses that are not delayed to wait for more."""

WAIT_FACTOR = 4.0
"""Wait this many times as long as the last batch took."""

MAX_WAIT_S = 0.025


SWITCH_INTERVAL_S = 0.001


@contextmanager
def shorten_thread_switches(model: Model) -> Iterator[None]:
    """Shorten Python's thread switch interval while many calls are in flight.

    Each thread that renders, encodes or writes may delay a reply by a whole interval.
    """
    before = sys.getswitchinterval()
    if model.traits.in_flight > 1 and before > SWITCH_INTERVAL_S:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class ResponseBatcher:
    """Waits briefly so that more responses arrive."""

    def __init__(self) -> None:
        self._took_s = 0.0

    async def wait(self, arrived: int, *, in_flight: int) -> None:
        """Wait for more responses if few arrived and more can come; the first batch never waits."""
        if arrived < FULL_BATCH and arrived < in_flight and self._took_s:
            await asyncio.sleep(min(WAIT_FACTOR * self._took_s, MAX_WAIT_S))

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure how long a batch takes."""
        began = time.monotonic()
        yield
        self._took_s = time.monotonic() - began
