"""The content of a report: scores, comparison, settings, sample documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import InvalidOption
from assay.viewer.report import ReportOptions, build_report


def test_the_sample_has_every_kind_of_document_and_both_runs(runs: list[Any]) -> None:
    report = build_report(runs, ReportOptions(documents=10, seed=3))
    assert len(report.documents) == 10
    assert {view.task for view in report.documents} == {"<i>sums</i>", "choices"}
    assert {view.why for view in report.documents} >= {"wrong", "failed", "right"}
    assert all(len(view.sides) == 2 for view in report.documents)
    again = build_report(runs, ReportOptions(documents=10, seed=3))
    assert [view.number for view in again.documents] == [view.number for view in report.documents]
    choices = next(view for view in report.documents if view.task == "choices")
    assert [(choice["text"], choice["chosen"]) for choice in choices.sides[0].choices] == [
        (" no", False),
        (" yes", True),
    ]


def test_a_report_of_one_run_has_no_comparison_and_may_have_no_documents(runs: list[Any]) -> None:
    report = build_report(runs[:1], ReportOptions(documents=0))
    assert (report.documents, report.comparisons, report.matrix) == ([], [], None)
    assert [row["value"] for row in report.rows] == ["0.2353", "0.5000"]
    assert "documents" not in dict(report.sections)


def test_different_settings_are_highlighted(runs: list[Any]) -> None:
    rows = {
        row["name"]: row["differs"] for row in build_report(runs, ReportOptions(documents=0)).settings["rows"]
    }
    assert rows["--model"] is True
    assert rows["--seed"] is False


def test_too_many_documents_are_an_error() -> None:
    with pytest.raises(InvalidOption, match="501"):
        ReportOptions(documents=501)


def test_a_run_without_scores_says_so(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    from assay.viewer.report import render_page

    task = str(write_task(tmp_path))
    run = assay.run(
        model=make_model(), tasks=[task], no_cache=True, predict_only=True, output_path=str(tmp_path / "out")
    )
    page = render_page(build_report([run], ReportOptions(documents=2)))
    run.close()
    assert "no document was scored" in page
    assert "skipped" in page


def test_runs_with_nothing_in_common_are_shown_without_a_comparison(runs: list[Any], tmp_path: Path) -> None:
    task = str(write_task(tmp_path, "other"))
    run = assay.run(
        model=make_model(name="third"), tasks=[task], no_cache=True, output_path=str(tmp_path / "out")
    )
    report = build_report([runs[1], run], ReportOptions(documents=2))
    run.close()
    (comparison,) = report.comparisons
    assert (comparison["rows"], comparison["charts"]) == ([], [])
    assert "in common" in comparison["notes"][0][1] or "different tasks" in comparison["notes"][0][1]
