"""Task helpers run here: one piece at a time, off the event loop, on draws that do not depend on timing.

Helpers may keep state, draw from the global generators, or hang. So they run in threads of their own, one at a time
(daemons: a helper that hangs does not keep the process alive), and the generators are put where they belong before
each piece.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from assay.core.fingerprints import digest_text
from assay.engine.baton import Crew
from assay.engine.watch import HelperStopped

__all__ = ["Draws", "ForeignCode", "seed_globals"]

T = TypeVar("T")


class ForeignCode(Crew):
    """Threads of their own for code that is not ours; one runs at a time."""

    def __init__(self) -> None:
        super().__init__("assay-foreign-code")

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work when its turn comes; what it raises is raised here."""
        done: Future[T] = Future()

        def do() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except HelperStopped:  # a signal came: whoever waits is being cancelled as well
                done.set_exception(CancelledError())
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                done.set_exception(error)

        self.put(do)
        return await asyncio.wrap_future(done)


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
