"""Run on a disk that is too small: the run stops with a clear error, without damage, and resumes when there is space."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.flows.running import CommandRunner, compute_fingerprints, read_committed_fingerprints, read_tables

from assay.store.journal.journal import JOURNAL_FILE


class CannotMount(Exception):
    """This process has no permission to mount a file system."""


@dataclass(frozen=True, slots=True)
class FullDiskCounts:
    """Counts of a run on a small disk."""

    kept: int
    """Stored answers when the disk was full."""

    needed: int
    asked_after: int


@contextmanager
def mount_small_disk(folder: Path, size_kb: int) -> Iterator[Path]:
    """Mount an in-memory file system of this size.

    Raises:
        CannotMount: The process has no permission to mount it.
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
    """Enlarge the file system."""
    subprocess.run(["mount", "-o", f"remount,size={size_kb}k", str(disk)], check=True, capture_output=True)


def run_on_small_disk(
    folder: Path, size_kb: int, *, documents: int = 1500, cache_too: bool = False
) -> FullDiskCounts:
    """Run until the disk is full, enlarge it, and run again."""
    runner = CommandRunner(folder)
    options = runner.write_tasks(documents=documents)[:1]
    if not cache_too:
        options.append("--no_cache")
    whole = runner.finish(runner.build_command(*options, "--output_path", "whole", "--no_cache", delay_ms=0))
    assert whole.returncode == 0, whole.stderr
    expected, needed = read_tables(runner.find_run_folder("whole")), len(runner.read_request_ids())
    runner.clear_logs()
    with mount_small_disk(folder / "disk", size_kb) as disk:
        if cache_too:
            runner.environment["ASSAY_HOME"] = str(disk / "home")
        command = runner.build_command(*options, "--output_path", str(disk / "out"), delay_ms=0.5)
        full = runner.finish(command)
        assert full.returncode in (1, 2), (full.returncode, full.stderr)
        assert "Traceback" not in full.stderr, full.stderr
        for word in ("error: ", "cannot", "hint: "):
            assert word in full.stderr, full.stderr
        grow_disk(disk, 64 * 1024)  # SQLite needs free space to open the journal
        journals = list(disk.glob(f"out/*/{JOURNAL_FILE}"))
        kept = read_committed_fingerprints(journals[0].parent) if journals else set()
        given = len(runner.read_request_ids())
        later = runner.finish(command)
        assert later.returncode == 0, later.stderr
        again = runner.read_request_ids(given)
        assert not compute_fingerprints(again) & kept, "a stored answer was requested again"
        assert read_tables(runner.find_run_folder(str(disk / "out"))) == expected
        return FullDiskCounts(len(kept), needed, len(again))
