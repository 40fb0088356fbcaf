"""Several threads of which one runs at a time: whoever holds the baton.

A piece of foreign code that has to wait for the world (a judge's reply) lays the baton down and takes it up again
afterwards; meanwhile another thread goes on with what is next. So foreign code never runs twice at once, and many of
its questions are open at the same time.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from assay.user_code.main_thread import borrowed
from assay.user_code.timeouts import HelperStopped, current_watch

__all__ = ["Crew"]

_THREADS = 64
"""Pieces that may wait for the world at the same time."""

_PATIENCE_S = 60.0
"""How long one who waited waits for the baton. Whoever has it may be waiting in turn for a lock that this one holds."""

T = TypeVar("T")
R = TypeVar("R")


class Crew:
    """Does work in the order it is given, one piece at a time, in threads that do not keep the process alive."""

    def __init__(self, name: str, *, threads: int = _THREADS, patience_s: float = _PATIENCE_S) -> None:
        self._name = name
        self._patience_s = patience_s
        self._most = threads
        self._turn = threading.Condition()
        self._work: deque[Callable[[], None]] = deque()
        self._returning: deque[object] = deque()
        """Those who waited and want to go on; they come before new work."""

        self._running = 0
        self._threads = self._paused = 0
        self._closed = False
        self._here = threading.local()

    def put(self, work: Callable[[], None]) -> None:
        """Do this when its turn comes, in the context of who asks for it. What it raises is its own business."""
        with self._turn:
            self._work.append(partial(copy_context().run, work))
            self._staff()
            self._turn.notify_all()

    def close(self) -> None:
        """Take no more work. Whatever is running is left to itself."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def holds_baton(self) -> bool:
        """Whether the calling thread is the one that runs."""
        return getattr(self._here, "holds", False)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Around waiting for the world: others may run; the global generators are afterwards where they were."""
        if (
            not self.holds_baton()
        ):  # a thread that foreign code started itself: it waits without troubling anybody
            yield
            return
        with current_watch().paused():  # nothing may end this half-way: others count on who has the baton
            states = _generator_states()
            self._lay_down()
            try:
                yield
            finally:
                self._take_up()
                _set_generator_states(states)

    def _lay_down(self) -> None:
        batch: _Batch[Any, Any] | None = getattr(self._here, "batch", None)
        self._here.holds = False
        with self._turn:
            if batch is not None and batch.offer():
                self._work.appendleft(partial(copy_context().run, self._go_on, batch))
            self._running -= 1
            self._paused += 1
            if self._work:
                self._staff()
            self._turn.notify_all()

    def _take_up(self) -> None:
        ticket = object()
        with self._turn:
            self._returning.append(ticket)
            try:
                self._turn.wait_for(
                    lambda: self._closed or (not self._running and self._returning[0] is ticket),
                    self._patience_s,
                )
            finally:  # also when Ctrl-C ends the wait: whoever runs is counted, and gives it back at its end
                self._returning.remove(ticket)
                self._paused -= 1
                self._running += 1
        self._here.holds = True

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The function of every item, begun in order; while one waits for the world, the next is begun.

        Called by work of this crew. What an item raises is raised here, once all are done.

        Raises:
            HelperStopped: The crew was closed before all were done. An item that hangs keeps nobody waiting.
        """
        batch = _Batch(function, items)
        before = getattr(self._here, "batch", None)
        try:
            self._go_on(batch)
        finally:
            self._here.batch = before
        if not batch.done:
            with self.pause(), self._turn:
                self._turn.wait_for(lambda: batch.done or self._closed)
        if not batch.done:
            raise HelperStopped("the run is being stopped")
        return batch.results()

    def _go_on(self, batch: _Batch[Any, Any]) -> None:
        self._here.batch = batch
        batch.offered = False
        while not self._closed and batch.do_next():
            pass
        self._here.batch = None
        with self._turn:
            self._turn.notify_all()  # whoever waits for the batch looks whether it is done

    def _staff(self) -> None:
        """A thread more where all wait for the world, the main one first; called with the lock held."""
        if self._threads == self._paused and self._threads < self._most:
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            if not borrowed(self._serve):
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(self._may_begin)
                if not self._work:  # closed
                    self._threads -= 1
                    return
                work = self._work.popleft()
                self._running += 1
            self._here.holds = True
            try:
                work()
            finally:
                self._here.holds = False
                with self._turn:
                    self._running -= 1
                    self._turn.notify_all()

    def _may_begin(self) -> bool:
        if self._work:
            return not self._running and not self._returning
        return self._closed


class _Batch(Generic[T, R]):
    """Items that several threads take from, one after the other; at once only where one lost its patience."""

    def __init__(self, function: Callable[[T], R], items: Sequence[T]) -> None:
        self._function = function
        self._items = items
        self._lock = threading.Lock()
        self._next = 0
        self._open = len(items)
        self._results: dict[int, R] = {}
        self._errors: dict[int, BaseException] = {}
        self.offered = False
        """Whether its remaining items wait in the queue for another thread."""

    @property
    def done(self) -> bool:
        """Whether every item came to its end."""
        return not self._open

    def offer(self) -> bool:
        """Whether the rest has to be put into the queue, which is done once."""
        if self.offered or self._next >= len(self._items):
            return False
        self.offered = True
        return True

    def do_next(self) -> bool:
        """Do the next item; False when all have been begun."""
        with self._lock:
            if self._next >= len(self._items):
                return False
            at = self._next
            self._next += 1
        try:
            self._results[at] = self._function(self._items[at])
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the batch
            self._errors[at] = error
        with self._lock:
            self._open -= 1
        return True

    def results(self) -> list[R]:
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._results[at] for at in range(len(self._items))]


def _generator_states() -> tuple[Any, Any]:
    import numpy

    return random.getstate(), numpy.random.get_state()


def _set_generator_states(states: tuple[Any, Any]) -> None:
    import numpy

    random.setstate(states[0])
    numpy.random.set_state(states[1])
