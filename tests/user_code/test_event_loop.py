"""Tests of the event loop beside user code: signals, results, notebooks."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import nullcontext, suppress

import pytest

from assay.user_code.event_loop import (
    interrupt_on_signals,
    run_coroutine,
    run_with_user_code,
    run_without_user_code,
)
from assay.user_code.executor import Executor
from assay.user_code.timeouts import UserCodeExit, UserCodeStopped, current_timer, enforce_time_limit


def test_user_code_runs_in_the_calling_thread_and_the_loop_in_another() -> None:
    async def threads(executor: Executor) -> tuple[str, str]:
        return threading.current_thread().name, await executor.run(lambda: threading.current_thread().name)

    assert run_with_user_code(threads) == ("assay-loop", threading.current_thread().name)


def test_without_user_code_everything_runs_in_the_calling_thread() -> None:
    async def threads(executor: Executor) -> tuple[int, int]:
        return threading.get_ident(), await executor.run(threading.get_ident)

    assert run_without_user_code(threads) == (threading.get_ident(), threading.get_ident())


@pytest.mark.parametrize("run", [run_with_user_code, run_without_user_code])
def test_an_exception_of_the_work_is_raised(run: object) -> None:
    async def fail(_: Executor) -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run(fail)  # type: ignore[operator]


def test_a_coroutine_runs_inside_a_running_loop_as_in_a_notebook() -> None:
    async def inner() -> int:
        await asyncio.sleep(0)
        return 3

    async def cell() -> int:
        loop = asyncio.get_running_loop()
        result = run_coroutine(inner())
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        return result

    assert asyncio.run(cell()) == 3


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, asyncio.CancelledError)]
)
def test_a_signal_stops_user_code_that_hangs(number: signal.Signals, expected: type[BaseException]) -> None:
    def hang() -> None:
        os.kill(os.getpid(), number)
        while True:
            time.sleep(0.01)

    async def work(executor: Executor) -> None:
        await executor.run(hang)

    started = time.monotonic()
    with enforce_time_limit(0), pytest.raises(expected):
        run_with_user_code(work)
    assert time.monotonic() - started < 60
    with current_timer():  # the next run starts code again
        pass


def test_a_signal_is_handled_while_no_user_code_runs() -> None:
    async def work(_: Executor) -> None:
        await asyncio.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # reaches the main thread only as a flag
        await asyncio.sleep(120)

    started = time.monotonic()
    with enforce_time_limit(0), pytest.raises(KeyboardInterrupt):
        run_with_user_code(work)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, asyncio.CancelledError)]
)
def test_one_signal_ends_planning_that_never_awaits(
    number: signal.Signals, expected: type[BaseException]
) -> None:
    async def plan() -> None:
        os.kill(os.getpid(), number)
        while True:
            time.sleep(0.01)

    started = time.monotonic()
    with interrupt_on_signals(), pytest.raises(expected):
        run_coroutine(plan())
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, asyncio.CancelledError)]
)
def test_a_timer_that_is_faster_than_the_signal_ends_planning_in_the_same_way(
    number: signal.Signals, expected: type[BaseException]
) -> None:
    def plan() -> None:
        with interrupt_on_signals():
            with suppress(expected):
                signal.raise_signal(number)
            raise UserCodeStopped("the run is being stopped")

    with pytest.raises(expected):
        plan()


@pytest.mark.parametrize("error", [KeyboardInterrupt("wrong"), SystemExit(3), GeneratorExit()])
def test_code_that_raises_what_ends_a_program_is_an_error_of_the_code(error: BaseException) -> None:
    def raise_it() -> None:
        with current_timer():
            raise error

    async def work(executor: Executor) -> None:
        await executor.run(raise_it)

    with pytest.raises(UserCodeExit, match=f"{type(error).__name__}|exits the program: exit 3"):
        run_with_user_code(work)
    with interrupt_on_signals(), pytest.raises(UserCodeExit):
        raise_it()


@pytest.mark.parametrize("handled", [True, False], ids=["run", "own program"])
def test_an_interrupt_of_the_user_in_code_of_a_task_is_no_error_of_the_code(handled: bool) -> None:
    def interrupt() -> None:
        with current_timer():
            signal.raise_signal(signal.SIGINT)

    with interrupt_on_signals() if handled else nullcontext(), pytest.raises(KeyboardInterrupt):
        interrupt()
