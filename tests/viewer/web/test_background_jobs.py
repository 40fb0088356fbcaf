"""Background jobs: cached by version, replaced when the version changes."""

from __future__ import annotations

import threading

import pytest

from assay.core.errors import AssayError, UnknownName
from assay.viewer.web.background_jobs import BackgroundJobs


def test_a_result_is_computed_once_per_version() -> None:
    jobs = BackgroundJobs()
    calls: list[str] = []

    def count() -> int:
        calls.append("call")
        return len(calls)

    results = [jobs.get("name", version, count, wait_s=10).result() for version in (1, 1, 2, 2)]
    assert results == [1, 1, 2, 2]


def test_errors_are_raised_when_the_result_is_read() -> None:
    jobs = BackgroundJobs()

    def fail_with(error: Exception) -> None:
        raise error

    known = jobs.get("known", 1, lambda: fail_with(UnknownName("no such run")), wait_s=10)
    with pytest.raises(UnknownName, match="no such run"):
        known.result()
    unexpected = jobs.get("unexpected", 1, lambda: fail_with(ValueError("broken")), wait_s=10)
    with pytest.raises(AssayError, match="ValueError: broken"):
        unexpected.result()


def test_a_stale_result_is_returned_while_the_new_one_is_computed() -> None:
    jobs, release = BackgroundJobs(), threading.Event()
    old = jobs.get("name", 1, lambda: "old", wait_s=10)
    try:
        assert jobs.get("name", 2, lambda: release.wait(10) and "new", wait_s=0, stale=True) is old
        running = jobs.get("name", 3, lambda: "newer", wait_s=0, stale=True)
        assert not running.ready
    finally:
        release.set()
    assert jobs.get("name", 2, lambda: "other", wait_s=10).result() == "new"
