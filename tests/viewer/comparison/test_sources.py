"""Runs and result files as sources of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.making import make_model, write_task
from tests.viewer.comparison.conftest import ROWS, Runs, right_for

import assay
from assay.core.errors import UnknownName
from assay.viewer.comparison.sources import open_source
from assay.viewer.exports.lm_eval import write_lm_eval


def test_lm_eval_files_are_compared_like_runs(runs: Runs, tmp_path: Path) -> None:
    first, second = runs(right_for(*range(10))), runs(right_for(*range(5, 30)), num_fewshot=1)
    write_lm_eval(first, str(tmp_path / "a"))
    write_lm_eval(second, str(tmp_path / "b"))
    ours = assay.compare(first, second)
    for one, other in (
        (tmp_path / "a", tmp_path / "b"),
        (first.folder, tmp_path / "b"),
        (tmp_path / "a", second),
    ):
        found = assay.compare(one, other)
        assert found.rows[0].p_value == ours.rows[0].p_value
        assert {mismatch.kind for mismatch in found.mismatches} >= {"prompts", "few-shot"}
        prompts = next(one for one in found.mismatches if one.kind == "prompts")
        assert (prompts.count, prompts.total) == (40, 40)


def test_a_folder_without_runs_or_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="neither a run nor a result folder"):
        open_source(tmp_path)


def test_the_latest_complete_scoring_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay import api

    monkeypatch.chdir(tmp_path)
    tasks = [str(write_task(tmp_path, name, ROWS)) for name in ("a", "b")]
    run = assay.run(model=make_model(right_for(1, 2)), tasks=tasks, no_cache=True, output_path="out")
    api.score(run, tasks=["a"])
    assert open_source(run).tasks == ["a", "b"]
    assert open_source(run).name == run.id
    api.score(run)
    assert open_source(run.folder).name == f"{run.id} (scoring 2)"
    assert [row.difference for row in assay.compare(run, run).rows] == [0.0, 0.0]
