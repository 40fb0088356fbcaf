"""A run on a disk that is too small: it stops with a plain error, nothing is damaged, and it goes on when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.flows.running import CommandRunner, compute_fingerprints, read_committed_fingerprints, read_tables

from assay.store.journal.journal import JOURNAL_FILE


class CannotMount(Exception):
    """This process may not mount anything."""


@dataclass(frozen=True, slots=True)
class FullDiskCounts:
    """How a run on a small disk went."""

    kept: int
    """Answers on disk when it was full."""

    needed: int
    asked_after: int


@contextmanager
def mount_small_disk(folder: Path, size_kb: int) -> Iterator[Path]:
    """A file system of this size in memory.

    Raises:
        CannotMount: It takes rights that this process does not have.
    """
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotMount(str(error)) from None
    if mounted.returncode != 0:
        raise CannotMount(mounted.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def grow_disk(disk: Path, size_kb: int) -> None:
    """Make room."""
    subprocess.run(["mount", "-o", f"remount,size={size_kb}k", str(disk)], check=True, capture_output=True)


def run_on_small_disk(
    folder: Path, size_kb: int, *, documents: int = 1500, cache_too: bool = False
) -> FullDiskCounts:
    """Run into the end of a disk, make room, and run again."""
    bench = CommandRunner(folder)
    options = bench.write_tasks(documents=documents)[:1]
    if not cache_too:
        options.append("--no_cache")
    whole = bench.finish(bench.build_command(*options, "--output_path", "whole", "--no_cache", delay_ms=0))
    assert whole.returncode == 0, whole.stderr
    expected, needed = read_tables(bench.find_run_folder("whole")), len(bench.read_request_ids())
    bench.clear_logs()
    with mount_small_disk(folder / "disk", size_kb) as disk:
        if cache_too:
            bench.environment["ASSAY_HOME"] = str(disk / "home")
        command = bench.build_command(*options, "--output_path", str(disk / "out"), delay_ms=0.5)
        full = bench.finish(command)
        assert full.returncode in (1, 2), (full.returncode, full.stderr)
        assert "Traceback" not in full.stderr, full.stderr
        for word in ("error: ", "cannot", "hint: "):
            assert word in full.stderr, full.stderr
        grow_disk(disk, 64 * 1024)  # before looking: SQLite itself needs some room to read what was going on
        journals = list(disk.glob(f"out/*/{JOURNAL_FILE}"))
        kept = read_committed_fingerprints(journals[0].parent) if journals else set()
        given = len(bench.read_request_ids())
        later = bench.finish(command)
        assert later.returncode == 0, later.stderr
        again = bench.read_request_ids(given)
        assert not compute_fingerprints(again) & kept, "what was on disk was asked again"
        assert read_tables(bench.find_run_folder(str(disk / "out"))) == expected
        return FullDiskCounts(len(kept), needed, len(again))
