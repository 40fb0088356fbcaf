"""Tests of the executor: one call runs at a time, many may wait, all in one thread."""

from __future__ import annotations

import asyncio
import contextvars
import io
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy
import pytest
from greenlet import greenlet

from assay.user_code.executor import MAX_SUSPENDED_CALLS, DirectExecutor, QueuedCall, UserCodeExecutor
from assay.user_code.timeouts import UserCodeStopped, UserCodeTimeout, current_timer, enforce_time_limit


@pytest.fixture
def executor() -> Iterator[UserCodeExecutor]:
    """An executor whose thread ends with the test."""
    served = UserCodeExecutor()
    thread = threading.Thread(target=served.serve, name="assay-user-code", daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.close()
        thread.join(1.0)  # the last call restores the working folder and the output streams


def call(executor: UserCodeExecutor, work: Callable[[], Any]) -> Any:
    return executor.submit(work).result(timeout=20)


def complete_later(value: Any = None, seconds: float = 0.005) -> Future[Any]:
    """Return a future that another thread completes."""
    future: Future[Any] = Future()
    threading.Timer(seconds, lambda: future.set_result(value)).start()
    return future


def test_calls_wait_together_but_run_one_at_a_time_in_order(executor: UserCodeExecutor) -> None:
    running: list[int] = []
    started: list[int] = []
    together: list[Future[None]] = []

    def judge(item: int) -> int:
        started.append(item)
        running.append(item)
        assert len(running) == 1
        running.pop()
        together.append(Future())
        if len(together) == 8:  # all eight wait at the same time, or none would ever continue
            for future in together:
                future.set_result(None)
            together.clear()
        else:
            executor.wait(together[-1])
        running.append(item)
        assert len(running) == 1
        running.pop()
        return item * item

    assert call(executor, lambda: executor.map(judge, range(24))) == [n * n for n in range(24)]
    assert started == list(range(24))


def test_a_call_whose_wait_is_over_continues_before_a_new_one_starts(executor: UserCodeExecutor) -> None:
    future: Future[None] = Future()
    events: list[str] = []

    def work(item: int) -> None:
        events.append(f"start {item}")
        if item == 0:
            executor.wait(future)
        if item == 1:
            future.set_result(None)
        events.append(f"end {item}")

    call(executor, lambda: executor.map(work, range(4)))
    assert events == [
        "start 0", "start 1", "end 1", "end 0", "start 2", "end 2", "start 3", "end 3",
    ]  # fmt: skip


def test_other_work_runs_while_calls_wait(executor: UserCodeExecutor) -> None:
    reply: Future[None] = Future()

    def judge(item: int) -> int:
        executor.wait(reply)
        return item

    waiting = executor.submit(lambda: executor.map(judge, range(3)))
    assert call(executor, lambda: "rendered") == "rendered"
    assert not waiting.done()
    reply.set_result(None)
    assert waiting.result(timeout=20) == [0, 1, 2]


def test_a_bounded_number_of_calls_waits(executor: UserCodeExecutor) -> None:
    waiting = peak = 0

    def judge(item: int) -> int:
        nonlocal waiting, peak
        waiting += 1
        peak = max(peak, waiting)
        executor.wait(complete_later(seconds=0.002))
        waiting -= 1
        return item

    count = 3 * MAX_SUSPENDED_CALLS
    assert call(executor, lambda: executor.map(judge, range(count))) == list(range(count))
    assert 1 < peak <= MAX_SUSPENDED_CALLS


def test_random_generators_continue_where_they_were_before_the_wait(executor: UserCodeExecutor) -> None:
    def draw(item: int) -> tuple[float, float]:
        random.seed(item)
        numpy.random.seed(item)
        random.random()
        executor.wait(complete_later(seconds=0.002 * (item % 3)))
        return random.random(), float(numpy.random.rand())

    expected = []
    for item in range(12):
        generator = random.Random(item)
        generator.random()
        expected.append((generator.random(), float(numpy.random.RandomState(item).rand())))
    assert call(executor, lambda: executor.map(draw, range(12))) == expected


def test_an_exception_is_raised_after_all_calls_ended(executor: UserCodeExecutor) -> None:
    finished: list[int] = []

    def judge(item: int) -> float:
        executor.wait(complete_later(seconds=0.001))
        finished.append(item)
        return 1 / (item - 2)

    with pytest.raises(ZeroDivisionError):
        call(executor, lambda: executor.map(judge, range(5)))
    assert sorted(finished) == [0, 1, 2, 3, 4]


def test_everything_runs_in_one_thread(executor: UserCodeExecutor) -> None:
    def name(_: int) -> str:
        before = threading.current_thread().name
        executor.wait(complete_later())
        assert threading.current_thread().name == before
        return before

    assert set(call(executor, lambda: executor.map(name, range(50)))) == {"assay-user-code"}


def test_each_call_has_its_own_context_variables(executor: UserCodeExecutor) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=-1)

    def judge(item: int) -> int:
        variable.set(item)
        executor.wait(complete_later())
        return variable.get()

    variable.set(7)
    assert call(executor, lambda: (executor.map(judge, range(5)), variable.get())) == ([0, 1, 2, 3, 4], 7)


def test_a_thread_of_user_code_blocks_while_it_waits(executor: UserCodeExecutor) -> None:
    def judge() -> str:
        replies: list[str] = []
        thread = threading.Thread(target=lambda: replies.append(executor.wait(complete_later("reply"))))
        thread.start()
        thread.join(timeout=10)
        return replies[0]

    assert call(executor, judge) == "reply"


def test_time_spent_waiting_does_not_count(executor: UserCodeExecutor) -> None:
    def judge(_: int) -> str:
        with current_timer():
            executor.wait(complete_later(seconds=1.2))
        return "done"

    with enforce_time_limit(0.3):
        assert call(executor, lambda: executor.map(judge, range(2))) == ["done", "done"]


def test_a_call_that_hangs_after_its_wait_is_stopped_and_the_others_are_not(
    executor: UserCodeExecutor,
) -> None:
    def judge(item: int) -> str:
        try:
            with current_timer():
                executor.wait(complete_later())
                while item == 1:
                    time.sleep(0.01)
        except UserCodeTimeout:
            return "timeout"
        return "done"

    with enforce_time_limit(0.3):
        assert call(executor, lambda: executor.map(judge, range(3))) == ["done", "timeout", "done"]


def test_closing_stops_calls_that_wait(executor: UserCodeExecutor) -> None:
    unwound = threading.Event()

    def judge(_: int) -> None:
        try:
            executor.wait(Future())
        finally:
            unwound.set()

    executor.submit(lambda: executor.map(judge, range(3)))
    call(executor, lambda: None)
    executor.close()
    assert unwound.wait(timeout=10)


def test_a_call_that_a_signal_stops_before_its_work_is_cancelled(
    executor: UserCodeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Future[Any]) -> bool:
        raise UserCodeStopped

    monkeypatch.setattr(Future, "set_running_or_notify_cancel", stop)
    with pytest.raises(CancelledError):
        call(executor, int)
    monkeypatch.undo()
    assert call(executor, int) == 0


def test_a_signal_between_the_lines_of_the_executor_does_not_end_it(
    executor: UserCodeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = threading.Event()

    def stop() -> None:
        raised.set()
        raise UserCodeStopped

    monkeypatch.setattr(QueuedCall, "to_greenlet", lambda _: greenlet(stop))
    executor.submit(int)
    assert raised.wait(20)
    monkeypatch.undo()
    assert call(executor, int) == 0


def test_output_streams_and_working_directory_are_restored_after_each_call(
    executor: UserCodeExecutor, tmp_path: Path
) -> None:
    own = io.StringIO()

    def misbehave() -> None:
        os.chdir(tmp_path)
        sys.stderr = sys.stdout = own

    before = call(executor, Path.cwd)
    call(executor, misbehave)
    assert call(executor, Path.cwd) == before
    assert call(executor, lambda: sys.stdout is sys.stderr and sys.stderr is not own)


def test_work_from_the_event_loop_returns_its_result_and_its_exception(executor: UserCodeExecutor) -> None:
    async def several() -> list[int]:
        results = await asyncio.gather(*(executor.run(lambda n=n: n) for n in range(5)))  # type: ignore[misc]
        with pytest.raises(ZeroDivisionError):
            await executor.run(lambda: 1 / 0)
        return results

    assert asyncio.run(several()) == [0, 1, 2, 3, 4]


def test_the_direct_executor_calls_at_once() -> None:
    executor = DirectExecutor()
    done: Future[int] = Future()
    done.set_result(3)
    assert asyncio.run(executor.run(threading.get_ident)) == threading.get_ident()
    assert executor.map(lambda item: item + 1, [1, 2]) == [2, 3]
    assert executor.wait(done) == 3


def test_user_code_may_use_signals_where_the_executor_serves_in_the_main_thread() -> None:
    executor = UserCodeExecutor()

    def alarm(_: int) -> str:
        before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("own alarm")))
        executor.wait(complete_later())
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            time.sleep(5)
        except TimeoutError as error:
            return str(error)
        finally:
            signal.signal(signal.SIGALRM, before)
        return "no alarm"

    result = executor.submit(lambda: executor.map(alarm, range(1)))
    result.add_done_callback(lambda _: executor.close())
    executor.serve()
    assert result.result() == ["own alarm"]
