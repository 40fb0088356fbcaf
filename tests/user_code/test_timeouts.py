"""Tests of foreign code that takes too long: in the main thread it is ended wherever it hangs."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, write_task

import assay
from assay.user_code.main_thread import borrowed, run_beside_helpers
from assay.user_code.timeouts import TookTooLong, current_watch, watching

LIMIT_S = 0.3


def loop_for_ever() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(60)


def search() -> None:
    re.match(r"(a+)+$", "a" * 40 + "b")


def listen() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.recv(1)


def catch_broadly() -> None:
    while True:
        try:
            time.sleep(0.01)
        except Exception:  # noqa: BLE001 - as helpers do
            continue


def wait_for_nobody() -> None:
    threading.Event().wait(60)


def watched(piece: Callable[[], Any]) -> str:
    try:
        with current_watch():
            piece()
    except TookTooLong as stopped:
        return str(stopped)
    return "it came to an end"


async def in_the_main_thread(piece: Callable[[], Any]) -> Any:
    done: Future[Any] = Future()
    for _ in range(1000):  # it says what came of a piece a moment before it is free for the next
        if borrowed(lambda: done.set_result(piece())):
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("the main thread never became free")
    return await asyncio.wrap_future(done)


@pytest.mark.parametrize(
    "piece",
    [loop_for_ever, sleep, search, listen, catch_broadly, wait_for_nobody],
    ids=lambda one: one.__name__,
)
def test_what_hangs_in_the_main_thread_is_ended(piece: Callable[[], None]) -> None:
    with watching(LIMIT_S):
        begun = time.monotonic()
        assert "longer than 0.3 s" in run_beside_helpers(in_the_main_thread(lambda: watched(piece)))
        assert time.monotonic() - begun < 20


def test_the_next_piece_is_not_hit() -> None:
    async def pieces() -> list[str]:
        given: list[Callable[[], None]] = [sleep, lambda: None, loop_for_ever]
        return [await in_the_main_thread(partial(watched, one)) for one in given]

    with watching(LIMIT_S):
        first, second, third = run_beside_helpers(pieces())
    assert (second, "longer" in first, "longer" in third) == ("it came to an end", True, True)


def test_code_that_comes_back_to_python_is_ended_in_any_thread() -> None:
    said: list[str] = []
    with watching(LIMIT_S):
        thread = threading.Thread(target=lambda: said.append(watched(catch_broadly)))
        thread.start()
        thread.join(20)
    assert said != []
    assert said[0] != "it came to an end"


def test_without_a_limit_nothing_is_ended() -> None:
    with watching(0):
        assert watched(lambda: time.sleep(1.2)) == "it came to an end"


def test_time_spent_waiting_for_a_judge_does_not_count() -> None:
    def piece() -> None:
        with current_watch().paused():
            time.sleep(1.2)

    with watching(LIMIT_S):
        assert run_beside_helpers(in_the_main_thread(lambda: watched(piece))) == "it came to an end"


def test_helpers_may_set_signal_handlers() -> None:
    import signal

    def piece() -> str:
        before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("own alarm")))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            time.sleep(5)
        except TimeoutError as error:
            return str(error)
        finally:
            signal.signal(signal.SIGALRM, before)
        return "no alarm"

    assert run_beside_helpers(in_the_main_thread(piece)) == "own alarm"


def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_beside_helpers(work())
    assert not borrowed(lambda: None)


HANGING = """
import re, time

def judged(doc, results):
    if results[0] == "1":
        time.sleep(60)
    if results[0] == "2":
        re.match(r"(a+)+$", "a" * 40 + "b")
    return {"exact_match": 1.0}

def text(doc):
    while doc["answer"] == "4":
        pass
    return doc["question"]

def summed(items):
    while True:
        pass
"""


def test_helpers_that_hang_cost_their_document_and_not_the_run(workspace: Path) -> None:
    path = write_task(
        workspace,
        helpers=HANGING,
        doc_to_text=Function("utils.text"),
        process_results=Function("utils.judged"),
    )
    model = make_model(lambda request: str(request.document + 1))
    finished = assay.run(model=model, tasks=[str(path)], helper_timeout=LIMIT_S)
    assert finished.outcomes("sums") == {"unscored": 2, "failed": 1, "scored": 3}
    reasons = dict(finished.journal.query("SELECT document, why FROM outcomes WHERE outcome = 'unscored'"))
    assert "took longer than 0.3 s (--helper_timeout)" in reasons[0]
    assert "utils.py" in reasons[0]
    assert finished.results["sums"]["exact_match,none"] == 1.0


def test_an_aggregation_that_hangs_costs_its_number_and_not_the_run(workspace: Path) -> None:
    metrics = [{"metric": "exact_match", "aggregation": Function("utils.summed"), "higher_is_better": True}]
    path = write_task(workspace, helpers=HANGING, metric_list=metrics)
    (estimate,) = assay.run(model=make_model(), tasks=[str(path)], helper_timeout=0.05).estimates
    assert estimate.value is None
    assert "took longer" in estimate.why


def test_ctrl_c_is_heard_while_the_main_thread_waits() -> None:
    async def interrupted_elsewhere() -> None:
        await asyncio.sleep(0.1)  # the main thread waits for work by now
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # reaches the main thread by its flag alone
        await asyncio.sleep(20)

    begun = time.monotonic()
    with watching(0), pytest.raises(KeyboardInterrupt):
        run_beside_helpers(interrupted_elsewhere())
    assert time.monotonic() - begun < 15


def test_a_run_that_ends_leaves_the_limit_of_another_as_it_was() -> None:
    begun, end = threading.Event(), threading.Event()

    def another_run() -> None:
        with watching(0):
            begun.set()
            end.wait(20)

    thread = threading.Thread(target=another_run)
    thread.start()
    assert begun.wait(20)
    with watching(LIMIT_S):
        end.set()
        thread.join(20)
        assert watched(lambda: time.sleep(20)) != "it came to an end"
