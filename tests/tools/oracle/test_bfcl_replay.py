"""Tests of replaying recorded verdicts on function calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.parity.conftest import find_shared
from tools.oracle.bfcl_replay import REPOSITORY
from tools.oracle.replay import main

FUNCTION = {"name": "area", "parameters": {"properties": {"base": {"type": "integer"}}, "required": ["base"]}}
RIGHT = {"model": "m", "category": "simple_python", "id": "a", "style": "prompt", "result": "[area(base=10)]"}


def write_lines(path: Path, *records: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    folder = tmp_path / "hub" / REPOSITORY
    write_lines(folder / "BFCL_v4_simple_python.json", {"id": "a", "question": [], "function": [FUNCTION]})
    write_lines(
        folder / "possible_answer" / "BFCL_v4_simple_python.json",
        {"id": "a", "ground_truth": [{"area": {"base": [10]}}]},
    )
    return tmp_path / "hub"


def test_a_file_of_answers_is_judged_and_differences_are_shown(hub: Path, tmp_path: Path) -> None:
    answers, report = tmp_path / "answers.jsonl", tmp_path / "report.json"
    write_lines(
        answers,
        {**RIGHT, "valid": True, "error_type": ""},
        {**RIGHT, "result": "[area(base=9)]", "valid": False, "error_type": "value_error:others"},
        {**RIGHT, "result": "no call", "valid": True, "error_type": ""},
    )
    run = CliRunner().invoke(main, [str(answers), "--data_root", str(hub), "--json", str(report)])
    assert run.exit_code == 0, run.output
    assert "m a: valid; replay: not a list of function calls" in run.output
    found = json.loads(report.read_text("utf-8"))
    assert found["verdicts"] == {"identical": 2, "of": 3}
    assert found["categories"] == {"simple_python": {"identical": 2, "of": 3}}
    assert [one["result"] for one in found["different"]] == ["no call"]


@pytest.mark.parity
def test_all_recorded_verdicts_are_identical(tmp_path: Path) -> None:
    shared = find_shared()
    if shared is None or not (shared / "oracle" / "bfcl").is_dir():
        pytest.skip("no recorded verdicts: set ASSAY_SHARED to the folder that holds oracle/bfcl")
    report = tmp_path / "report.json"
    run = CliRunner().invoke(main, [str(shared / "oracle" / "bfcl"), "--json", str(report)])
    assert run.exit_code == 0, run.output
    assert json.loads(report.read_text("utf-8"))["verdicts"] == {"identical": 33_149, "of": 33_149}
