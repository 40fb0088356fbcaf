"""Listing every task: the first time, and with the index in memory of an earlier start.

    python benchmarks/listing.py

Lists the ~13,000 tasks of lm_eval 0.4.13 (its own installed folder) with `lm-eval ls tasks` and with `assay ls tasks`,
and prints CPU seconds, wall seconds and ratios.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers import peer_python


def timed(command: list[str], **environment: str) -> tuple[float, float, int]:
    """(CPU seconds, wall seconds, lines printed) of a command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    finished = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, finished.stdout.count(b"\n")


def main() -> None:
    peer = peer_python("lm_eval")
    root = subprocess.run(
        [
            peer,
            "-c",
            "import importlib.util as u; print(u.find_spec('lm_eval').submodule_search_locations[0])",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    ours = [sys.executable, "-m", "assay", "ls", "tasks", "--include_path", str(Path(root) / "tasks")]
    with tempfile.TemporaryDirectory() as home:
        rows = [
            ("lm_eval ls tasks", timed([str(peer), "-m", "lm_eval", "ls", "tasks"])),
            ("assay ls tasks, first time", timed(ours, ASSAY_HOME=home)),
            ("assay ls tasks, again", timed(ours, ASSAY_HOME=home)),
            ("assay ls tasks, again", timed(ours, ASSAY_HOME=home)),
        ]
    print(f"{'':<28} {'CPU s':>7} {'wall s':>7} {'lines':>7} {'ratio (CPU)':>12}")
    for name, (cpu, wall, lines) in rows:
        print(f"{name:<28} {cpu:>7.2f} {wall:>7.2f} {lines:>7} {rows[0][1][0] / cpu:>11.1f}x")


if __name__ == "__main__":
    main()
