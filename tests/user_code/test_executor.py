"""Threads of which one runs at a time, and many may wait."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future
from typing import Any

import numpy
import pytest

from assay.user_code.executor import Crew
from assay.user_code.timeouts import HelperStopped, current_watch


def done_by(crew: Crew, work: Any) -> Any:
    """What the work gives, done by the crew."""
    result: Future[Any] = Future()

    def do() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001
            result.set_exception(error)

    crew.put(do)
    return result.result(timeout=20)


class Watch:
    """Sees that one runs at a time while several wait at a time."""

    def __init__(self, crew: Crew, answers: int) -> None:
        self.crew = crew
        self.running = 0
        self.gate = threading.Barrier(answers)
        self.order: list[int] = []

    def piece(self, item: int) -> int:
        self.running += 1
        assert self.running == 1, "two pieces of foreign code at once"
        self.order.append(item)
        self.running -= 1
        with self.crew.pause():
            self.gate.wait(timeout=10)  # passes only when this many wait at the same time
        self.running += 1
        assert self.running == 1, "two pieces of foreign code at once"
        time.sleep(0.001)
        self.running -= 1
        return item * item


def test_pieces_wait_together_but_run_one_at_a_time_and_results_keep_their_order() -> None:
    crew = Crew("test")
    watch = Watch(crew, 8)
    assert done_by(crew, lambda: crew.each(watch.piece, range(24))) == [n * n for n in range(24)]
    assert watch.order == list(range(24))
    crew.close()


def test_other_work_goes_on_while_pieces_wait() -> None:
    crew = Crew("test")
    gate = threading.Event()

    def waiting(item: int) -> int:
        with crew.pause():
            assert gate.wait(timeout=10)
        return item

    result: Future[list[int]] = Future()
    crew.put(lambda: result.set_result(crew.each(waiting, range(3))))
    assert done_by(crew, lambda: "rendered") == "rendered"
    assert not result.done()
    gate.set()
    assert result.result(timeout=10) == [0, 1, 2]
    crew.close()


def test_more_pieces_than_threads_are_done_all_the_same() -> None:
    crew = Crew("test", threads=2)

    def piece(item: int) -> int:
        with crew.pause():
            time.sleep(0.002)
        return item

    assert done_by(crew, lambda: crew.each(piece, range(20))) == list(range(20))
    crew.close()


def test_whoever_waited_draws_on_as_if_nobody_else_had_drawn() -> None:
    crew = Crew("test")

    def piece(item: int) -> tuple[float, float]:
        random.seed(item)
        numpy.random.seed(item)
        random.random()
        with crew.pause():
            time.sleep(0.002 * (item % 3))
        return random.random(), float(numpy.random.rand())

    expected = []
    for item in range(12):
        generator = random.Random(item)
        generator.random()
        expected.append((generator.random(), float(numpy.random.RandomState(item).rand())))
    assert done_by(crew, lambda: crew.each(piece, range(12))) == expected
    crew.close()


def test_what_a_piece_raises_is_raised_when_all_are_done() -> None:
    crew = Crew("test")
    finished: list[int] = []

    def piece(item: int) -> int:
        with crew.pause():
            time.sleep(0.001)
        finished.append(item)
        return 1 // (item - 2)

    with pytest.raises(ZeroDivisionError):
        done_by(crew, lambda: crew.each(piece, range(5)))
    assert sorted(finished) == [0, 1, 2, 3, 4]
    crew.close()


def test_a_thread_that_foreign_code_started_may_wait_without_the_baton() -> None:
    crew = Crew("test")

    def work() -> str:
        answers: list[str] = []

        def own_thread() -> None:
            with crew.pause():
                answers.append("waited")

        thread = threading.Thread(target=own_thread)
        thread.start()
        thread.join(timeout=10)
        return answers[0]

    assert done_by(crew, work) == "waited"
    crew.close()


def test_without_waiting_one_thread_does_everything() -> None:
    crew = Crew("test")
    names = done_by(crew, lambda: crew.each(lambda _: threading.current_thread().name, range(50)))
    assert set(names) == {"test-1"}
    assert crew.each(lambda item: item, []) == []
    crew.close()


def test_a_lock_that_foreign_code_holds_while_it_waits_does_not_stop_everything() -> None:
    crew = Crew("test", patience_s=0.05)
    lock = threading.Lock()

    def piece(item: int) -> int:
        with lock, crew.pause():
            time.sleep(0.001)
        return item

    assert done_by(crew, lambda: crew.each(piece, range(4))) == [0, 1, 2, 3]
    crew.close()


def test_a_piece_that_hangs_keeps_nobody_waiting_once_the_crew_is_closed() -> None:
    crew = Crew("test")
    hangs, asked, never = threading.Event(), threading.Event(), threading.Event()

    def piece(item: int) -> None:
        if item == 1:
            hangs.set()
            never.wait(timeout=20)
            return
        with crew.pause():
            asked.wait(timeout=20)

    def close() -> None:
        hangs.wait(
            timeout=20
        )  # in another thread than the one that asks for the batch, which waits for it now
        asked.set()
        crew.close()

    threading.Thread(target=close, daemon=True).start()
    with pytest.raises(HelperStopped):
        done_by(crew, lambda: crew.each(piece, range(4)))
    assert not never.is_set()
    never.set()


def test_a_run_that_is_stopped_ends_nobody_who_waits_for_the_baton() -> None:
    """Its place in the queue would stay taken, and everybody behind it would wait for nobody."""
    crew = Crew("test")
    asked = threading.Event()
    late: list[bool] = []

    def piece(item: int) -> None:
        with current_watch() as watch:
            if item == 0:
                with crew.pause():
                    asked.wait(10)
                    first.append(watch)
            else:
                asked.set()
                while not crew._returning:  # the first one wants to go on, and this one has the baton
                    time.sleep(0.001)
                first[0]._stopping = True  # what Ctrl-C does
                late.append(first[0].is_late)
                first[0]._stopping = False

    first: list[Any] = []
    done_by(crew, lambda: crew.each(piece, range(2)))
    crew.close()
    assert late == [False]
