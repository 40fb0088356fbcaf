"""Run the event loop beside user code: the calling thread runs the code, another thread runs the loop.

Task helpers are written for the main thread: some set signal handlers, which Python allows nowhere else, and only there
can a signal stop code that hangs. A plan without user code needs no second thread: the loop runs in the calling thread.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, Generic, TypeVar

from assay.user_code.executor import DirectExecutor, Executor, UserCodeExecutor
from assay.user_code.timeouts import UserCodeStopped, current_timer

__all__ = ["interrupt_on_signals", "run_coroutine", "run_with_user_code", "run_without_user_code"]

T = TypeVar("T")


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` that also works inside a notebook, whose loop already runs in this thread."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    results: list[T] = []

    async def collect() -> None:
        # Not the result of the task: `asyncio.run` builds the repr of its task, and that of a run loads the viewer.
        results.append(await work)

    try:
        asyncio.run(collect())
    finally:
        asyncio._set_running_loop(outer)
        if outer is not None:
            asyncio.set_event_loop(outer)
    return results[0]


def run_without_user_code(work: Callable[[Executor], Coroutine[Any, Any, T]]) -> T:
    """Run the work with the event loop in the calling thread. SIGTERM cancels it, as Ctrl-C does."""

    async def run() -> T:
        with _cancel_on_sigterm():
            return await work(DirectExecutor())

    return run_coroutine(run())


def run_with_user_code(work: Callable[[Executor], Coroutine[Any, Any, T]]) -> T:
    """Run the work with the event loop in another thread; the calling thread runs user code.

    The first Ctrl-C or SIGTERM cancels the work and stops the code that runs; a second Ctrl-C raises at once.
    """
    executor = UserCodeExecutor()
    loop = _LoopThread(work(executor), executor)
    try:
        with loop.handle_signals():
            loop.start()
            executor.serve()
            loop.join()
    finally:
        current_timer().allow()
    return loop.result()


class _LoopThread(Generic[T]):
    """An event loop in a thread of its own that runs one coroutine."""

    def __init__(self, work: Coroutine[Any, Any, T], executor: UserCodeExecutor) -> None:
        self._work = work
        self._executor = executor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._interrupted = False
        self._thread = threading.Thread(target=self._run, name="assay-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, in steps: signals are handled between them."""
        while self._thread.is_alive():
            self._thread.join(0.1)

    def result(self) -> T:
        if self._interrupted and isinstance(self._error, asyncio.CancelledError):
            raise KeyboardInterrupt from None
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        async def run() -> T:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            return await self._work

        try:
            self._results.append(asyncio.run(run()))
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            self._error = error
        finally:
            self._executor.close()

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Cancel the work on Ctrl-C and SIGTERM, if this is the main thread and nobody else handles them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with _install_handler(self._on_signal):
            yield

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        current_timer().refuse()
        if self._executor.is_running:
            raise UserCodeStopped("the run is being stopped")


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Make the first Ctrl-C raise `KeyboardInterrupt` and SIGTERM `CancelledError`, also in code that never awaits.

    `asyncio.run` only cancels its task on the first Ctrl-C, which code that never awaits does not notice.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    exceptions: list[type[BaseException]] = []

    def on_interrupt(number: int, _: FrameType | None) -> None:
        exceptions.append(KeyboardInterrupt if number == signal.SIGINT else asyncio.CancelledError)
        current_timer().refuse()  # code that catches the exception is stopped again
        raise exceptions[0]

    try:
        with _install_handler(on_interrupt):
            yield
    except UserCodeStopped:  # the timer was faster than the exception of the signal
        if exceptions:
            raise exceptions[0] from None
        raise
    finally:
        current_timer().allow()


@contextmanager
def _install_handler(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C, if nobody else does, and SIGTERM. The handler calls `refuse`."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if before[signal.SIGINT] is not signal.default_int_handler:
        del before[signal.SIGINT]
    handles_interrupt = signal.SIGINT in before
    for number in before:
        signal.signal(number, handler)
    try:
        with current_timer().expect_refusal_on_interrupt() if handles_interrupt else nullcontext():
            yield
    finally:
        for number, original in before.items():
            signal.signal(number, original)


@contextmanager
def _cancel_on_sigterm() -> Iterator[None]:
    task = asyncio.current_task()
    if task is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    except NotImplementedError:  # Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
