"""What is shipped: a wheel that works where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def call(*words: str, timeout_s: int = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=PROJECT, capture_output=True, text=True, timeout=timeout_s, check=False
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    made = call("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    assert made.returncode == 0, made.stderr
    return folder


def test_the_wheel_holds_everything_a_run_needs_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("assay_harness-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "assay/models/embedded/weights/model.safetensors",
        "assay/builtin_tasks/quickstart/data/addition.jsonl",
        "assay/builtin_tasks/gsm8k/gsm8k.yaml",
        "assay_compat/foreign/lm_eval/api/filter.py",
    ):
        assert needed in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"assay", "assay_compat", "assay_harness"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".sqlite"))]
    assert wheel.stat().st_size < 15e6


@pytest.mark.release
def test_the_wheel_works_in_an_empty_environment(dist: Path) -> None:
    done = call("scripts/smoke.py", str(dist))
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip("no registry to install dependencies from")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a run, its repetition and an export worked" in done.stdout


def test_every_licence_of_the_base_install_is_stated() -> None:
    done = call("scripts/licences.py")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "package" not in line]
    assert {"numpy", "click", "jinja2"} <= {row.split("|")[1].strip().lower() for row in rows}
    assert not [row for row in rows if "not stated" in row]
