"""Task helpers run here: one piece at a time, off the event loop, on draws that do not depend on timing.

Helpers may keep state, draw from the global generators, or hang. So there is one thread for them (a daemon: a helper
that hangs does not keep the process alive), and the generators are put where they belong before each piece.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from assay.core.fingerprints import digest_text

__all__ = ["Draws", "ForeignCode", "seed_globals"]

T = TypeVar("T")


class ForeignCode:
    """A thread of its own for code that is not ours."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="assay-foreign-code", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work when its turn comes; what it raises is raised here."""
        done: Future[T] = Future()
        self._work.put((work, done))
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """Take no more work. Whatever is running is left to itself."""
        self._work.put(None)

    def _serve(self) -> None:
        while (taken := self._work.get()) is not None:
            work, done = taken
            if not done.set_running_or_notify_cancel():
                continue
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                done.set_exception(error)


def seed_globals(seed: tuple[int | None, ...]) -> None:
    """Put the global generators of Python and NumPy at their start, as upstream does before it loads tasks."""
    import numpy

    random.seed(seed[0])
    if seed[1] is not None:
        numpy.random.seed(seed[1])


class Draws:
    """The global generators as one task's helpers see them.

    Rendering draws in document order from a stream of its own; judging a document starts from that document, a turn of
    a dialogue from that turn. So a run that is stopped and continued draws what an uninterrupted one draws.
    """

    def __init__(self, seed: tuple[int | None, ...], task: str) -> None:
        self._seed = seed
        self._task = task
        self._state: tuple[Any, Any] | None = None

    @contextmanager
    def rendering(self) -> Iterator[None]:
        """Go on where the last rendering of this task stopped."""
        import numpy

        if self._state is None:
            seed_globals(self._seed)
        else:
            random.setstate(self._state[0])
            numpy.random.set_state(self._state[1])
        try:
            yield
        finally:
            self._state = (random.getstate(), numpy.random.get_state())

    def judging(self, document: int) -> None:
        """Start from this document."""
        self._start(str(document))

    def talking(self, document: int, repeat: int, turn: int) -> None:
        """Start from this turn of a document's dialogue."""
        self._start(str(document), str(repeat), str(turn))

    def _start(self, *place: str) -> None:
        number = int(digest_text(str(self._seed[0]), self._task, *place)[:8], 16)
        seed_globals((number, number))
