"""`execute`: programs to executions. Chooses the sandbox when the first program comes, runs a few at once, keeps count.

Programs run on a loop in a thread of its own, so that whoever waits for one (an event loop, a helper's thread, a plan)
can do so without knowing the others.
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
from assay.core.programs import Execution, IsolationReport, Program
from assay.sandboxes import choose_sandbox

__all__ = ["ProgramRunner", "allow_programs", "count_usable_cores", "programs_for_run"]


class ProgramRunner:
    """The programs of one run. Nothing is started before the first of them."""

    def __init__(
        self, sandbox: str = "auto", arguments: Mapping[str, Any] | None = None, *, at_once: int = 0
    ) -> None:
        self._wanted, self._arguments = sandbox, dict(arguments or {})
        self._at_once = at_once or count_usable_cores()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._room: asyncio.Semaphore | None = None
        self._chosen: tuple[Sandbox, IsolationReport] | None = None
        self._elsewhere: IsolationReport | None = None
        self.allowed = True
        """False: every program is refused."""

        self.executed = 0
        """Programs that came to an end."""

        self.wait: Callable[[Future[Execution]], Execution] = Future.result
        """Waits for a program. A run replaces it, so that other user code runs meanwhile."""

    @property
    def isolation(self) -> IsolationReport | None:
        """What the sandbox isolates; None as long as none was needed."""
        return self._chosen[1] if self._chosen is not None else self._elsewhere

    def record_remote(self, executed: int, isolation: IsolationReport | None) -> None:
        """Programs that came to an end elsewhere, and what isolated them; what is known here goes before."""
        self.executed += executed
        self._elsewhere = self._elsewhere or isolation

    def open(self) -> IsolationReport:
        """Choose the sandbox now.

        Raises:
            AssayError: There is none of that name, or it does not work here.
        """
        chosen: tuple[Sandbox, IsolationReport] = self._submit(self._choose()).result()
        return chosen[1]

    async def execute(self, program: Program) -> Execution:
        """As `Services` has it."""
        return await asyncio.wrap_future(self._submit(self._execute(program)))

    def execute_programs(self, programs: Sequence[Program]) -> list[Execution]:
        """As code that just calls a function has it."""
        started = [self._submit(self._execute(program)) for program in programs]
        try:
            return [self.wait(work) for work in started]
        finally:
            for work in started:
                work.cancel()

    def close(self) -> None:
        """End what is running. A later program starts all again."""
        with self._lock:
            loop, thread, self._loop, self._thread, self._room = self._loop, self._thread, None, None, None
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
        assert self._room is not None
        async with self._room:
            done = await sandbox.execute(program)
        self.executed += 1
        return done

    async def _choose(self) -> tuple[Sandbox, IsolationReport]:
        _name_task()
        if self._chosen is None:
            assert self._room is not None
            async with self._room:  # whoever comes second finds it chosen, or chooses the same
                self._chosen = self._chosen or await choose_sandbox(self._wanted, self._arguments)
        return self._chosen

    def _submit(self, work: Any) -> Future[Any]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._room = asyncio.Semaphore(self._at_once)
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="assay-programs", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)


_OURS = "assay-program"


def _name_task() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.set_name(_OURS)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped; then end what is left of it, which ends the programs too."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = [task for task in asyncio.all_tasks(loop) if task.get_name() == _OURS]
        for task in left:  # not those of asyncio itself, which ours are waiting for
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@contextmanager
def programs_for_run(programs: ProgramRunner, spec: RunSpec) -> Iterator[None]:
    """During a run: programs are executed where the user allowed it, and none outlives the run."""
    # the variable is the one the published metric asks for
    programs.allowed = spec.confirm_run_unsafe_code or os.environ.get("HF_ALLOW_CODE_EVAL") == "1"
    try:
        with use_executor(programs):
            yield
    finally:
        programs.close()


@contextmanager
def allow_programs(sandbox: str = "auto", **arguments: Any) -> Iterator[ProgramRunner]:
    """Outside of a run: metrics that execute programs may do so in here.

    >>> from assay.scoring.hf_evaluate import load
    >>> with allowed("limits"):
    ...     load("code_eval").compute(predictions=[["x = 1"]], references=["assert x"], k=[1])[0]
    {'pass@1': 1.0}
    """
    programs = ProgramRunner(sandbox, arguments)
    try:
        with use_executor(programs):
            yield programs
    finally:
        programs.close()


def count_usable_cores() -> int:
    """The processors this process may use: so many programs run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
