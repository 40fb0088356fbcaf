"""Tests of the sandbox `limits`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from assay.core.records.programs import Program, SandboxError
from assay.sandboxes.launch_spec import is_readable_by_all
from assay.sandboxes.no_namespaces import LimitsSandbox, count_tasks, remove_user_files


def make_sandbox() -> LimitsSandbox:
    """A sandbox whose interpreter every user can read."""
    if os.geteuid() != 0 or is_readable_by_all(sys.executable):
        return LimitsSandbox()
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("needs an interpreter that every user can read")
    return LimitsSandbox(python)


def test_folder_of_a_program_is_removed(tmp_path: Path) -> None:
    done = asyncio.run(make_sandbox().execute(Program(source="import os; print(os.getcwd())")))
    assert done.succeeded
    assert not Path(done.stdout.strip()).exists()


def test_isolation_report_names_what_stays_open() -> None:
    report = asyncio.run(make_sandbox().inspect())
    assert report.sandbox == "limits"
    assert any("namespaces of this machine" in what for what in report.not_isolated)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_root_is_never_the_user_of_a_program(tmp_path: Path) -> None:
    python = tmp_path / "closed" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "closed").chmod(0o700)
    for work in (
        LimitsSandbox(str(python)).inspect(),
        LimitsSandbox(str(python)).execute(Program(source="1")),
    ):
        with pytest.raises(SandboxError, match="programs would run as root"):
            asyncio.run(work)


def test_files_of_a_user_are_removed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "other").touch()
    remove_user_files(os.getuid() + 1, (str(tmp_path),))
    assert len(list(tmp_path.iterdir())) == 2
    remove_user_files(os.getuid(), (str(tmp_path), "/no/such/folder"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_hidden_memory_cannot_be_read_by_another_process_of_the_user() -> None:
    """Without Landlock, a program of the same user could write into the memory of Assay."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("needs an interpreter that every user can read")
    code = f"""
import os, subprocess, sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "src")!r})
from assay.sandboxes.no_namespaces import hide_memory
attack = "open('/proc/%d/mem' % " + str(os.getpid()) + ", 'r+b')"
attempt = lambda: subprocess.run([sys.executable, "-c", attack], capture_output=True).returncode
before = attempt()
hide_memory()
print(before, attempt())
"""
    user = {"user": 65534} if os.geteuid() == 0 else {}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, **user)  # type: ignore[call-overload]
    if done.returncode or done.stdout.startswith("1"):
        pytest.skip(f"another user cannot import Assay, or the system hides memory: {done.stderr[-200:]}")
    assert done.stdout == "0 1\n"


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
