"""The wheel contains what a run needs, and works in an empty environment of every supported Python."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PYTHONS = os.environ.get("ASSAY_TEST_PYTHONS", "").split() or [sys.executable]
"""The interpreters to install the wheel with; scripts/check names every supported version that it finds."""


def run_python(*arguments: str, timeout_s: int = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    build = run_python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    assert build.returncode == 0, build.stderr
    return folder


def test_the_wheel_contains_what_a_run_needs_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("assay_harness-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for required in (
        "assay/models/embedded/weights/model.safetensors",
        "assay/builtin_tasks/quickstart/data/addition.jsonl",
        "assay/builtin_tasks/gsm8k/gsm8k.yaml",
        "assay_compat/shims/lm_eval/api/filter.py",
    ):
        assert required in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"assay", "assay_compat", "assay_harness"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".sqlite"))]
    assert wheel.stat().st_size < 15e6


@pytest.mark.release
@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_runs_the_quickstart_in_an_empty_environment(dist: Path, python: str) -> None:
    smoke = run_python("scripts/smoke.py", str(dist), python)
    if "No matching distribution" in smoke.stderr or "Could not find a version" in smoke.stderr:
        pytest.skip("no registry to install dependencies from")
    assert smoke.returncode == 0, smoke.stdout + smoke.stderr
    assert "a run, its repetition and an export worked" in smoke.stdout


def test_every_licence_of_the_base_installation_is_stated() -> None:
    process = run_python("scripts/licences.py")
    assert process.returncode == 0, process.stderr
    rows = [line for line in process.stdout.splitlines() if line.startswith("| ") and "package" not in line]
    assert {"numpy", "click", "jinja2"} <= {row.split("|")[1].strip().lower() for row in rows}
    assert not [row for row in rows if "not stated" in row]
