"""Tests of time limits: in the main thread, user code is stopped wherever it hangs."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.making import Function, make_model, write_task

import assay
from assay.user_code import timeouts
from assay.user_code.event_loop import run_with_user_code
from assay.user_code.executor import Executor
from assay.user_code.timeouts import UserCodeTimeout, current_timer, enforce_time_limit

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


def run_with_timer(piece: Callable[[], Any]) -> str:
    try:
        with current_timer():
            piece()
    except UserCodeTimeout as stopped:
        return str(stopped)
    return "it came to an end"


def in_main_thread(*pieces: Callable[[], Any]) -> list[Any]:
    """Run the pieces as user code of a run: in the main thread, beside an event loop."""

    async def run_all(executor: Executor) -> list[Any]:
        return [await executor.run(piece) for piece in pieces]

    return run_with_user_code(run_all)


@pytest.mark.parametrize(
    "piece",
    [loop_for_ever, sleep, search, listen, catch_broadly, wait_for_nobody],
    ids=lambda one: one.__name__,
)
def test_code_that_hangs_in_the_main_thread_is_stopped(piece: Callable[[], None]) -> None:
    with enforce_time_limit(LIMIT_S):
        begun = time.monotonic()
        assert "time limit of 0.3 s" in in_main_thread(lambda: run_with_timer(piece))[0]
        assert time.monotonic() - begun < 20


def test_the_next_call_is_not_stopped() -> None:
    pieces: list[Callable[[], None]] = [sleep, lambda: None, loop_for_ever]
    with enforce_time_limit(LIMIT_S):
        first, second, third = in_main_thread(*(partial(run_with_timer, piece) for piece in pieces))
    assert (second, "time limit" in first, "time limit" in third) == ("it came to an end", True, True)


def test_code_that_returns_to_python_is_stopped_in_any_thread() -> None:
    said: list[str] = []
    with enforce_time_limit(LIMIT_S):
        thread = threading.Thread(target=lambda: said.append(run_with_timer(catch_broadly)))
        thread.start()
        thread.join(20)
    assert said != []
    assert said[0] != "it came to an end"


def test_without_a_limit_nothing_is_stopped() -> None:
    with enforce_time_limit(0):
        assert run_with_timer(lambda: time.sleep(1.2)) == "it came to an end"


def test_time_spent_waiting_for_a_judge_does_not_count() -> None:
    def piece() -> None:
        with current_timer().pause():
            time.sleep(1.2)

    with enforce_time_limit(LIMIT_S):
        assert in_main_thread(lambda: run_with_timer(piece)) == ["it came to an end"]


def test_helpers_may_set_signal_handlers() -> None:

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

    assert in_main_thread(piece) == ["own alarm"]


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
    assert "exceeded its time limit of 0.3 s (--helper_timeout)" in reasons[0]
    assert "utils.py" in reasons[0]
    assert finished.results["sums"]["exact_match,none"] == 1.0


CATCHING = """
import time

def judged(doc, results):
    while results[0] == "1":
        try:
            try_again()
        except BaseException:
            pass
    return {"exact_match": 1.0}

def try_again():
    time.sleep(0.05)
"""


def test_a_helper_that_catches_everything_is_stopped(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "_STOP_INTERVAL_S", 0.1)
    path = write_task(workspace, helpers=CATCHING, process_results=Function("utils.judged"))
    model = make_model(lambda request: str(request.document + 1))
    finished = assay.run(model=model, tasks=[str(path)], helper_timeout=1.0)
    assert finished.outcomes("sums") == {"unscored": 1, "scored": 5}


def test_an_aggregation_that_hangs_costs_its_number_and_not_the_run(workspace: Path) -> None:
    metrics = [{"metric": "exact_match", "aggregation": Function("utils.summed"), "higher_is_better": True}]
    path = write_task(workspace, helpers=HANGING, metric_list=metrics)
    (estimate,) = assay.run(model=make_model(), tasks=[str(path)], helper_timeout=0.05).estimates
    assert estimate.value is None
    assert "exceeded its time limit" in estimate.why


def test_a_run_that_ends_leaves_the_limit_of_another_as_it_was() -> None:
    begun, end = threading.Event(), threading.Event()

    def another_run() -> None:
        with enforce_time_limit(0):
            begun.set()
            end.wait(20)

    thread = threading.Thread(target=another_run)
    thread.start()
    assert begun.wait(20)
    with enforce_time_limit(LIMIT_S):
        end.set()
        thread.join(20)
        assert run_with_timer(lambda: time.sleep(20)) != "it came to an end"
