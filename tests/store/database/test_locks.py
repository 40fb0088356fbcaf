from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.core.errors import OutputError, RunLocked
from assay.store.database.locks import RunLock

HOLDER = """
import sys, time
from pathlib import Path
from assay.store.database.locks import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_second_process_gets_an_error_that_names_the_first(folder: Path) -> None:
    first, second = RunLock(folder), RunLock(folder)
    first.acquire()
    with pytest.raises(
        RunLocked, match=rf"process {os.getpid()} on {socket.gethostname()} since 20"
    ) as caught:
        second.acquire()
    assert (caught.value.where, "--output_path" in caught.value.hint) == (str(folder), True)
    first.release()
    second.acquire()
    second.release()


def test_being_refused_does_not_change_what_the_lock_says(folder: Path) -> None:
    lock = RunLock(folder)
    lock.acquire()
    before = lock.path.read_text()
    for _ in range(2):
        with pytest.raises(RunLocked):
            RunLock(folder).acquire()
    assert lock.path.read_text() == before
    lock.release()


def test_letting_go_twice_does_no_harm(folder: Path) -> None:
    lock = RunLock(folder)
    lock.release()
    lock.acquire()
    lock.release()
    lock.release()


def test_two_runs_do_not_know_each_other(tmp_path: Path) -> None:
    one, two = RunLock(tmp_path / "one"), RunLock(tmp_path / "two")
    one.acquire()
    two.acquire()
    one.release()
    two.release()


def test_the_lock_dies_with_the_process_that_held_it(folder: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunLocked, match=f"process {holder.pid} "):
            RunLock(folder).acquire()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        if holder.stdout:
            holder.stdout.close()
    deadline, lock = time.monotonic() + 60, RunLock(folder)
    lock.acquire()
    assert time.monotonic() < deadline
    lock.release()


@pytest.mark.parametrize(
    "note", ["", "{", "[]", "{}", '{"pid": 1}', "\x00\x00", '{"pid": 1, "host": "h", "since": "x"}']
)
def test_a_note_that_cannot_be_read_is_no_obstacle(folder: Path, note: str) -> None:
    lock = RunLock(folder)
    lock.acquire()
    lock.path.write_text(note)
    with pytest.raises(RunLocked, match="another process"):
        RunLock(folder).acquire()
    lock.release()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot write into") as caught:
        RunLock(tmp_path / "file" / "run").acquire()
    assert "--output_path" in caught.value.hint
