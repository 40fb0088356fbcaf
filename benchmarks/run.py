"""Run every benchmark in sequence and write `results.json`, `RESULTS.md` and `plots/`.

    python benchmarks/run.py                  # everything in table.toml; `make bench` creates the environments and calls this
    python benchmarks/run.py --only listing   # replaces the results of `listing`
    python benchmarks/run.py --quick          # tiny sizes, to test the setup; writes to benchmarks/.quick
    python benchmarks/run.py --render         # writes RESULTS.md and plots from results.json without measuring

Each benchmark runs in a separate process with a time limit. If one fails or cannot run, the reason is recorded with the
measurements it made before the failure, the other benchmarks still run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from compileall import compile_dir
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from machine import collect_environment, measure_busy_share
from measurements import get_load
from peers import find_peer, find_task_folder, inspect_environment
from rendering import render

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("ASSAY_SHARED") or HERE.parents[1] / "shared")
ENVIRONMENTS = ("lm_eval", "lmms_eval", "inspect_ai", "lighteval", "packages")
TIME_LIMIT_FACTOR = 2.5
"""The time limit of a benchmark, as a multiple of its expected duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A row of table.toml; the comment there describes the fields."""

    name: str
    title: str
    script: Path
    minutes: float
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    python: str = ""
    plot: str = ""


def read_table(file: Path) -> list[Benchmark]:
    """Return the benchmarks in table order."""
    rows = tomllib.loads(file.read_text("utf-8"))["benchmark"]
    lists = ("arguments", "quick", "needs")
    return [
        Benchmark(
            **row | {"script": file.parent / row["script"]} | {key: tuple(row.get(key, ())) for key in lists}
        )
        for row in rows
    ]


def find_missing_requirement(benchmark: Benchmark) -> str:
    """Return why the benchmark cannot run, or an empty string."""
    for need in benchmark.needs:
        place, _, package = need.partition(":")
        if need == "hub":
            if not (SHARED / "hub").is_dir():
                return "no datasets (folder `hub` in ASSAY_SHARED)"
        elif place in ENVIRONMENTS:
            python = find_peer(place)
            if python is None:
                return f"no environment with {place}"
            if package and not inspect_environment(python, place, package)["versions"][package]:
                return f"the environment with {place} has no {package}"
        elif find_spec(need) is None:
            return f"the package {need} is not installed"
    return ""


def build_command(benchmark: Benchmark, *, quick: bool, report: Path) -> list[str]:
    """Return the command that runs a benchmark."""
    python = find_peer(benchmark.python) if benchmark.python else sys.executable
    words = benchmark.quick if quick and benchmark.quick else benchmark.arguments
    places = {"{data_root}": lambda: SHARED / "hub", "{task_root}": find_task_folder}
    filled = [str(places[word]()) if word in places else word for word in words]
    return [str(python), str(benchmark.script), *filled, "--json", str(report)]


def run_benchmark(benchmark: Benchmark, *, quick: bool) -> dict[str, Any]:
    """Run a benchmark and return its entry for results.json."""
    entry: dict[str, Any] = {
        "status": "measured", "why": "", "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "arguments": list(benchmark.quick if quick and benchmark.quick else benchmark.arguments), "seconds": 0.0,
        "load": get_load(), "others": measure_busy_share(), "measurements": [],
    }  # fmt: skip
    if why := find_missing_requirement(benchmark):
        return entry | {"status": "not run", "why": why}
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder) / "report.json", Path(folder) / "errors"
        began = time.monotonic()
        why = run_command(
            build_command(benchmark, quick=quick, report=report),
            errors,
            60 * TIME_LIMIT_FACTOR * benchmark.minutes,
        )
        entry["seconds"] = round(time.monotonic() - began, 1)
        if report.exists():
            entry["measurements"] = json.loads(report.read_text("utf-8"))["measurements"]
        if not why and not entry["measurements"]:
            why = "no measurements"
    return entry | ({"status": "failed", "why": why} if why else {})


def run_command(command: list[str], errors: Path, limit_s: float) -> str:
    """Run a command in a new session and return why it failed, or an empty string."""
    with errors.open("w") as stream:
        process = subprocess.Popen(command, cwd=HERE.parent, stderr=stream, start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            kill(process)
            return f"time limit of {limit_s / 60:.0f} minutes exceeded"
        except BaseException:
            kill(process)
            raise
    text = errors.read_text("utf-8", "replace")
    if not code:
        return ""
    sys.stderr.write(text[-3000:])
    last = (text.strip().splitlines() or ["no error output"])[-1]
    return f"exit code {code}: {strip_paths(last)[:300]}"


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def strip_paths(text: str) -> str:
    """Remove the folders of this machine from a text.

    >>> without_paths("no file `/some/where/x.py` there")
    'no file `…/x.py` there'
    """
    return re.sub(r"(?<![\w.:/])/(?:[^\s/'\"`:]+/)+", "…/", text)


def main() -> int:
    given = parse_arguments()
    table = read_table(given.table)
    names = [one.name for one in table]
    if unknown := set(given.only) - set(names):
        raise SystemExit(f"unknown benchmark: {', '.join(sorted(unknown))}\n\nhint: {', '.join(names)}")
    chosen = [one for one in table if not given.only or one.name in given.only]
    if given.list:
        for one in chosen:
            print(
                f"{one.name:<18} {one.minutes:>4.1f} min  {one.title}{' [' + why + ']' if (why := find_missing_requirement(one)) else ''}"
            )
        print(f"{'':<18} {sum(one.minutes for one in chosen):>4.1f} min")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    results = given.folder / "results.json"
    if given.render:
        known = json.loads((given.results or results).read_text("utf-8"))
        render(known, table, given.folder, notes=given.table.parent / "notes")
        return 0
    return run_benchmarks(chosen, table, given, results)


def run_benchmarks(
    chosen: list[Benchmark], table: list[Benchmark], given: argparse.Namespace, results: Path
) -> int:
    """Run the benchmarks in sequence and write the results after each."""
    known: dict[str, Any] = json.loads(results.read_text("utf-8")) if results.exists() else {"benchmarks": {}}
    compile_dir(
        HERE.parent / "src", quiet=2
    )  # pip compiles installed packages, so the peers are compiled too
    environment, bad = collect_environment(), []
    for one in chosen:
        print(f"\n== {one.name}: {one.title} (about {one.minutes:g} min, load {get_load()})", flush=True)
        entry = run_benchmark(one, quick=given.quick) | environment
        print(
            f"-- {one.name}: {entry['status']}{': ' + entry['why'] if entry['why'] else ''} ({entry['seconds']:.0f} s)",
            flush=True,
        )
        bad += [one.name] if entry["status"] != "measured" else []
        known["benchmarks"][one.name] = entry
        known["benchmarks"] = {
            row.name: known["benchmarks"][row.name] for row in table if row.name in known["benchmarks"]
        }
        results.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
        render(known, table, given.folder, notes=given.table.parent / "notes")
    print(f"\nwritten: {os.path.relpath(given.folder / 'RESULTS.md')}")
    if bad:
        print(f"incomplete: {', '.join(bad)}")
    return 1 if bad else 0


def parse_arguments() -> argparse.Namespace:
    """Parse the arguments; quick results never overwrite benchmarks/results.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run only these benchmarks")
    parser.add_argument(
        "--list", action="store_true", help="list the benchmarks, with the reason if one cannot run"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to test the setup")
    parser.add_argument(
        "--render", action="store_true", help="write RESULTS.md and plots from results.json without measuring"
    )
    parser.add_argument("--folder", type=Path, help="output folder (default: benchmarks/)")
    parser.add_argument("--results", type=Path, help="with --render: another results.json")
    parser.add_argument("--table", type=Path, default=HERE / "table.toml", help="another table of benchmarks")
    given = parser.parse_args()
    given.folder = given.folder or (HERE / ".quick" if given.quick else HERE)
    if given.quick and given.folder.resolve() == HERE:
        parser.error("--quick cannot write to benchmarks/: its numbers are not valid results")
    return given


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # kill child processes on termination
    sys.exit(main())
