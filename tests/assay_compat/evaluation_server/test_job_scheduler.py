"""The queue of the evaluation server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from assay_compat.evaluation_server import job_scheduler
from assay_compat.evaluation_server.job_process import JobFailed
from assay_compat.evaluation_server.job_scheduler import JobScheduler, QueueFull
from assay_compat.evaluation_server.protocol import EvaluateRequest, JobStatus


class Runner:
    """Stands for `run_job`: jobs end when the test says so."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.release = asyncio.Event()
        self.stopped = False

    async def __call__(self, request: EvaluateRequest, *, temp_dir_prefix: str) -> dict[str, Any]:
        self.started.append(request.model)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        if request.model == "broken":
            raise JobFailed("exit code 2")
        if request.model == "unwritable":
            raise PermissionError("no")
        return {request.model: {"results": "file", "samples": []}}


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    made = Runner()
    monkeypatch.setattr(job_scheduler, "run_job", made)
    return made


async def add(scheduler: JobScheduler, model: str) -> str:
    return (await scheduler.add_job(EvaluateRequest(model=model, tasks=["t"])))[0]


async def wait_until_idle(scheduler: JobScheduler) -> None:
    while scheduler.queue_size or scheduler.current_job_id:
        await asyncio.sleep(0)


async def wait_until_running(scheduler: JobScheduler) -> None:
    while scheduler.current_job_id is None:
        await asyncio.sleep(0)


def test_jobs_run_one_after_the_other(runner: Runner) -> None:
    async def check() -> None:
        scheduler = JobScheduler()
        await scheduler.start()
        first, second = await add(scheduler, "a"), await add(scheduler, "b")
        await wait_until_running(scheduler)
        assert runner.started == ["a"]
        assert await scheduler.get_queue_stats() == {
            "queued": [second],
            "completed": 0,
            "failed": 0,
            "running_job": first,
        }
        waiting = await scheduler.get_job_with_position(second)
        assert waiting is not None and waiting.position_in_queue == 0
        runner.release.set()
        await wait_until_idle(scheduler)
        done = await scheduler.get_job(second)
        assert done is not None and done.status is JobStatus.COMPLETED
        assert done.result == {"b": {"results": "file", "samples": []}}
        await scheduler.stop()

    asyncio.run(check())


def test_failed_jobs_keep_their_error_and_the_next_one_runs(runner: Runner) -> None:
    async def check() -> None:
        runner.release.set()
        scheduler = JobScheduler()
        await scheduler.start()
        jobs = [await add(scheduler, model) for model in ("broken", "unwritable", "fine")]
        await wait_until_idle(scheduler)
        found = [await scheduler.get_job(job) for job in jobs]
        assert [(one.status.value, one.error) for one in found if one] == [
            ("failed", "exit code 2"),
            ("failed", "cannot start the run: no"),
            ("completed", None),
        ]
        await scheduler.stop()

    asyncio.run(check())


def test_only_waiting_jobs_can_be_cancelled(runner: Runner) -> None:
    async def check() -> None:
        scheduler = JobScheduler()
        await scheduler.start()
        running, waiting = await add(scheduler, "a"), await add(scheduler, "b")
        await wait_until_running(scheduler)
        assert await scheduler.cancel_job(running) == (False, "Cannot cancel a running job")
        assert await scheduler.cancel_job(waiting) == (True, f"Job {waiting} cancelled")
        assert await scheduler.cancel_job(waiting) == (False, "Job already finished or cancelled")
        assert await scheduler.cancel_job("x") == (False, "Job x not found")
        runner.release.set()
        await wait_until_idle(scheduler)
        assert runner.started == ["a"]
        await scheduler.stop()

    asyncio.run(check())


def test_oldest_finished_jobs_are_forgotten(runner: Runner) -> None:
    async def check() -> None:
        runner.release.set()
        scheduler = JobScheduler(max_completed_jobs=1)
        await scheduler.start()
        first = await add(scheduler, "a")
        await wait_until_idle(scheduler)
        second = await add(scheduler, "b")
        await wait_until_idle(scheduler)
        assert await scheduler.get_job(first) is None
        assert await scheduler.get_job(second) is not None
        await scheduler.stop()

    asyncio.run(check())


def test_stopping_the_scheduler_stops_the_job(runner: Runner) -> None:
    async def check() -> None:
        scheduler = JobScheduler()
        await scheduler.start()
        await add(scheduler, "a")
        await wait_until_running(scheduler)
        await scheduler.stop()
        assert runner.stopped

    asyncio.run(check())


def test_the_queue_has_a_largest_length(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        scheduler = JobScheduler()  # not started, so that all jobs wait
        waiting = [await add(scheduler, "m") for _ in range(2)]
        with pytest.raises(QueueFull, match="2 jobs wait"):
            await add(scheduler, "m")
        await scheduler.cancel_job(waiting[0])
        assert await add(scheduler, "m")

    monkeypatch.setattr(job_scheduler, "_MAX_QUEUED_JOBS", 2)
    asyncio.run(check())


def test_cancelled_jobs_are_forgotten_while_another_one_runs(runner: Runner) -> None:
    async def check() -> None:
        scheduler = JobScheduler(max_completed_jobs=2)
        cancelled = [await add(scheduler, "m") for _ in range(5)]
        for job_id in cancelled:
            assert (await scheduler.cancel_job(job_id))[0]
        assert [await scheduler.get_job(job_id) is not None for job_id in cancelled] == [False] * 3 + [
            True
        ] * 2

    asyncio.run(check())
