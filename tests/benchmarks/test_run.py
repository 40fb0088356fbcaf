"""`make bench` runs every benchmark, even if others fail, and renders RESULTS.md from the measurements."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "benchmarks"
PARTS = {
    "against_tree", "checkpoint_alarms", "coverage", "crossed_intervals", "decision_errors", "instant", "latency_server", "limited_server", "machine",
    "measurements", "peers", "plots", "real_losses", "reference_intervals", "remote_peers", "remote_pictures", "rendering", "run", "same_model", "subsets",
    "user_code_host", "width_bounds",
}  # fmt: skip
"""Modules that `make bench` does not run as benchmarks."""

GOOD = """
import argparse
from measurements import Goal, Measurement, Report, add_json_option
parser = argparse.ArgumentParser()
add_json_option(parser)
report = Report(parser.parse_args().json)
report.add(Measurement(what="one", ours=2.0, peer=8.0, against="another", unit="s", limit=0.5,
    limited_by="the disk", goal=Goal(of="ratio", least=5)))
report.add(Measurement(what="two", ours=1.0, peer=3.0, against="another", unit="s"))
report.add(Measurement(what="two", ours=1.0, peer=2.0, against="the best", unit="s"))
"""


def run_bench(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{FOLDER}"}
    command = [sys.executable, str(FOLDER / "run.py"), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def write_table(folder: Path, **scripts: str) -> Path:
    """Write scripts with these texts and a table that lists them."""
    rows = []
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
        rows.append(
            f'[[benchmark]]\nname = "{name}"\ntitle = "The {name} one"\nscript = "{name}.py"\nminutes = 0.5\n'
        )
    (folder / "table.toml").write_text("\n".join(rows))
    return folder / "table.toml"


def read_entries(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text("utf-8"))["benchmarks"]
    return found


def test_names_that_scripts_import_exist() -> None:
    """Most scripts need a peer, so no test runs them; a renamed function must not break them unnoticed."""
    checked = 0
    for path in FOLDER.glob("*.py"):
        text = path.read_text("utf-8").replace(
            "\\n", "\n"
        )  # scripts for other processes are string constants
        for line, module, names in re.findall(r"^(.*?)from (assay[\w.]*) import ([\w, ]+)", text, re.M):
            if "except ImportError" in line:  # an older name
                continue
            found = importlib.import_module(module)
            for name in (one.split(" as ")[0].strip() for one in names.split(",")):
                checked += 1
                assert hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}"), (
                    path.name,
                    module,
                    name,
                )
    assert checked > 30


def test_every_script_is_in_the_table() -> None:
    rows = tomllib.loads((FOLDER / "table.toml").read_text("utf-8"))["benchmark"]
    scripts = {path.stem for path in FOLDER.glob("*.py")} - PARTS
    assert {Path(row["script"]).stem for row in rows} == scripts
    assert {row["name"] for row in rows} == {path.stem for path in (FOLDER / "notes").glob("*.md")}


def test_the_page_matches_the_results(tmp_path: Path) -> None:
    done = run_bench("--render", "--results", FOLDER / "results.json", "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "RESULTS.md").read_text("utf-8")
    assert page == (FOLDER / "RESULTS.md").read_text("utf-8"), "python benchmarks/run.py --render"
    drawn = {path.name: path.read_text("utf-8") for path in (tmp_path / "plots").iterdir()}
    assert drawn == {path.name: path.read_text("utf-8") for path in (FOLDER / "plots").iterdir()}
    assert {f"plots/{name}" for name in drawn} == set(re.findall(r"\((plots/[^)]+)\)", page))


def test_results_contain_no_paths_of_the_machine() -> None:
    text = (FOLDER / "results.json").read_text("utf-8")
    assert not re.search(r'["\s]/(?:tmp|work|root|home|opt)\b', text)


def test_a_benchmark_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    bad = GOOD + 'raise SystemExit("the file /some/where/x is not there")'
    file = write_table(tmp_path, bad=bad, good=GOOD)
    done = run_bench("--table", file, "--folder", tmp_path / "out")
    assert done.returncode == 1
    assert "incomplete: bad" in done.stdout
    found = read_entries(tmp_path / "out")
    assert [one["status"] for one in found.values()] == ["failed", "measured"]
    assert found["bad"]["why"] == "exit code 1: the file …/x is not there"
    assert len(found["bad"]["measurements"]) == 3, "measurements before the failure are kept"
    page = (tmp_path / "out" / "RESULTS.md").read_text("utf-8")
    assert "- [bad](#the-bad-one) failed: exit code 1: the file …/x is not there." in page
    assert (
        "| [good](#the-good-one) | one | 2 s | 8 (another) | 4.0x | 0.5 (the disk) | 25% | at least 5x | **no** |"
        in page
    )
    assert page.count("| two | 1 s |") == 2 and "| two | 1 s | 2 (the best) | 2.0x |  |  |  |  |" in page


def test_a_benchmark_that_exceeds_its_time_limit_is_killed(tmp_path: Path) -> None:
    file = write_table(tmp_path, slow="import time\ntime.sleep(60)")
    file.write_text(file.read_text().replace("0.5", "0.005"))
    assert run_bench("--table", file, "--folder", tmp_path).returncode == 1
    assert read_entries(tmp_path)["slow"]["why"] == "time limit of 0 minutes exceeded"


def test_a_benchmark_that_cannot_run_reports_the_reason(tmp_path: Path) -> None:
    file = write_table(tmp_path, far=GOOD)
    file.write_text(file.read_text() + 'needs = ["no_such_package"]\n')
    assert "[the package no_such_package is not installed]" in run_bench("--table", file, "--list").stdout
    assert run_bench("--table", file, "--folder", tmp_path).returncode == 1
    assert read_entries(tmp_path)["far"]["status"] == "not run"
    assert "was not run: the package no_such_package" in (tmp_path / "RESULTS.md").read_text("utf-8")


def test_a_repeated_benchmark_replaces_only_its_own_results(tmp_path: Path) -> None:
    file = write_table(tmp_path, first=GOOD, second=GOOD)
    assert run_bench("--table", file, "--folder", tmp_path).returncode == 0
    before = read_entries(tmp_path)
    (tmp_path / "second.py").write_text(GOOD.replace("ours=2.0", "ours=1.0"))
    assert run_bench("--table", file, "--folder", tmp_path, "--only", "second").returncode == 0
    after = read_entries(tmp_path)
    assert after["first"] == before["first"]
    assert after["second"]["measurements"][0]["ours"] == 1.0


def test_a_quick_run_never_overwrites_the_results(tmp_path: Path) -> None:
    assert run_bench("--quick", "--folder", FOLDER).returncode == 2
    done = run_bench("--quick", "--only", "report", "--folder", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_entries(tmp_path)["report"]
    assert [one["unit"] for one in found["measurements"]] == ["CPU s"] * 6
    assert all(one["ours"] > 0 for one in found["measurements"])


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    done = run_bench("--only", "listng")
    assert done.returncode == 1
    assert "unknown benchmark: listng" in done.stderr
    assert "listing" in done.stderr
