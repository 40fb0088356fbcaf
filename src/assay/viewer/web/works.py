"""Answers that take a while: made in the background, kept while what they are made from stays the same."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from assay.core.errors import AssayError

__all__ = ["Work", "Works"]

_KEPT = 24


@dataclass(slots=True)
class Work:
    """Something that is being made, or is made."""

    marks: Any
    value: Any = None
    ready: bool = False
    error: AssayError | None = None
    since: float = 0.0
    thread: threading.Thread | None = None

    def result(self) -> Any:
        """What was made; raises what went wrong."""
        if self.error is not None:
            raise self.error
        return self.value


class Works:
    """One piece of work per name; the oldest are forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Work] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, name: Hashable, marks: Any, make: Callable[[], Any], *, wait_s: float = 0.5, stale: bool = False
    ) -> Work:
        """The work of a name, made from what `marks` says; begun where that is needed, waited for a moment.

        `stale`: what was made of earlier marks will do while the new is not ready.
        """
        with self._lock:
            known = self._known.get(name)
            if known is None or known.marks != marks:
                if known is not None and stale and not known.ready:
                    work = known  # somebody is at it already
                else:
                    work = self._begin(name, marks, make)
            else:
                work = known
            self._known.move_to_end(name)
        if not work.ready and work.thread is not None:
            work.thread.join(wait_s)
        if not work.ready and stale and known is not None and known.ready and known.error is None:
            return known
        return work

    def _begin(self, name: Hashable, marks: Any, make: Callable[[], Any]) -> Work:
        work = Work(marks, since=time.monotonic())

        def run() -> None:
            try:
                work.value = make()
            except AssayError as error:
                work.error = error
            except Exception as error:  # noqa: BLE001 - the border of a worker: the page says what happened
                work.error = AssayError(f"{type(error).__name__}: {error}")
            work.ready = True

        work.thread = threading.Thread(target=run, name="assay-view-work", daemon=True)
        self._known[name] = work
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        work.thread.start()
        return work
