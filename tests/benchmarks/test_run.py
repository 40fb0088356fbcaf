"""`make bench`: every benchmark is run, whatever happens to the others, and RESULTS.md is what was measured."""

from __future__ import annotations

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
    "instant", "latency_server", "machine", "measurements", "peers", "plots", "remote_peers", "remote_pictures",
    "rendering", "run",
}  # fmt: skip
"""What benchmarks are made of, and what runs them."""

GOOD = """
import argparse
from measurements import Goal, Measurement, Report, add_json_option
parser = argparse.ArgumentParser()
add_json_option(parser)
report = Report(parser.parse_args().json)
report.add(Measurement(what="one", ours=2.0, peer=8.0, against="another", unit="s", goal=Goal(of="ratio", least=5)))
"""


def bench(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{FOLDER}"}
    command = [sys.executable, str(FOLDER / "run.py"), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def table(folder: Path, **scripts: str) -> Path:
    """A table of scripts with these texts."""
    rows = []
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
        rows.append(
            f'[[benchmark]]\nname = "{name}"\ntitle = "The {name} one"\nscript = "{name}.py"\nminutes = 0.5\n'
        )
    (folder / "table.toml").write_text("\n".join(rows))
    return folder / "table.toml"


def entries(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text("utf-8"))["benchmarks"]
    return found


def test_every_script_is_in_the_table() -> None:
    rows = tomllib.loads((FOLDER / "table.toml").read_text("utf-8"))["benchmark"]
    scripts = {path.stem for path in FOLDER.glob("*.py")} - PARTS
    assert {Path(row["script"]).stem for row in rows} == scripts
    assert {row["name"] for row in rows} == {path.stem for path in (FOLDER / "notes").glob("*.md")}


def test_the_page_is_what_was_measured(tmp_path: Path) -> None:
    done = bench("--render", "--results", FOLDER / "results.json", "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "RESULTS.md").read_text("utf-8")
    assert page == (FOLDER / "RESULTS.md").read_text("utf-8"), "python benchmarks/run.py --render"
    drawn = {path.name: path.read_text("utf-8") for path in (tmp_path / "plots").iterdir()}
    assert drawn == {path.name: path.read_text("utf-8") for path in (FOLDER / "plots").iterdir()}
    assert {f"plots/{name}" for name in drawn} == set(re.findall(r"\((plots/[^)]+)\)", page))


def test_results_tell_nothing_of_one_machine_but_its_kind() -> None:
    text = (FOLDER / "results.json").read_text("utf-8")
    assert not re.search(r'["\s]/(?:tmp|work|root|home|opt)\b', text)


def test_a_benchmark_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    bad = GOOD + 'raise SystemExit("the file /some/where/x is not there")'
    file = table(tmp_path, bad=bad, good=GOOD)
    done = bench("--table", file, "--folder", tmp_path / "out")
    assert done.returncode == 1
    assert "without numbers, or not with all: bad" in done.stdout
    found = entries(tmp_path / "out")
    assert [one["status"] for one in found.values()] == ["failed", "measured"]
    assert found["bad"]["why"] == "exit code 1: the file …/x is not there"
    assert len(found["bad"]["measurements"]) == 1, "what was measured before stays"
    page = (tmp_path / "out" / "RESULTS.md").read_text("utf-8")
    assert "- [bad](#the-bad-one) failed: exit code 1: the file …/x is not there." in page
    assert "| [good](#the-good-one) | one | 2 s | 8 (another) | 4.0x | at least 5x | **no** |" in page


def test_a_benchmark_that_hangs_is_ended(tmp_path: Path) -> None:
    file = table(tmp_path, slow="import time\ntime.sleep(60)")
    file.write_text(file.read_text().replace("0.5", "0.005"))
    assert bench("--table", file, "--folder", tmp_path).returncode == 1
    assert entries(tmp_path)["slow"]["why"] == "it took longer than 0 minutes"


def test_what_cannot_run_here_says_why(tmp_path: Path) -> None:
    file = table(tmp_path, far=GOOD)
    file.write_text(file.read_text() + 'needs = ["no_such_package"]\n')
    assert "[the package no_such_package is not installed]" in bench("--table", file, "--list").stdout
    assert bench("--table", file, "--folder", tmp_path).returncode == 1
    assert entries(tmp_path)["far"]["status"] == "not run"
    assert "was not run: the package no_such_package" in (tmp_path / "RESULTS.md").read_text("utf-8")


def test_one_that_is_run_again_replaces_only_its_own(tmp_path: Path) -> None:
    file = table(tmp_path, first=GOOD, second=GOOD)
    assert bench("--table", file, "--folder", tmp_path).returncode == 0
    before = entries(tmp_path)
    (tmp_path / "second.py").write_text(GOOD.replace("ours=2.0", "ours=1.0"))
    assert bench("--table", file, "--folder", tmp_path, "--only", "second").returncode == 0
    after = entries(tmp_path)
    assert after["first"] == before["first"]
    assert after["second"]["measurements"][0]["ours"] == 1.0


def test_a_quick_try_never_touches_the_results(tmp_path: Path) -> None:
    assert bench("--quick", "--folder", FOLDER).returncode == 2
    done = bench("--quick", "--only", "report", "--folder", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = entries(tmp_path)["report"]
    assert [one["unit"] for one in found["measurements"]] == ["CPU s"] * 3
    assert all(one["ours"] > 0 for one in found["measurements"])


def test_a_name_that_is_not_in_the_table_is_told_with_those_that_are() -> None:
    done = bench("--only", "listng")
    assert done.returncode == 1
    assert "no benchmark is called listng" in done.stderr
    assert "listing" in done.stderr
