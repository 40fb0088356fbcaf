"""Limit how long user code may run, and stop code that runs longer.

    with enforce_time_limit(30):
        with current_timer():        # around the code of one document
            helper(document)

In the main thread a signal stops code that hangs, also in a regular expression, a sleep or a socket: a timer of processor
time where Python cannot switch threads, a watcher thread where nothing runs. In other threads only code that returns to
Python can be stopped.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from assay.core.errors import AssayError

__all__ = [
    "CodeTimer",
    "UserCodeExit",
    "UserCodeStopped",
    "UserCodeTimeout",
    "current_timer",
    "enforce_time_limit",
]

_CHECK_INTERVAL_S = 0.5
_STOP_INTERVAL_S = 3.0
"""Code that was stopped gets this long to unwind before it is stopped again."""

_SIGNAL = getattr(signal, "SIGVTALRM", None)
"""SIGALRM is left to helpers, some of which use it."""


class UserCodeStopped(BaseException):
    """User code was stopped from outside. Not an `Exception`, because helpers catch those broadly."""


class UserCodeTimeout(AssayError):
    """User code exceeded its time limit."""


class UserCodeExit(AssayError):
    """User code tried to end the program, or raised a `BaseException`."""

    @classmethod
    def from_exception(cls, error: BaseException) -> UserCodeExit:
        """Describe what the code raised."""
        if isinstance(error, SystemExit):
            return cls(f"the task's code exits the program: exit {error.code}")
        message = f": {error}" if str(error) else ""
        return cls(f"the task's code raises {type(error).__name__}{message}")


class CodeTimer:
    """Measures the user code that one thread runs. Entering costs two assignments."""

    __slots__ = (
        "_has_pending_stop",
        "_is_traced",
        "_limit_override_s",
        "_may_be_interrupted",
        "_next_stop",
        "_started",
        "_stopping",
    )

    def __init__(self) -> None:
        self._may_be_interrupted = threading.current_thread() is threading.main_thread()
        """Ctrl-C may raise `KeyboardInterrupt` in the code without a call of `refuse`."""

        self._limit_override_s: float | None = None
        self._started: float | None = None
        self._stopping = False
        self._next_stop = 0.0
        """Not stopped again before this time."""

        self._has_pending_stop = False
        """An exception was sent to this thread and may not have been raised yet."""

        self._is_traced = False
        """The code caught a stop, so the next one is raised at its next line too."""

    def __enter__(self) -> CodeTimer:
        if self._stopping:
            raise UserCodeStopped("the run is being stopped")
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        """Turn whatever ended the code into an ordinary error, unless the run is being stopped."""
        self._started = None
        self._next_stop = 0.0
        if self._is_traced:
            self._is_traced = False
            sys.settrace(None)
        if self._has_pending_stop:  # it must not hit the next call
            self._has_pending_stop = False
            _consume_pending_stop()
        if kind is UserCodeStopped and not self._stopping:
            raise UserCodeTimeout(self._reason) from error
        if self._stopping or error is None:
            return
        if isinstance(error, KeyboardInterrupt) and self._may_be_interrupted:
            return
        if not isinstance(error, (Exception, UserCodeStopped)):
            raise UserCodeExit.from_exception(error) from error

    @property
    def has_expired(self) -> bool:
        """Whether the code that runs now exceeded its limit or has to stop."""
        started = self._started
        if started is None:
            return False
        return self._stopping or 0 < self._limit_s < time.monotonic() - started

    @property
    def _limit_s(self) -> float:
        if self._limit_override_s is not None:
            return self._limit_override_s
        limits = _limits_s[-1:]  # another run may end at any moment
        return limits[0] if limits else 0.0

    def refuse(self) -> None:
        """Start no more code in this thread; code that runs now has expired."""
        self._stopping = True

    def allow(self) -> None:
        """Start code again."""
        self._stopping = False

    def raise_if_expired(self, frame: FrameType | None) -> None:
        """Raise in the user code if its time is over. The signal handler calls this, in the thread and frame of the code."""
        now = time.monotonic()
        if self.has_expired and now >= self._next_stop:
            if self._next_stop:
                self._is_traced = True
                _raise_in_handlers(frame, self._reason)
            self._next_stop = now + _STOP_INTERVAL_S
            raise UserCodeStopped(self._reason)

    @property
    def _reason(self) -> str:
        if self._stopping:
            return "the run is being stopped"
        return f"the task's code exceeded its time limit of {self._limit_s:g} s (--helper_timeout)"

    @contextmanager
    def expect_refusal_on_interrupt(self) -> Iterator[None]:
        """Treat `KeyboardInterrupt` as an error of the code while the block runs: the handler of Ctrl-C calls `refuse` first."""
        before, self._may_be_interrupted = self._may_be_interrupted, False
        try:
            yield
        finally:
            self._may_be_interrupted = before

    @contextmanager
    def override_limit(self, seconds: float) -> Iterator[None]:
        """Use another limit while the block runs; 0 for none."""
        before, self._limit_override_s = self._limit_override_s, seconds
        try:
            yield
        finally:
            self._limit_override_s = before

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do not measure while the block runs: around waiting for something with a limit of its own."""
        started, self._started = self._started, None
        try:
            yield
        finally:
            self._started = None if started is None else time.monotonic()


class _ThreadTimer(threading.local):
    def __init__(self) -> None:
        self.timer = CodeTimer()
        with _guard:
            _timers[threading.get_ident()] = self.timer


_guard = threading.Lock()
_timers: dict[int, CodeTimer] = {}
_thread_timer = _ThreadTimer()
_limits_s: list[float] = []
"""The limits of the runs in this process; the one that started last counts."""


def current_timer() -> CodeTimer:
    """Return the timer of the calling thread."""
    return _thread_timer.timer


@contextmanager
def enforce_time_limit(limit_s: float) -> Iterator[None]:
    """Stop user code in any thread after this long while the block runs; 0 for no limit."""
    _limits_s.append(limit_s)
    stop = threading.Event()
    watcher = threading.Thread(target=_watch_timers, args=(stop,), name="assay-time-limit", daemon=True)
    with _processor_timer():
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
            _limits_s.remove(limit_s)
            for timer in list(_timers.values()):
                timer.allow()


@contextmanager
def _processor_timer() -> Iterator[None]:
    """Make the main thread check its timer regularly, however busy it is."""
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Callable[..., Any] | int | None = signal.signal(_SIGNAL, _check_main_timer)
    signal.siginterrupt(_SIGNAL, False)
    signal.setitimer(signal.ITIMER_VIRTUAL, _CHECK_INTERVAL_S, _CHECK_INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(_SIGNAL, before or signal.SIG_DFL)


def _check_main_timer(_: int, frame: FrameType | None) -> None:
    timer = _timers.get(threading.main_thread().ident or 0)
    if timer is not None:
        timer.raise_if_expired(frame)


def _raise_in_handlers(frame: FrameType | None, reason: str) -> None:
    """Raise once more at the next line of user code: a loop that catches everything inside would never end."""

    def trace(_: FrameType, event: str, __: Any) -> Any:
        if event == "line":
            raise UserCodeStopped(reason)  # Python stops tracing
        return trace

    sys.settrace(lambda *_: None)
    while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith("assay."):
        frame.f_trace = trace
        frame = frame.f_back


def _watch_timers(stop: threading.Event) -> None:
    """Interrupt threads whose code exceeded its limit and uses no processor time."""
    main = threading.main_thread().ident
    while not stop.wait(_CHECK_INTERVAL_S):
        for thread, timer in list(_timers.items()):
            if not timer.has_expired:
                continue
            if thread == main and _SIGNAL is not None and signal.getsignal(_SIGNAL) is _check_main_timer:
                _interrupt_system_call(thread, _SIGNAL)
            else:
                timer._has_pending_stop = True
                _raise_in_thread(thread, UserCodeStopped)


def _interrupt_system_call(thread: int, number: signal.Signals) -> None:
    """Interrupt the system call of a thread. At other times this signal lets system calls continue."""
    signal.siginterrupt(number, True)
    signal.pthread_kill(thread, number)
    time.sleep(_CHECK_INTERVAL_S / 10)
    signal.siginterrupt(number, False)


def _raise_in_thread(thread: int, error: type[BaseException]) -> None:
    """Make a thread raise this when it next runs Python, instead of what it was to raise before."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def _consume_pending_stop() -> None:
    """Raise and catch the exception that was sent to this thread.

    Withdrawing it instead leaves a flag set in the interpreter (Python 3.11), with which code that is traced never continues.
    """
    try:
        _raise_in_thread(threading.get_ident(), UserCodeStopped)
        while True:
            time.sleep(0)
    except UserCodeStopped:
        pass
