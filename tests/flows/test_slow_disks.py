"""On a slow disk, sending waits for the commits: a kill loses at most the calls in flight and one batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.flows.slow_disks import CannotDelay, build_shim, kill_on_slow_disk
from tests.making import write_task
from tests.models.remote.scripted_server import ReceivedRequest, replying, start_scripted_server

import assay
from assay.core.ports import Traits
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome, Response
from assay.engine.running import model_queue
from assay.engine.running.model_queue import MIN_UNSAVED, UnsavedAnswerLimiter
from assay.store.database import writer
from assay.store.journal import rows
from assay.testing import ScriptedModel

IN_FLIGHT = 8
COMMIT_S = 0.04


class SlowDisk:
    """Delays every commit, and records how many answers were not on disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answered = self.saved = self.most_unsaved = 0
        commit = writer.BatchWriter._commit

        def commit_late(batch_writer: Any, group: Any) -> None:
            answers = [pair for batch, _ in group for pair in batch if pair[0] == rows.INSERT_ANSWERED]
            if answers:
                time.sleep(COMMIT_S)
            self.saved += sum(len(given) for _, given in answers)  # before `commit` lets the run continue
            commit(batch_writer, group)

        monkeypatch.setattr(writer.BatchWriter, "_commit", commit_late)

    def count_answer(self) -> None:
        self.answered += 1
        self.most_unsaved = max(self.most_unsaved, self.answered - self.saved)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


def write_questions(folder: Path, count: int) -> list[str]:
    questions = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(count)]
    return [str(write_task(folder / "tasks", rows=questions))]


class FastModel(ScriptedModel):
    """Answers at once. `blocking`: without giving other tasks a chance to run, for a while per request."""

    def __init__(self, disk: SlowDisk, *, window: int = 1, in_flight: int = IN_FLIGHT, block_s: float = 0.0):
        super().__init__(lambda request: "4")
        self._disk, self._block_s = disk, block_s
        self._traits = Traits(abilities=frozenset({"generate"}), window=window, in_flight=in_flight)

    @property
    def traits(self) -> Traits:
        return self._traits

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            if self._block_s:
                time.sleep(self._block_s)
            else:
                await asyncio.sleep(0.002)
            self._disk.count_answer()
            yield Response(request_id=request.id, value="4", finish="stop")


def test_a_slow_disk_slows_the_asking(tmp_path: Path, disk: SlowDisk) -> None:
    run = assay.run(
        model=FastModel(disk),
        tasks=write_questions(tmp_path, 500),
        output_path=str(tmp_path / "out"),
        no_cache=True,
    )
    assert disk.answered == disk.saved == 500
    assert MIN_UNSAVED < disk.most_unsaved <= MIN_UNSAVED + 1 + IN_FLIGHT
    assert run.estimates[0].scored == 500


def test_calls_that_an_adapter_has_queued_wait_for_the_disk_too(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of the HTTP adapter has more requests than calls may be in flight."""
    monkeypatch.setattr(model_queue, "CHEAP_FACTOR", 1)  # the server of the test may answer very fast

    def answer(received: ReceivedRequest) -> list[Any]:
        disk.count_answer()
        choice = {"message": {"content": "4"}, "finish_reason": "stop"}
        return replying({"choices": [choice]})

    async def go() -> None:
        async with start_scripted_server(answer) as server:
            options = {"model": "m", "base_url": server.url, "num_concurrent": IN_FLIGHT, "probe": False}
            await asyncio.to_thread(
                assay.run,
                model="openai",
                model_args=options,
                tasks=write_questions(tmp_path, 400),
                output_path=str(tmp_path / "out"),
                no_cache=True,
            )

    asyncio.run(go())
    assert disk.saved == 400
    # The window, the calls in flight, and replies that the adapter has received and not parsed yet.
    assert disk.most_unsaved <= 64 + 1 + 2 * IN_FLIGHT


def test_answers_of_a_model_that_blocks_the_event_loop_are_saved_meanwhile(
    tmp_path: Path, disk: SlowDisk
) -> None:
    model = FastModel(disk, window=48, in_flight=1, block_s=0.02)
    assay.run(
        model=model, tasks=write_questions(tmp_path, 48), output_path=str(tmp_path / "out"), no_cache=True
    )
    assert disk.most_unsaved <= 24


class HoldableModel(FastModel):
    held: bool | None = None

    def hold_requests(self, held: bool) -> None:
        self.held = held


def test_a_model_is_held_while_too_many_answers_are_unsaved(disk: SlowDisk) -> None:
    async def go() -> list[tuple[bool, bool | None]]:
        model = HoldableModel(disk)
        limiter = UnsavedAnswerLimiter(model)
        states = []
        for count in (MIN_UNSAVED, 1, -1):
            if count > 0:
                limiter.add(count)
            else:
                waiting = asyncio.ensure_future(limiter.wait())
                await asyncio.sleep(0)
                assert not waiting.done()
                limiter.remove(-count)
                await waiting
            states.append((limiter.is_full, model.held))
        return states

    assert asyncio.run(go()) == [(False, None), (True, True), (False, False)]


@pytest.mark.slow
def test_a_kill_on_a_slow_disk_loses_at_most_the_calls_in_flight_and_one_batch(tmp_path: Path) -> None:
    try:
        build_shim(tmp_path)
    except CannotDelay as error:
        pytest.skip(str(error))
    counts = kill_on_slow_disk(tmp_path, fsync_ms=1000, in_flight=8, kill_after=150, documents=220)
    assert counts.lost <= 64 + 8
    assert counts.asked_again <= 64 + 8
