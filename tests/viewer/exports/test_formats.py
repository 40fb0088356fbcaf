"""All export formats: files, tasks, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.exports.conftest import ROWS

from assay.core.errors import InvalidOption, OutputError, UnknownName
from assay.viewer.exports.formats import FORMATS, export

ELSEWHERE = ("hf-eval-results", "mlflow", "wandb")
"""Formats whose own tests have what they need: a dataset on the Hub, or packages."""


def test_lm_eval_files_can_be_limited_to_some_tasks(run: Any, tmp_path: Path) -> None:
    results, samples = export(run, "lm-eval", ["sums"], tmp_path / "lm")
    assert samples.name.startswith("samples_sums_")
    assert len(samples.read_text().splitlines()) == len(ROWS) - 1, "unanswered documents have no line"
    assert "results" in json.loads(results.read_text())


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ELSEWHERE])
def test_every_format_leaves_no_partial_files(run: Any, tmp_path: Path, name: str) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    for _ in range(2):
        files = export(run, name, ["choices"], tmp_path / "place")
        assert all(file.is_file() for file in files)
    assert not list(tmp_path.rglob("*.new"))


def test_unwritable_outputs_are_errors(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnknownName, match="unknown format `xlsx`"):
        export(run, "xlsx", [], None)
    with pytest.raises(UnknownName, match="the run has no task `other`"):
        export(run, "csv", ["other"], None)
    with pytest.raises(InvalidOption, match="needs an output path"):
        export(run, "lm-eval", [], None)
    with pytest.raises(OutputError, match="is a folder"):
        export(run, "csv", [], tmp_path)
    with pytest.raises(OutputError, match="is a file"):
        export(run, "lm-eval", [], tmp_path / "file")
    with pytest.raises(OutputError, match="cannot write"):
        export(run, "csv", [], tmp_path / "file" / "x.csv")
