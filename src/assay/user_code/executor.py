"""Run user code serially in one thread, and let calls that wait for a judge or a program overlap.

User code never runs twice at once and never leaves its thread: helpers keep state, draw from the global random generators
and set signal handlers. A call that waits (`wait`) is suspended as a greenlet, and the thread continues with the next call.

    loop thread:   await executor.run(judge_documents)
    this thread:   executor.serve()  ->  map(judge_one, documents)  ->  wait(judge_reply)  ->  next document
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from greenlet import getcurrent, greenlet

from assay.user_code.process_state import ProcessState
from assay.user_code.timeouts import UserCodeStopped, current_timer

__all__ = ["DirectExecutor", "Executor", "QueuedCall", "UserCodeExecutor"]

T = TypeVar("T")
R = TypeVar("R")

MAX_SUSPENDED_CALLS = 64
"""Calls of one `map` that may wait at the same time."""

POLL_INTERVAL_S = 0.1
"""How often an idle executor looks for signals. Python handles a signal only between two steps of the main thread."""


class Executor(Protocol):
    """Runs the stages of a run that may call a task's own code."""

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns; raise what it raises."""
        ...

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call the function with each item, in order. Only from inside `run`."""
        ...

    def wait(self, future: Future[T]) -> T:
        """Return the result of a future that another thread completes. Only from inside `run`."""
        ...

    def close(self) -> None:
        """Accept no more work."""
        ...


class DirectExecutor:
    """Calls everything at once, in the thread of the event loop: for plans without user code."""

    async def run(self, work: Callable[[], T]) -> T:
        """Call the work."""
        return work()

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call the function with each item."""
        return [function(item) for item in items]

    def wait(self, future: Future[T]) -> T:
        """Block until the future is done. Never called on the event loop: only user code and programs wait."""
        return future.result()

    def close(self) -> None:
        """Nothing to close."""


class UserCodeExecutor:
    """Runs work from any thread in the thread that calls `serve`."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[QueuedCall | greenlet | None] = queue.SimpleQueue()
        """New calls, calls whose wait is over, or None when the executor is closed."""

        self._calls: deque[QueuedCall] = deque()
        self._resumable: deque[greenlet] = deque()
        self._suspended: set[greenlet] = set()
        self._thread: int | None = None
        self._hub: greenlet | None = None
        self._closed = False

    # --- for the event loop ------------------------------------------------------------------------

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work when its turn comes; raise what it raises."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue the work, in the context of the caller."""
        result: Future[T] = Future()

        def call() -> None:
            try:
                if result.set_running_or_notify_cancel():
                    result.set_result(work())
            except UserCodeStopped:  # a signal stopped it: the run is being cancelled
                if not result.done():
                    result.set_exception(CancelledError())
            except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
                result.set_exception(error)

        self._inbox.put(QueuedCall(call, copy_context()))
        return result

    def close(self) -> None:
        """Accept no more work and end `serve`. Calls that wait are stopped."""
        self._closed = True
        self._inbox.put(None)

    # --- for the thread that runs user code ---------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the calling thread runs user code now."""
        return threading.get_ident() == self._thread and getcurrent() is not self._hub

    def serve(self) -> None:
        """Run calls in this thread until the executor is closed."""
        self._thread, self._hub = threading.get_ident(), getcurrent()
        state = ProcessState()
        with state.redirect_output():
            try:
                while not self._closed:
                    idle = not self._resumable and not self._calls
                    self._receive(POLL_INTERVAL_S if idle else 0)
                    with suppress(
                        UserCodeStopped
                    ):  # a signal stopped a call before its first or after its last line
                        if self._resumable:
                            self._switch_to(self._resumable.popleft())
                        elif self._calls:
                            self._switch_to(self._calls.popleft().to_greenlet())
                    state.restore()
            finally:
                self._stop_suspended()
                self._thread = self._hub = None

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call the function with each item, started in order; while one call waits, the next one starts.

        What a call raises is raised here, after all of them ended.
        """
        if not self.is_running:
            return [function(item) for item in items]
        batch: _Batch[R] = _Batch(len(items))
        waiting = iter(enumerate(items))
        while batch.started < len(items):
            while batch.started - batch.ended >= MAX_SUSPENDED_CALLS:
                self.wait(batch.next_end())
            self._resume_ready()
            call = QueuedCall(partial(self._call_in_turn, batch, function, waiting), copy_context())
            batch.running = call.to_greenlet()
            self._switch_to(batch.running)
            batch.running = None
        while batch.ended < batch.started:
            self.wait(batch.next_end())
        return batch.results()

    def _call_in_turn(
        self, batch: _Batch[R], function: Callable[[T], R], waiting: Iterator[tuple[int, T]]
    ) -> None:
        """Call the function with one item after another, until a call had to wait or another one can continue.

        A switch between greenlets costs more than most calls, and few calls wait.
        """
        current = getcurrent()
        for index, item in waiting:
            batch.started += 1
            copy_context().run(batch.call, index, function, item)
            if batch.running is not current or self._resumable or not self._inbox.empty():
                return

    def wait(self, future: Future[T]) -> T:
        """Suspend the calling code until another thread completes the future; other calls run meanwhile.

        The time limit does not count while it waits, and the global random generators continue where they were.
        A thread that user code started itself blocks.
        """
        if future.done() or not self.is_running:
            return future.result()
        current = getcurrent()
        future.add_done_callback(lambda _: self._inbox.put(current))
        self._suspended.add(current)
        generators = _get_generator_states()
        try:
            with current_timer().pause():
                assert current.parent is not None
                current.parent.switch()
        finally:
            self._suspended.discard(current)
            _set_generator_states(generators)
        return future.result()

    # --- switching ---------------------------------------------------------------------------------

    def _receive(self, timeout_s: float) -> None:
        """Drain the inbox; with a timeout, block until the first item arrives."""
        try:
            message = self._inbox.get(timeout=timeout_s) if timeout_s else self._inbox.get_nowait()
            while True:
                if isinstance(message, greenlet):
                    self._resumable.append(message)
                elif message is not None:
                    self._calls.append(message)
                message = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _resume_ready(self) -> None:
        """Continue the calls whose wait is over: they come before new ones."""
        self._receive(0)
        while self._resumable:
            self._switch_to(self._resumable.popleft())

    def _switch_to(self, call: greenlet) -> None:
        """Run a call until it ends or waits; then control comes back here."""
        call.parent = getcurrent()
        with current_timer().pause():
            call.switch()

    def _stop_suspended(self) -> None:
        while self._suspended:
            call = self._suspended.pop()
            call.parent = getcurrent()
            with suppress(UserCodeStopped):
                call.throw(UserCodeStopped("the run is being stopped"))


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """A call that has not started, with the context variables of its caller."""

    function: Callable[[], None]
    context: Context

    def to_greenlet(self) -> greenlet:
        call = greenlet(self.function)
        call.gr_context = self.context
        return call


class _Batch(Generic[R]):
    """The calls of one `map`."""

    def __init__(self, size: int) -> None:
        self.started = self.ended = 0
        self.running: greenlet | None = None
        """The greenlet that starts calls. One that had to wait starts no more."""

        self._size = size
        self._results: dict[int, R] = {}
        self._errors: dict[int, BaseException] = {}
        self._end: Future[None] | None = None

    def call(self, index: int, function: Callable[[T], R], item: T) -> None:
        """Call the function and keep its result or its exception."""
        try:
            self._results[index] = function(item)
        except BaseException as error:  # noqa: BLE001 - raised again by `results`
            self._errors[index] = error
        self.ended += 1
        end, self._end = self._end, None
        if end is not None:
            end.set_result(None)

    def next_end(self) -> Future[None]:
        """Return a future that is done when another call has ended."""
        if self._end is None:
            self._end = Future()
        return self._end

    def results(self) -> list[R]:
        """Return the results in order; raise the first exception."""
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._results[index] for index in range(self._size)]


def _get_generator_states() -> tuple[Any, Any]:
    import numpy

    return random.getstate(), numpy.random.get_state()


def _set_generator_states(states: tuple[Any, Any]) -> None:
    import numpy

    random.setstate(states[0])
    numpy.random.set_state(states[1])
