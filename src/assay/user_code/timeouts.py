"""How long a piece of foreign code may take, and how it is ended when it takes longer.

    with current_watch():        # around one document's helper
        helper(document)

In the main thread a signal ends what hangs, also in a regular expression, a sleep or a socket: a timer that counts the
processor's time serves where Python cannot switch threads, a watching thread where nothing runs at all. In other
threads only code that comes back to Python can be ended.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from assay.core.errors import AssayError

__all__ = [
    "HelperQuit",
    "HelperStopped",
    "TookTooLong",
    "Watch",
    "current_watch",
    "wake_main_thread",
    "watching",
]

_TICK_S = 0.5
_GRACE_S = 3.0
"""A second blow would hit whoever is just dealing with the first one."""

_SIGNAL = getattr(signal, "SIGVTALRM", None)
"""The alarm signal itself is left to helpers, some of which use it."""


class HelperStopped(BaseException):
    """Foreign code was ended from outside. No `Exception`: helpers catch those broadly, and would go on."""


class TookTooLong(AssayError):
    """A piece of foreign code used up its time: what a `with current_watch()` raises then."""


class HelperQuit(AssayError):
    """A piece of foreign code tried to end the program, or raised what is meant to pass every border."""

    @classmethod
    def of(cls, error: BaseException) -> HelperQuit:
        if isinstance(error, SystemExit):
            return cls(f"the task's own code ends the program: exit {error.code}")
        return cls(f"the task's own code raises {type(error).__name__}: {error}")


class Watch:
    """One thread's watch over the foreign code it runs. Entering costs two assignments."""

    __slots__ = ("_own_limit_s", "_patient_until", "_since", "_stopping", "_struck")

    def __init__(self) -> None:
        self._own_limit_s: float | None = None
        self._since: float | None = None
        self._stopping = False
        self._patient_until = 0.0
        """Not struck again before: what was struck needs a moment to come to its end."""

        self._struck = False
        """An exception was sent to this thread and may still be under way."""

    def __enter__(self) -> Watch:
        if self._stopping:
            raise HelperStopped("the run is being stopped")
        self._since = time.monotonic()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        """Whatever ended the piece becomes an ordinary error, unless the run is being stopped."""
        self._since = None
        self._patient_until = 0.0
        if self._struck:  # what was meant for this piece must not hit the next one
            self._struck = False
            _send(threading.get_ident(), None)
        if kind is HelperStopped and not self._stopping:
            raise TookTooLong(self._reason) from error
        if not (error is None or isinstance(error, (Exception, HelperStopped, KeyboardInterrupt))):
            raise HelperQuit.of(error) from error

    @property
    def is_late(self) -> bool:
        """Whether what runs now has run too long, or is to stop at once."""
        since = self._since
        if since is None:
            return False
        return self._stopping or 0 < self._limit_s < time.monotonic() - since

    @property
    def _limit_s(self) -> float:
        if self._own_limit_s is not None:
            return self._own_limit_s
        limits = _limits_s[-1:]  # another run may end meanwhile
        return limits[0] if limits else 0.0

    def stop(self) -> None:
        """End what runs now, and let nothing more begin in this thread."""
        self._stopping = True
        self.check()

    def check(self) -> None:
        """Raise in the foreign code if its time is over. Called by the signal handler, in its thread."""
        now = time.monotonic()
        if self.is_late and now >= self._patient_until:
            self._patient_until = now + _GRACE_S
            raise HelperStopped(self._reason)

    @property
    def _reason(self) -> str:
        if self._stopping:
            return "the run is being stopped"
        return f"the task's own code took longer than {self._limit_s:g} s (--helper_timeout)"

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Another limit for a while; 0 for none."""
        before, self._own_limit_s = self._own_limit_s, seconds
        try:
            yield
        finally:
            self._own_limit_s = before

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Around waiting for what has limits of its own, as a judge does."""
        since, self._since = self._since, None
        try:
            yield
        finally:
            self._since = None if since is None else time.monotonic()


class _Local(threading.local):
    def __init__(self) -> None:
        self.watch = Watch()
        with _guard:
            _watches[threading.get_ident()] = self.watch


_guard = threading.Lock()
_watches: dict[int, Watch] = {}
_local = _Local()
_limits_s: list[float] = []
"""The limits of the runs that are going on; the one that was begun last counts."""


def current_watch() -> Watch:
    """The watch of the calling thread."""
    return _local.watch


@contextmanager
def watching(limit_s: float) -> Iterator[None]:
    """While the block runs, foreign code in any thread is ended after this long; 0 for never."""
    _limits_s.append(limit_s)
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(stop,), name="assay-watch", daemon=True)
    with _timer():
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
            _limits_s.remove(limit_s)
            for watch in list(_watches.values()):
                watch._stopping = False


@contextmanager
def _timer() -> Iterator[None]:
    """The main thread looks at its watch now and then, however busy it is."""
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Callable[..., Any] | int | None = signal.signal(_SIGNAL, _look)
    signal.siginterrupt(_SIGNAL, False)
    signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(_SIGNAL, before or signal.SIG_DFL)


def _look(_: int, __: FrameType | None) -> None:
    watch = _watches.get(threading.main_thread().ident or 0)
    if watch is not None:
        watch.check()


def _watch(stop: threading.Event) -> None:
    """Wake those who sleep too long."""
    main = threading.main_thread().ident
    while not stop.wait(_TICK_S):
        for thread, watch in list(_watches.items()):
            if not watch.is_late:
                continue
            if thread == main and _SIGNAL is not None and signal.getsignal(_SIGNAL) is _look:
                _interrupt(thread, _SIGNAL)
            else:
                watch._struck = True
                _send(thread, HelperStopped)


def wake_main_thread() -> None:
    """End what the main thread waits for, so that it attends to signals; nothing where nobody is watching."""
    if _SIGNAL is not None and signal.getsignal(_SIGNAL) is _look:
        _interrupt(threading.main_thread().ident or 0, _SIGNAL)


def _interrupt(thread: int, number: signal.Signals) -> None:
    """End a system call of this thread. At other times the signal lets system calls go on, whoever made them."""
    signal.siginterrupt(number, True)
    signal.pthread_kill(thread, number)
    time.sleep(_TICK_S / 10)
    signal.siginterrupt(number, False)


def _send(thread: int, error: type[BaseException] | None) -> None:
    """Have a thread raise this when it next runs Python; None takes it back."""
    sent = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), sent)
