"""Check tasks in several processes. Task code that crashes its process affects only its own task."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path

from assay.checks.findings import Finding
from assay.checks.groups import CheckJob
from assay.checks.task_checker import CheckOptions, CheckResult, TaskChecker
from assay.sandboxes.program_runner import allow_programs
from assay.user_code.timeouts import enforce_time_limit

__all__ = ["check_jobs"]

_TASKS_PER_CHUNK = 64
"""Tasks sent to a process at once. Tasks of one folder stay together, so that its helpers are imported once."""

_checker: TaskChecker


def check_jobs(jobs: Sequence[CheckJob], options: CheckOptions, processes: int) -> dict[str, CheckResult]:
    """Return the result of every job by name, in the order of the jobs."""
    if processes <= 1 or len(jobs) < 2:
        check = TaskChecker(options)
        # no model-written code runs here, so helpers may start programs
        with allow_programs(), enforce_time_limit(options.helper_timeout_s):
            return {job.name: check.check(job) for job in jobs}
    chunks = _split_into_chunks(jobs)
    found = _check_in_pool(chunks, options, processes)
    for chunk in [chunk for chunk in chunks if chunk[0].name not in found]:
        found |= _check_in_pool([chunk], options, 1)
    for job in [job for job in jobs if job.name not in found]:
        found |= _check_in_pool([[job]], options, 1)
    return {job.name: found.get(job.name) or _report_crash(job) for job in jobs}


def _split_into_chunks(jobs: Sequence[CheckJob]) -> list[list[CheckJob]]:
    chunks: list[list[CheckJob]] = []
    for _, folder in groupby(sorted(jobs, key=lambda job: job.path), key=lambda job: Path(job.path).parent):
        if not chunks or len(chunks[-1]) >= _TASKS_PER_CHUNK:
            chunks.append([])
        chunks[-1] += folder
    return chunks


def _check_in_pool(
    chunks: Sequence[list[CheckJob]], options: CheckOptions, processes: int
) -> dict[str, CheckResult]:
    """Return the results of the pool; a crashed process loses the pending chunks."""
    found: dict[str, CheckResult] = {}
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_init_worker, initargs=(options,)
    ) as pool:
        for future in [pool.submit(_check_chunk, chunk) for chunk in chunks]:
            try:
                found |= future.result()
            except BrokenProcessPool:
                continue
    return found


def _init_worker(options: CheckOptions) -> None:
    global _checker
    _checker = TaskChecker(options)


def _check_chunk(jobs: list[CheckJob]) -> dict[str, CheckResult]:
    with allow_programs(), enforce_time_limit(_checker.options.helper_timeout_s):
        return {job.name: _checker.check(job) for job in jobs}


def _report_crash(job: CheckJob) -> CheckResult:
    finding = Finding(
        severity="error",
        kind="function",
        what="the process crashed during the check: task code crashes or uses too much memory",
        where=job.path,
    )
    return CheckResult(findings=(finding,), reported_metrics=None)
