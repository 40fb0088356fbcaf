"""Gives metrics and task code access to the sandbox of the current run.

Helper functions that call `code_eval` do not know about Assay and may call it from threads they start. The engine
therefore registers an executor around them with `use_executor`. Without one, no program is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from assay.core.errors import UnsupportedRequest
from assay.core.records.programs import Execution, Program

__all__ = ["ProgramExecutor", "execute_programs", "use_executor"]


class ProgramExecutor(Protocol):
    """Runs programs concurrently and waits for them."""

    def execute_programs(self, programs: Sequence[Program]) -> list[Execution]:
        """Return the execution of each program, in order.

        Raises:
            AssayError: Executing programs is not allowed, or no sandbox works on this machine.
        """
        ...


_active_executors: list[ProgramExecutor] = []
"""Executors of all active runs. Threads started by helper functions use the most recent one."""

_current_executor: ContextVar[ProgramExecutor | None] = ContextVar("executor", default=None)
"""The executor of the run the calling code belongs to; several runs can be active at once."""


@contextmanager
def use_executor(executor: ProgramExecutor) -> Iterator[None]:
    """Run programs with `executor` inside the `with` block."""
    _active_executors.append(executor)
    token = _current_executor.set(executor)
    try:
        yield
    finally:
        _current_executor.reset(token)
        _active_executors.remove(executor)


def execute_programs(programs: Sequence[Program]) -> list[Execution]:
    """Run programs in the sandbox of the current run.

    Raises:
        UnsupportedRequest: There is no current run, or it does not allow executing programs.
    """
    executor = _current_executor.get() or (_active_executors[-1] if _active_executors else None)
    if executor is None:
        raise UnsupportedRequest(
            "model-written programs can only be executed within a run",
            hint="`with assay.sandboxes.program_runner.allow_programs():` allows it outside a run",
        )
    return executor.execute_programs(programs)
