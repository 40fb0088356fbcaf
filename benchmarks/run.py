"""Runs every benchmark, one after another, and writes `results.json`, `RESULTS.md` and `plots/`.

    python benchmarks/run.py                  # all of table.toml; `make bench` makes the environments and calls this
    python benchmarks/run.py --only listing   # replaces what is known of `listing`
    python benchmarks/run.py --quick          # tiny sizes, to try the machinery; goes to benchmarks/.quick
    python benchmarks/run.py --render         # RESULTS.md and plots from results.json, measuring nothing

Each benchmark is a process of its own with a time limit. One that fails, or cannot run here, is recorded with the reason and the
others go on; the exit code is then 1. What was measured before it failed is kept.
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

from machine import busy_share, surroundings
from measurements import load
from peers import find_peer, look, task_folder
from rendering import render

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("ASSAY_SHARED") or HERE.parents[1] / "shared")
ENVIRONMENTS = ("lm_eval", "lmms_eval", "packages")
PATIENCE = 2.5
"""How many times as long as expected a benchmark may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A row of the table; its comment says what the columns are."""

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
    """The benchmarks, in the order of the table."""
    rows = tomllib.loads(file.read_text("utf-8"))["benchmark"]
    lists = ("arguments", "quick", "needs")
    return [
        Benchmark(
            **row | {"script": file.parent / row["script"]} | {key: tuple(row.get(key, ())) for key in lists}
        )
        for row in rows
    ]


def missing(benchmark: Benchmark) -> str:
    """Why it cannot run here; empty if it can."""
    for need in benchmark.needs:
        place, _, package = need.partition(":")
        if need == "hub":
            if not (SHARED / "hub").is_dir():
                return "no datasets here (a folder `hub` in ASSAY_SHARED)"
        elif place in ENVIRONMENTS:
            python = find_peer(place)
            if python is None:
                return f"no environment with {place}"
            if package and not look(python, place, package)["versions"][package]:
                return f"the environment with {place} has no {package}"
        elif find_spec(need) is None:
            return f"the package {need} is not installed"
    return ""


def command_of(benchmark: Benchmark, *, quick: bool, report: Path) -> list[str]:
    """How it is started."""
    python = find_peer(benchmark.python) if benchmark.python else sys.executable
    words = benchmark.quick if quick and benchmark.quick else benchmark.arguments
    places = {"{data_root}": lambda: SHARED / "hub", "{task_root}": task_folder}
    filled = [str(places[word]()) if word in places else word for word in words]
    return [str(python), str(benchmark.script), *filled, "--json", str(report)]


def run(benchmark: Benchmark, *, quick: bool) -> dict[str, Any]:
    """Run it, and say what it found or why it did not."""
    entry: dict[str, Any] = {
        "status": "measured", "why": "", "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "arguments": list(benchmark.quick if quick and benchmark.quick else benchmark.arguments), "seconds": 0.0,
        "load": load(), "others": busy_share(), "measurements": [],
    }  # fmt: skip
    if why := missing(benchmark):
        return entry | {"status": "not run", "why": why}
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder) / "report.json", Path(folder) / "errors"
        began = time.monotonic()
        why = wait_for(
            command_of(benchmark, quick=quick, report=report), errors, 60 * PATIENCE * benchmark.minutes
        )
        entry["seconds"] = round(time.monotonic() - began, 1)
        if report.exists():
            entry["measurements"] = json.loads(report.read_text("utf-8"))["measurements"]
        if not why and not entry["measurements"]:
            why = "it measured nothing"
    return entry | ({"status": "failed", "why": why} if why else {})


def wait_for(command: list[str], errors: Path, limit_s: float) -> str:
    """Run a command with all it starts in a session of its own; says why it failed, if it did."""
    with errors.open("w") as stream:
        process = subprocess.Popen(command, cwd=HERE.parent, stderr=stream, start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            return f"it took longer than {limit_s / 60:.0f} minutes"
        except BaseException:
            end(process)
            raise
    text = errors.read_text("utf-8", "replace")
    if not code:
        return ""
    sys.stderr.write(text[-3000:])
    last = (text.strip().splitlines() or ["it said nothing"])[-1]
    return f"exit code {code}: {without_paths(last)[:300]}"


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def without_paths(text: str) -> str:
    """Folders of this machine are nobody's business.

    >>> without_paths("no file `/some/where/x.py` there")
    'no file `…/x.py` there'
    """
    return re.sub(r"(?<![\w.:/])/(?:[^\s/'\"`:]+/)+", "…/", text)


def main() -> int:
    given = arguments()
    table = read_table(given.table)
    names = [one.name for one in table]
    if unknown := set(given.only) - set(names):
        raise SystemExit(f"no benchmark is called {', '.join(sorted(unknown))}\n\nhint: {', '.join(names)}")
    chosen = [one for one in table if not given.only or one.name in given.only]
    if given.list:
        for one in chosen:
            print(
                f"{one.name:<18} {one.minutes:>4.1f} min  {one.title}{' [' + why + ']' if (why := missing(one)) else ''}"
            )
        print(f"{'':<18} {sum(one.minutes for one in chosen):>4.1f} min")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    results = given.folder / "results.json"
    if given.render:
        known = json.loads((given.results or results).read_text("utf-8"))
        render(known, table, given.folder, notes=given.table.parent / "notes")
        return 0
    return measure_all(chosen, table, given, results)


def measure_all(
    chosen: list[Benchmark], table: list[Benchmark], given: argparse.Namespace, results: Path
) -> int:
    """One after another; what is known is written after each."""
    known: dict[str, Any] = json.loads(results.read_text("utf-8")) if results.exists() else {"benchmarks": {}}
    compile_dir(HERE.parent / "src", quiet=2)  # as pip leaves a package, and the peers are
    around, bad = surroundings(), []
    for one in chosen:
        print(f"\n== {one.name}: {one.title} (about {one.minutes:g} min, load {load()})", flush=True)
        entry = run(one, quick=given.quick) | around
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
        print(f"without numbers, or not with all: {', '.join(bad)}")
    return 1 if bad else 0


def arguments() -> argparse.Namespace:
    """What was asked for; quick numbers never get where the others are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these benchmarks")
    parser.add_argument(
        "--list", action="store_true", help="show the benchmarks, and why some cannot run here"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the machinery")
    parser.add_argument(
        "--render", action="store_true", help="only write RESULTS.md and plots from results.json"
    )
    parser.add_argument("--folder", type=Path, help="where to write, instead of benchmarks/")
    parser.add_argument("--results", type=Path, help="with --render: results.json of elsewhere")
    parser.add_argument("--table", type=Path, default=HERE / "table.toml", help="other benchmarks")
    given = parser.parse_args()
    given.folder = given.folder or (HERE / ".quick" if given.quick else HERE)
    if given.quick and given.folder.resolve() == HERE:
        parser.error("quick numbers are not results: they cannot go to benchmarks/")
    return given


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    sys.exit(main())
