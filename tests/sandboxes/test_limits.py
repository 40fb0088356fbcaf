"""Tests of the limits sandbox."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from assay.core.programs import Program
from assay.sandboxes.limits import LimitsSandbox, count_tasks


def test_folder_of_a_program_is_removed(tmp_path: Path) -> None:
    done = asyncio.run(LimitsSandbox().execute(Program(source="import os; print(os.getcwd())")))
    assert done.succeeded
    assert not Path(done.stdout.strip()).exists()


def test_isolation_report_names_what_stays_open() -> None:
    report = asyncio.run(LimitsSandbox().inspect())
    assert report.sandbox == "limits"
    assert "files that everybody may read" in report.not_isolated


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_threads_count_as_tasks() -> None:
    if os.getuid() == 0:
        pytest.skip("other processes of root start and stop")
    before, release = count_tasks(), threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        assert count_tasks() == before + 1
    finally:
        release.set()
        thread.join()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_this_process_is_counted() -> None:
    assert count_tasks() >= threading.active_count()
