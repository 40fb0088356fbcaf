"""Run the tests that need another environment: other packages, or a process to which file permissions apply."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.conftest import has_interchange_packages, has_service_packages, ignores_permissions

PROJECT = Path(__file__).parents[1]
SERVICES_PYTHON = Path(sys.prefix, "services", "bin", "python")
INTERCHANGE_PYTHON = Path(
    os.environ.get("ASSAY_TEST_INTERCHANGE_PYTHON") or Path(sys.prefix, "interchange", "bin", "python")
)


def run_marked_tests(marker: str, *command: str | Path, options: Sequence[str] = ()) -> None:
    """Run the tests with this marker by `command -m pytest`; every one has to pass."""
    marked = re.compile(rf"^[^#\n]*pytest\.mark\.{marker}\b", re.MULTILINE)
    paths = (path for folder in ("tests", "plugins") for path in (PROJECT / folder).rglob("test_*.py"))
    files = [path for path in sorted(paths) if marked.search(path.read_text("utf-8"))]
    process = subprocess.run(
        [*command, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marker, *options, *files],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert re.search(r"\b[1-9]\d* passed", process.stdout) and "skipped" not in process.stdout, process.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(has_service_packages(), reason="the packages are installed here, so the tests run here")
def test_the_packages_of_providers_and_trackers_work_with_assay() -> None:
    if not SERVICES_PYTHON.exists():
        pytest.skip("no environment with the packages of providers and trackers: scripts/check creates it")
    run_marked_tests("services", SERVICES_PYTHON)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    has_interchange_packages(), reason="the packages are installed here, so the tests run here"
)
def test_the_packages_of_interchange_formats_read_exports() -> None:
    if not INTERCHANGE_PYTHON.exists():
        pytest.skip(
            "no environment with inspect_ai and every-eval-ever: ASSAY_TEST_INTERCHANGE=1 scripts/check creates it,"
            " or name its interpreter in ASSAY_TEST_INTERCHANGE_PYTHON"
        )
    leaks = "ignore::pytest.PytestUnraisableExceptionWarning"  # of inspect_ai, found after the last test
    run_marked_tests("interchange", INTERCHANGE_PYTHON, options=("-W", leaks))


@pytest.mark.skipif(
    not ignores_permissions(), reason="permissions apply to this process, so the tests run here"
)
def test_files_that_may_not_be_written() -> None:
    """Root without the capabilities that override permissions is an ordinary owner of files."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or not hasattr(os, "geteuid"):
        pytest.skip("no `setpriv` to run a process without root's privileges")
    dropped = "-dac_override,-dac_read_search"
    run_marked_tests(
        "permissions", setpriv, f"--bounding-set={dropped}", f"--inh-caps={dropped}", sys.executable
    )
