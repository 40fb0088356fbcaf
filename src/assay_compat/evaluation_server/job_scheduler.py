"""The queue of an evaluation server, which runs one job at a time."""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from datetime import datetime
from typing import Any

from assay_compat.evaluation_server.job_process import JobFailed, run_job
from assay_compat.evaluation_server.protocol import EvaluateRequest, JobInfo, JobStatus

__all__ = ["JobScheduler", "QueueFull"]

_LOG = logging.getLogger(__name__)
_MAX_QUEUED_JOBS = 1000
_FINISHED = frozenset((JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED))


class QueueFull(Exception):
    """Too many jobs wait."""


class JobScheduler:
    """A queue of evaluations. All methods run in one event loop.

    scheduler = JobScheduler()
    await scheduler.start()
    job_id, position = await scheduler.add_job(EvaluateRequest(model="embedded", tasks=["quickstart_copy"]))
    …
    await scheduler.stop()
    """

    def __init__(self, max_completed_jobs: int = 100, temp_dir_prefix: str = "lmms_eval_") -> None:
        self._max_completed_jobs = max_completed_jobs
        self._temp_dir_prefix = temp_dir_prefix
        self._jobs: dict[str, JobInfo] = {}
        self._added = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._current: str | None = None

    async def start(self) -> None:
        """Start running jobs."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Stop the running job; queued jobs are lost."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker

    @property
    def queue_size(self) -> int:
        """The number of jobs that wait."""
        return len(self._list_queued())

    @property
    def current_job_id(self) -> str | None:
        """The id of the running job."""
        return self._current

    async def add_job(self, request: EvaluateRequest) -> tuple[str, int]:
        """Add a job; return its id and the number of jobs that wait before it.

        Raises:
            QueueFull: `_MAX_QUEUED_JOBS` jobs wait.
        """
        position = self.queue_size
        if position >= _MAX_QUEUED_JOBS:
            raise QueueFull(f"{position} jobs wait, which is the largest number. Submit the job again later")
        job = JobInfo(
            job_id=str(uuid.uuid4()),
            status=JobStatus.QUEUED,
            created_at=_format_now(),
            request=request,
            position_in_queue=position,
        )
        self._jobs[job.job_id] = job
        self._added.set()
        return job.job_id, position

    async def get_job(self, job_id: str) -> JobInfo | None:
        """Return a job; None if the id is unknown."""
        return self._jobs.get(job_id)

    async def get_job_with_position(self, job_id: str) -> JobInfo | None:
        """Return a job with its present position in the queue; None if the id is unknown."""
        job = self._jobs.get(job_id)
        if job is not None and job.status is JobStatus.QUEUED:
            job.position_in_queue = self._list_queued().index(job_id)
        return job

    async def cancel_job(self, job_id: str) -> tuple[bool, str]:
        """Cancel a job that waits; return whether it was cancelled, and a message."""
        job = self._jobs.get(job_id)
        if job is None:
            return False, f"Job {job_id} not found"
        if job.status is JobStatus.RUNNING:
            return False, "Cannot cancel a running job"
        if job.status in _FINISHED:
            return False, "Job already finished or cancelled"
        self._finish(job, JobStatus.CANCELLED)
        await self.cleanup_old_jobs()
        return True, f"Job {job_id} cancelled"

    async def get_queue_stats(self) -> dict[str, Any]:
        """Return the jobs that wait, the running job, and the numbers of completed and failed jobs."""
        statuses = [job.status for job in self._jobs.values()]
        return {
            "queued": self._list_queued(),
            "completed": statuses.count(JobStatus.COMPLETED),
            "failed": statuses.count(JobStatus.FAILED),
            "running_job": self._current,
        }

    async def cleanup_old_jobs(self) -> int:
        """Forget the oldest finished jobs beyond `max_completed_jobs`; return their number."""
        finished = [job for job in self._jobs.values() if job.status in _FINISHED]
        finished.sort(key=lambda job: job.completed_at or "")
        forgotten = finished[: max(0, len(finished) - self._max_completed_jobs)]
        for job in forgotten:
            del self._jobs[job.job_id]
        return len(forgotten)

    def _list_queued(self) -> list[str]:
        return [job.job_id for job in self._jobs.values() if job.status is JobStatus.QUEUED]

    async def _work(self) -> None:
        """Run jobs in the order in which they came."""
        while True:
            queued = self._list_queued()
            if queued:
                await self._run(self._jobs[queued[0]])
                await self.cleanup_old_jobs()
            else:
                self._added.clear()
                await self._added.wait()

    async def _run(self, job: JobInfo) -> None:
        self._current = job.job_id
        job.status, job.started_at = JobStatus.RUNNING, _format_now()
        _LOG.info("job %s: %s on %s", job.job_id, job.request.model, ",".join(job.request.tasks))
        try:
            job.result = await run_job(job.request, temp_dir_prefix=self._temp_dir_prefix)
        except JobFailed as error:
            job.error = str(error)
        except Exception as error:  # noqa: BLE001 - the next job must run
            job.error = f"cannot start the run: {error}"
        finally:
            self._current = None
            self._finish(job, JobStatus.COMPLETED if job.result is not None else JobStatus.FAILED)
        _LOG.info("job %s: %s", job.job_id, job.status.value)

    def _finish(self, job: JobInfo, status: JobStatus) -> None:
        job.status, job.completed_at = status, _format_now()


def _format_now() -> str:
    """Return the local time in lmms-eval's form, without a time zone."""
    return datetime.now().astimezone().replace(tzinfo=None).isoformat()
