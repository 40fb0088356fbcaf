"""Task helpers run here: one piece at a time, off the event loop, on draws that do not depend on timing.

Helpers may keep state, draw from the global generators, or hang. So they run in threads of their own, one at a time
(daemons: a helper that hangs does not keep the process alive), and the generators are put where they belong before
each piece.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from assay.core.fingerprints import digest_text
from assay.user_code.executor import Crew
from assay.user_code.timeouts import HelperStopped

__all__ = ["Draws", "ForeignCode", "seed_globals"]

T = TypeVar("T")


class ForeignCode(Crew):
    """Threads of their own for code that is not ours; one runs at a time."""

    def __init__(self) -> None:
        super().__init__("assay-foreign-code")
        self._surroundings = _Surroundings()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work when its turn comes; what it raises is raised here."""
        done: Future[T] = Future()

        def do() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                with self._surroundings:
                    made = work()
                done.set_result(made)
            except HelperStopped:  # a signal came: whoever waits is being cancelled as well
                done.set_exception(CancelledError())
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                done.set_exception(error)

        self.put(do)
        return await asyncio.wrap_future(done)


class _Surroundings:
    """What the process looks like to foreign code, and what it looks like again when no piece is under way.

    Standard output is for results alone, so what helpers print goes to standard error. A helper that moves to another
    folder or swaps the streams does so for itself. Several pieces may be under way, where all but one wait.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._guard = threading.Lock()
        self._streams: tuple[TextIO, TextIO] = (sys.stdout, sys.stderr)
        self._place: Path | None = None

    def __enter__(self) -> None:
        with self._guard:
            self._inside += 1
            if self._inside == 1:
                self._streams = sys.stdout, sys.stderr
                self._place = None
                with suppress(OSError):  # a folder that was removed meanwhile
                    self._place = Path.cwd()
            sys.stdout = sys.stderr = self._streams[1]

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._inside -= 1
            output, errors = self._streams
            sys.stdout, sys.stderr = (errors if self._inside else output), errors
            with suppress(OSError):
                if self._place is not None and Path.cwd() != self._place:
                    os.chdir(self._place)


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
