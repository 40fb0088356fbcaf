"""The way from code that just calls a function (a metric, a task's helper) to the sandbox of the run that is going on.

`code_eval` is called by helper files that know nothing of Assay, also from threads they start themselves. So whoever
drives them opens a way here, and closes it afterwards; without one, no program is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from assay.core.errors import CannotAnswer
from assay.core.programs import Execution, Program

__all__ = ["Executor", "execute_all", "executing"]


class Executor(Protocol):
    """Runs programs, as many at once as is sensible, and waits for them."""

    def execute_all(self, programs: Sequence[Program]) -> list[Execution]:
        """What became of each, in order.

        Raises:
            AssayError: Nobody allowed it, or no sandbox works here.
        """
        ...


_OPEN: list[Executor] = []
"""For threads that helper code starts itself: the run that was begun last."""

_HERE: ContextVar[Executor | None] = ContextVar("executor", default=None)
"""That of the run the calling code belongs to: several may go on at once."""


@contextmanager
def executing(executor: Executor) -> Iterator[None]:
    """While this is open, programs are run by `executor`."""
    _OPEN.append(executor)
    token = _HERE.set(executor)
    try:
        yield
    finally:
        _HERE.reset(token)
        _OPEN.remove(executor)


def execute_all(programs: Sequence[Program]) -> list[Execution]:
    """Run programs in the sandbox of the run that is going on.

    Raises:
        CannotAnswer: No run is going on, or it does not allow it.
    """
    executor = _HERE.get() or (_OPEN[-1] if _OPEN else None)
    if executor is None:
        raise CannotAnswer(
            "programs written by a model are executed only within a run",
            hint="`with assay.sandboxes.program_runner.allowed():` allows it outside of one",
        )
    return executor.execute_all(programs)
