"""Run programs in a sandbox: select the sandbox for the first program, limit concurrency, count executions.

The limits of a program are its `ResourceLimits` (`assay.core.records.programs`), set by what runs it, such as
`assay.scoring.hf_evaluate.code_eval`. Programs run on an event loop in a separate thread, so that event loops, threads of task code and plans can wait for them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from assay.core.errors import UnsupportedRequest
from assay.core.options.run_spec import RunSpec
from assay.core.ports import Sandbox
from assay.core.program_executor import use_executor
from assay.core.records.programs import Execution, IsolationReport, Program
from assay.sandboxes import choose_sandbox

__all__ = ["ProgramRunner", "allow_programs", "count_usable_cores", "programs_for_run"]


class ProgramRunner:
    """Runs the programs of one run. Starts nothing before the first program."""

    def __init__(
        self,
        sandbox: str = "auto",
        arguments: Mapping[str, Any] | None = None,
        *,
        i_know: bool = False,
        max_concurrent: int = 0,
    ) -> None:
        self._sandbox_name, self._arguments, self._i_know = sandbox, dict(arguments or {}), i_know
        self._max_concurrent = max_concurrent or count_usable_cores()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._slots: asyncio.Semaphore | None = None
        self._selected: tuple[Sandbox, IsolationReport] | None = None
        self._remote_isolation: IsolationReport | None = None
        self.allowed = True
        """Whether programs are allowed. If not, every program raises an error."""

        self.executed = 0
        """The number of finished programs."""

        self.wait: Callable[[Future[Execution]], Execution] = Future.result
        """Waits for a program. A run replaces it, so that other user code runs meanwhile."""

    @property
    def isolation(self) -> IsolationReport | None:
        """The isolation report of the sandbox, or None if no sandbox was used yet."""
        return self._selected[1] if self._selected is not None else self._remote_isolation

    def record_remote(self, executed: int, isolation: IsolationReport | None) -> None:
        """Add programs that a worker executed. A local isolation report takes precedence."""
        self.executed += executed
        self._remote_isolation = self._remote_isolation or isolation

    def open(self) -> IsolationReport:
        """Select the sandbox now.

        Raises:
            AssayError: The sandbox does not exist or does not work on this machine.
        """
        chosen: tuple[Sandbox, IsolationReport] = self._submit(self._choose()).result()
        return chosen[1]

    async def execute(self, program: Program) -> Execution:
        """Execute one program, for `Services`."""
        return await asyncio.wrap_future(self._submit(self._execute(program)))

    def execute_programs(self, programs: Sequence[Program]) -> list[Execution]:
        """Execute programs and block until all are finished, for `ProgramExecutor`."""
        started = [self._submit(self._execute(program)) for program in programs]
        try:
            return [self.wait(work) for work in started]
        finally:
            for work in started:
                work.cancel()

    def close(self) -> None:
        """Stop all programs. A later program starts a new event loop."""
        with self._lock:
            loop, thread, self._loop, self._thread, self._slots = self._loop, self._thread, None, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    # --- on the loop -------------------------------------------------------------------------------

    async def _execute(self, program: Program) -> Execution:
        _name_task()
        if not self.allowed:
            raise UnsupportedRequest(
                "the task executes code written by the model, which this run does not allow",
                hint="add --confirm_run_unsafe_code to allow it",
            )
        sandbox, _ = await self._choose()
        assert self._slots is not None
        async with self._slots:
            done = await sandbox.execute(program)
        self.executed += 1
        return done

    async def _choose(self) -> tuple[Sandbox, IsolationReport]:
        _name_task()
        if self._selected is None:
            assert self._slots is not None
            async with self._slots:  # a concurrent call finds the selected sandbox
                self._selected = self._selected or await choose_sandbox(
                    self._sandbox_name, self._arguments, i_know=self._i_know
                )
        return self._selected

    def _submit(self, work: Any) -> Future[Any]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._slots = asyncio.Semaphore(self._max_concurrent)
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="assay-programs", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)


_TASK_NAME = "assay-program"


def _name_task() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.set_name(_TASK_NAME)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped, then cancel the remaining tasks, which stops their programs."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = [task for task in asyncio.all_tasks(loop) if task.get_name() == _TASK_NAME]
        for task in left:  # not the tasks of asyncio itself, which ours wait for
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@contextmanager
def programs_for_run(programs: ProgramRunner, spec: RunSpec) -> Iterator[None]:
    """Allow programs during a run if the user confirmed it, and stop them at the end."""
    # `code_eval` of Hugging Face uses this environment variable
    programs.allowed = spec.confirm_run_unsafe_code or os.environ.get("HF_ALLOW_CODE_EVAL") == "1"
    try:
        with use_executor(programs):
            yield
    finally:
        programs.close()


@contextmanager
def allow_programs(
    sandbox: str = "auto", *, i_know: bool = False, **arguments: Any
) -> Iterator[ProgramRunner]:
    """Allow metrics to execute programs outside a run. `i_know` accepts a sandbox that does not block everything.

    with allow_programs():
        load_metric("code_eval").compute(predictions=[["x = 1"]], references=["assert x"], k=[1])
    """
    programs = ProgramRunner(sandbox, arguments, i_know=i_know)
    try:
        with use_executor(programs):
            yield programs
    finally:
        programs.close()


def count_usable_cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
