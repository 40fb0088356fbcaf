"""Measure the time and memory of reports, tables and listed documents of large runs.

    python benchmarks/report.py [--documents 100000] [--runs 2]

Creates runs of an instant model (`--keep FOLDER` keeps them), then times `assay report`, `assay table` and `assay show` in separate
processes, with compiled modules, as installed by `pip`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from instant import FOLDER, write_task
from measurements import Goal, Measurement, Report, add_json_option
from peers import measure_script

KINDS = ("arithmetic", "algebra", "geometry", "logic", "words")
MAKE = """
import json, sys
import assay
task, folder, count, benchmarks = sys.argv[1:]
sys.path.insert(0, benchmarks)
from instant import make_model_with_accuracy
models = [make_model_with_accuracy(f"instant-{number}", 0.5 + 0.02 * number) for number in range(int(count))]
runs = [assay.run(model=model, tasks=[task], output_path=folder, no_cache=True, log_samples=False) for model in models]
print(json.dumps({"folders": [str(run.folder) for run in runs]}))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--keep", default="")
    add_json_option(parser)
    options = parser.parse_args()
    found = Report(options.json)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folders = make_runs(folder, options.documents, options.runs)
        rows = [
            ("assay report, one run", ["report", folders[0], "-o", str(folder / "one.html")]),
            (f"assay report, {len(folders)} runs", ["report", *folders, "-o", str(folder / "all.html")]),
            (f"assay table, {len(folders)} runs", ["table", *folders]),
            ("assay show", ["show", folders[0]]),
            ("assay show --wrong", ["show", folders[0], "--wrong"]),
            ("assay show --ending scored", ["show", folders[0], "--ending", "scored"]),
        ]
        os.environ.update({"PYTHONPYCACHEPREFIX": f"{temporary}/compiled", "PYTHONDONTWRITEBYTECODE": ""})
        for _, words in rows[2:]:
            measure_command([sys.executable, "-m", "assay", *words])  # compile the modules
        print(
            f"{options.documents:,} documents per run, {options.runs} runs; load {os.getloadavg()[0]:.1f}\n"
        )
        print("| | CPU s | wall s | peak MB | file MB |\n|---|---|---|---|---|")
        for name, words in rows:
            cpu, wall, peak = measure_command([sys.executable, "-m", "assay", *words])
            size = f"{Path(words[-1]).stat().st_size / 1e6:.1f}" if words[0] == "report" else ""
            print(f"| {name} | {cpu:.2f} | {wall:.2f} | {peak:.0f} | {size} |")
            command, *rest = name.split(",")
            what = f"`{command}`{''.join(f',{part}' for part in rest)} of {options.documents:,} documents"
            goal = Goal(most=0.3) if words[0] == "show" else None
            details = {"wall s": wall, "peak MB": round(peak)} | ({"file MB": size} if size else {})
            found.add(Measurement(what=what, ours=cpu, unit="CPU s", goal=goal, details=details))


def make_runs(folder: Path, documents: int, runs: int) -> list[str]:
    """Create the runs in a folder and return their folders; existing runs are reused."""
    rows = (
        {
            "question": f"Which number comes after {n - 1} and before {n + 1}?",
            "answer": str(n),
            "category": KINDS[n % 5],
        }
        for n in range(documents)
    )
    task = write_task(folder, f"numbers{documents}", rows)
    made = measure_script(
        sys.executable, MAKE, str(task), str(folder / "runs"), str(runs), FOLDER, cwd=folder
    )
    return list(made["folders"])


def measure_command(command: list[str]) -> tuple[float, float, float]:
    """Run a command and return its CPU seconds, wall seconds and peak MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL,"
        " stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start, int(done.stdout) / 1024


if __name__ == "__main__":
    main()
