"""The notebooks in `examples` run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.notebooks import read_code_cells

import assay
from assay.api import verify

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_tutorial_runs_and_its_run_is_verified_elsewhere(workspace: Path) -> None:
    for package in ("IPython", "pandas", "plotly"):
        pytest.importorskip(package)
    notebook = EXAMPLES / "tutorial.ipynb"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("notebooks.py")), str(notebook)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout)
    assert len(results) == len(read_code_cells(notebook))
    texts = [(one or {}).get("text/plain", "") for one in results]
    assert "Task('arithmetic', 90 documents, generate_until, exact_match, is_close)" in texts
    assert any("Comparison(journeyman against apprentice: arithmetic exact_match +" in text for text in texts)
    assert sum("<table" in (one or {}).get("text/html", "") for one in results) >= 4
    latest = assay.open_run("latest")
    assert latest.model == "journeyman" and latest.outcomes("arithmetic") == {"scored": 90}
    assert verify(latest).changes == ()  # this process has only the saved functions
