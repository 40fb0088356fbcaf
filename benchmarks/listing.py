"""Measure the listing of all tasks, without and with the index that an earlier start wrote.

    python benchmarks/listing.py

Lists the ~13,000 tasks of an installed lm_eval 0.4.13 with `lm-eval ls tasks` and with `assay ls tasks`,
and prints CPU seconds, wall seconds and ratios. lighteval, if its environment exists, lists its own tasks. The limit is the
time in which Python starts and, without an index, reads the task files.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

from measurements import Goal, Measurement, Report, add_json_option
from peers import find_peer, find_task_folder, provide_lighteval_file, require_peer

READ_FILES = "import pathlib, sys; [path.read_bytes() for path in pathlib.Path(sys.argv[1]).rglob('*.y*ml')]"


def time_command(command: list[str], **environment: str) -> tuple[float, float, int]:
    """Run a command and return its CPU seconds, wall seconds and number of output lines."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    report = Report(parser.parse_args().json)
    peer = require_peer("lm_eval")
    ours = [sys.executable, "-m", "assay", "ls", "tasks", "--include_path", str(find_task_folder())]
    with tempfile.TemporaryDirectory() as home:
        rows = [
            ("lm_eval ls tasks", time_command([str(peer), "-m", "lm_eval", "ls", "tasks"])),
            ("assay ls tasks, no index", time_command(ours, ASSAY_HOME=home)),
            ("assay ls tasks, with index", min(time_command(ours, ASSAY_HOME=home) for _ in range(3))),
        ]
    print(f"{'':<28} {'CPU s':>7} {'wall s':>7} {'lines':>7} {'ratio (CPU)':>12}")
    for name, (cpu, wall, lines) in rows:
        print(f"{name:<28} {cpu:>7.2f} {wall:>7.2f} {lines:>7} {rows[0][1][0] / cpu:>11.1f}x")
    limits = [
        min(time_command([sys.executable, "-c", code, str(find_task_folder())]) for _ in range(3))[0]
        for code in (READ_FILES, "")
    ]
    peers = {"lm_eval": rows[0][1]}
    if lighteval := find_peer("lighteval"):
        provide_lighteval_file(lighteval)
        command = [str(lighteval.with_name("lighteval")), "tasks", "list"]
        peers["lighteval"] = time_command(command, HF_HUB_OFFLINE="1")
        print(f"{'lighteval tasks list':<28} {peers['lighteval'][0]:>7.2f} {peers['lighteval'][1]:>7.2f}")
    for (name, (cpu, wall, lines)), most, limit in zip(rows[1:], (3.0, 0.4), limits, strict=True):
        for against, theirs in peers.items():
            report.add(
                Measurement(
                    what=name, ours=cpu, peer=theirs[0], against=against, unit="CPU s", limit=limit,
                    limited_by="Python reads the files" if limit is limits[0] else "Python starts",
                    goal=Goal(most=most) if against == "lm_eval" else None,
                    details={"wall s": wall, "wall s of the peer": theirs[1], "lines": lines, "lines of the peer": theirs[2]},
                )
            )  # fmt: skip


if __name__ == "__main__":
    main()
