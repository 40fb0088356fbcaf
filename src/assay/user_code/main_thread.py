"""The main thread, lent to foreign code while the event loop runs in another one.

Task helpers were written for the main thread: some set signal handlers, which Python allows nowhere else. And only
there can a signal end a helper that hangs in a regular expression, a sleep or a socket. So the loop moves out.
"""

from __future__ import annotations

import asyncio
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, TypeVar

from assay.user_code.timeouts import HelperStopped, current_watch, wake_main_thread

__all__ = ["borrowed", "run_beside_helpers"]

T = TypeVar("T")

_KNOCK_S = 0.05

_lent: list[_Beside[Any]] = []


def borrowed(work: Callable[[], None]) -> bool:
    """Have the main thread do this, if it is lent to the calling loop and free; False where it is not."""
    return bool(_lent) and _lent[0].take(work)


def run_beside_helpers(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, with foreign code in the main thread and the loop in another one.

    Elsewhere than in the main thread it is `asyncio.run` and nothing else. Ctrl-C cancels the work, as there.
    """
    if threading.current_thread() is not threading.main_thread() or _lent:
        return asyncio.run(work)
    beside = _Beside(work)
    _lent.append(beside)
    try:
        with beside.hearing_signals():
            beside.start()
            beside.serve()
    finally:
        _lent.clear()
    return beside.result()


class _Beside(Generic[T]):
    """A loop in a thread of its own, and the main thread that waits for work meanwhile."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._free = threading.Semaphore()
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._interrupted = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="assay-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self, work: Callable[[], None]) -> bool:
        """Do this now, unless the main thread is busy or it is another loop that asks."""
        if threading.current_thread() is not self._thread or not self._free.acquire(blocking=False):
            return False
        self._waiting.put(work)
        return True

    def serve(self) -> None:
        """Do what foreign code is given here until the loop has ended."""
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except HelperStopped:  # it came too late for whom it was meant
                pass
            finally:
                self._free.release()
        self._thread.join()

    def result(self) -> T:
        if self._interrupted and isinstance(self._error, asyncio.CancelledError):
            raise KeyboardInterrupt from None
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        async def known() -> T:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            return await self._work

        try:
            self._results.append(asyncio.run(known()))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error
        finally:
            self._waiting.put(None)

    @contextmanager
    def hearing_signals(self) -> Iterator[None]:
        """The first Ctrl-C or termination cancels the work and whatever helper is running; a second Ctrl-C is harder."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        if before[signal.SIGINT] is not signal.default_int_handler:  # somebody else has plans for it
            before = {signal.SIGTERM: before[signal.SIGTERM]}
        for number in before:
            signal.signal(number, self._stop)
        try:
            with self._hearing_at_once(frozenset(before)):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _hearing_at_once(self, numbers: frozenset[int]) -> Iterator[None]:
        """Knock at the main thread when a signal comes.

        Python acts on signals there, between two steps. One that arrives just before it begins to wait, or in another
        thread, would be acted on when the wait is over: with a silent judge, minutes later.
        """
        ear, mouth = socket.socketpair()
        mouth.setblocking(False)

        def knock() -> None:
            while heard := ear.recv(64):  # a byte for each signal
                while not numbers.isdisjoint(heard) and not self._stopped:
                    wake_main_thread()
                    time.sleep(_KNOCK_S)

        knocking = threading.Thread(target=knock, name="assay-signals", daemon=True)
        knocking.start()
        before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self._stopped = True
            mouth.close()
            knocking.join()
            ear.close()

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._stopped = True
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        current_watch().stop()
