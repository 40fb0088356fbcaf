"""Kill runs on a disk whose commits take seconds, and count the answers that are lost.

A small library, loaded with `LD_PRELOAD`, delays `fsync` and `fdatasync` of the journal.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.flows.running import CommandRunner, kill, wait_until
from tests.making import write_task

from assay.store.journal.journal import JOURNAL_FILE

_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_for_disk(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    const char *delay = getenv("SLOW_FSYNC_MS");
    if (size <= 0 || delay == NULL) return;
    path[size] = 0;
    if (strstr(path, "journal.sqlite") != NULL) usleep(1000 * atoi(delay));
}
int fsync(int fd) {
    wait_for_disk(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int fdatasync(int fd) {
    wait_for_disk(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"""


class CannotDelay(Exception):
    """This machine cannot delay `fsync`: not Linux, or no C compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDiskCounts:
    """What one kill lost."""

    in_flight: int
    """Requests that the model may process at a time."""

    bound: int
    """Answers that may be lost."""

    answered: int
    """Answers of the model before the kill."""

    stored: int
    asked_again: int
    """Answers that were requested again after the kill."""

    @property
    def lost(self) -> int:
        return self.answered - self.stored


def build_shim(folder: Path) -> Path:
    """Compile the library.

    Raises:
        CannotDelay: There is no compiler for it.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not sys.platform.startswith("linux") or compiler is None:
        raise CannotDelay("delaying fsync needs Linux and a C compiler")
    source, library = folder / "slow_fsync.c", folder / "slow_fsync.so"
    source.write_text(_SHIM)
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        text=True,
    )
    if built.returncode:
        raise CannotDelay(f"the compiler failed: {built.stderr[:200]}")
    return library


def kill_on_slow_disk(
    folder: Path,
    *,
    fsync_ms: int,
    in_flight: int = 24,
    kill_after: int = 300,
    documents: int = 1000,
    replicas: int = 0,
    blocking_ms: int = 0,
) -> SlowDiskCounts:
    """Kill a run after so many answers, complete it on a fast disk, and compare the calls with the journal."""
    runner = CommandRunner(folder)
    shim = build_shim(folder)
    rows = [{"question": f"What is {n} - {n} + {n % 4}?", "answer": str(n % 4)} for n in range(documents)]
    task = str(write_task(folder / "tasks", rows=rows))
    model: dict[str, object] = (
        {"window": 4, "delay_ms": 20} if replicas else {"window": 1, "in_flight": in_flight, "delay_ms": 20}
    )
    if blocking_ms:
        model = {"window": 64, "delay_ms": blocking_ms, "blocking": True}
    options = ["--replicas", str(replicas)] if replicas else []
    command = runner.build_command("--tasks", task, *options, "--no_cache", "--output_path", "out", **model)
    fast = dict(runner.environment)
    runner.environment |= {"LD_PRELOAD": str(shim), "SLOW_FSYNC_MS": str(fsync_ms)}
    process = runner.start(command)
    try:
        wait_until(lambda: runner.has_requests(kill_after), process, timeout_s=300)
    finally:
        kill(process)
    runner.environment = fast
    answered = set(runner.read_request_ids())
    stored = _count_responses(runner)
    last = runner.finish(command)
    assert last.returncode == 0, last.stderr
    calls = runner.count_requests()
    assert len(calls) == documents == _count_responses(runner)
    assert max(calls.values()) <= 2, "nothing is requested more than once again"
    again = sum(count - 1 for count in calls.values())
    if replicas and not blocking_ms:
        in_flight = replicas * 2 * 4 * 4  # per replica two windows, each merged from four
    elif replicas:
        in_flight = 2 * replicas  # requests that a replica has not answered are not lost
    bound = in_flight + (32 if replicas else max(32, 2 * in_flight))
    return SlowDiskCounts(
        in_flight=in_flight, bound=bound, answered=len(answered), stored=stored, asked_again=again
    )


def _count_responses(runner: CommandRunner) -> int:
    with closing(sqlite3.connect(runner.find_run_folder("out") / JOURNAL_FILE)) as journal:
        count: int = journal.execute("SELECT count(*) FROM responses").fetchone()[0]
        return count
