"""Checking in several processes. A helper that takes its process down costs its own task a finding, no other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path

from assay.checks.findings import Finding
from assay.checks.groups import Job
from assay.checks.task import CheckOptions, Outcome, TaskCheck
from assay.sandboxes.program_runner import allowed

__all__ = ["check_all"]

_CHUNK = 64
"""Tasks a process gets at once; those of one folder stay together, so that its helpers are imported once."""

_check: TaskCheck


def check_all(jobs: Sequence[Job], options: CheckOptions, processes: int) -> dict[str, Outcome]:
    """The outcome of every job, by name, in the order of the jobs."""
    if processes <= 1 or len(jobs) < 2:
        check = TaskCheck(options)
        with allowed():  # nothing here was written by a model: helpers may try a program of their own
            return {job.name: check.check(job) for job in jobs}
    chunks = _chunks(jobs)
    found = _in_pool(chunks, options, processes)
    for chunk in [chunk for chunk in chunks if chunk[0].name not in found]:
        found |= _in_pool([chunk], options, 1)
    for job in [job for job in jobs if job.name not in found]:
        found |= _in_pool([[job]], options, 1)
    return {job.name: found.get(job.name) or _died(job) for job in jobs}


def _chunks(jobs: Sequence[Job]) -> list[list[Job]]:
    chunks: list[list[Job]] = []
    for _, folder in groupby(sorted(jobs, key=lambda job: job.path), key=lambda job: Path(job.path).parent):
        if not chunks or len(chunks[-1]) >= _CHUNK:
            chunks.append([])
        chunks[-1] += folder
    return chunks


def _in_pool(chunks: Sequence[list[Job]], options: CheckOptions, processes: int) -> dict[str, Outcome]:
    """What the processes found; a process that dies takes with it what was waiting."""
    found: dict[str, Outcome] = {}
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(options,)
    ) as pool:
        for future in [pool.submit(_check_chunk, chunk) for chunk in chunks]:
            try:
                found |= future.result()
            except BrokenProcessPool:
                continue
    return found


def _begin(options: CheckOptions) -> None:
    global _check
    _check = TaskCheck(options)


def _check_chunk(jobs: list[Job]) -> dict[str, Outcome]:
    with allowed():
        return {job.name: _check.check(job) for job in jobs}


def _died(job: Job) -> Outcome:
    finding = Finding(
        severity="error",
        kind="function",
        what="checking the task ended the process: its code crashes, or uses too much memory",
        where=job.path,
    )
    return Outcome(findings=(finding,), reports=None)
