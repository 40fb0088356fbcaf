"""Calibration of a judge with human labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import DatasetError, UnknownName, UserError
from assay.viewer.analysis.judge_calibration import calibrate_judge, read_labels
from assay.viewer.comparison.sources import open_source

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A run in which two thirds of the documents are right."""
    task = write_task(tmp_path, "sums", ROWS)
    answers = make_model(lambda request: str(request.document + 1) if request.document % 3 else "?")
    return assay.run(model=answers, tasks=[str(task)], no_cache=True, output_path=str(tmp_path / "out"))


def write_labels(path: Path, labels: dict[int, Any]) -> Path:
    if path.suffix == ".csv":
        path.write_text("document,label\n" + "".join(f"{n},{label}\n" for n, label in labels.items()))
    else:
        path.write_text(
            "".join(json.dumps({"document": n, "label": one}) + "\n" for n, one in labels.items())
        )
    return path


@pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl"])
def test_an_agreeing_judge_narrows_the_interval(run: Any, tmp_path: Path, name: str) -> None:
    labels = {n: bool(n % 3) for n in range(20)}
    (report,) = calibrate_judge(open_source(run), read_labels(write_labels(tmp_path / name, labels)))
    assert report.agreement == 1.0 and report.kappa == 1.0 and report.bias == 0.0
    assert report.calibrated.labelled == 20 and report.calibrated.judged == 60
    assert report.calibrated.worth > 30
    assert report.calibrated.value == pytest.approx(2 / 3, abs=0.02)
    assert report.flip_rate is None


def test_the_bias_of_a_judge_is_corrected(run: Any, tmp_path: Path) -> None:
    labels = {n: n % 3 == 1 for n in range(30)}
    (report,) = calibrate_judge(open_source(run), read_labels(write_labels(tmp_path / "l.csv", labels)))
    assert report.judge_mean == pytest.approx(2 / 3)
    assert report.bias == pytest.approx(1 / 3)
    assert report.calibrated.interval.low < 1 / 3 < report.calibrated.interval.high < 2 / 3


def test_the_flip_rate_is_computed_for_a_judge_asked_in_both_orders(tmp_path: Path) -> None:
    helpers = (
        "def process_results(doc, results):\n"
        "    n = int(doc['answer'])\n"
        "    return {'wins': float(n % 2), 'wins_consistent': float(n % 5 != 0)}\n"
    )
    from tests.making import Function

    names = ["wins", "wins_consistent"]
    keys: dict[str, Any] = {
        "process_results": Function("utils.process_results"),
        "metric_list": [{"metric": name, "aggregation": "mean"} for name in names],
    }
    task = write_task(tmp_path, "duel", ROWS, helpers=helpers, **keys)
    made = assay.run(model=make_model(lambda request: "x"), tasks=[str(task)], no_cache=True, output_path=str(tmp_path / "o"))  # fmt: skip
    (report,) = calibrate_judge(open_source(made), {("duel", n): 1.0 for n in range(10)})
    assert report.flip_rate == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("document,label\n1,maybe\n", "invalid label"),
        ("document,label\n", "no labels"),
        ("a\n1\n", "invalid label"),
    ],
)
def test_invalid_label_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "l.csv").write_text(content)
    with pytest.raises(DatasetError, match=message):
        read_labels(tmp_path / "l.csv")
    with pytest.raises(DatasetError, match="cannot read"):
        read_labels(tmp_path / "missing.csv")


def test_unmatched_labels_and_unknown_metrics_are_refused(run: Any) -> None:
    with pytest.raises(UserError, match="no label matches"):
        calibrate_judge(open_source(run), {("other", 1): 1.0})
    with pytest.raises(UnknownName, match="no metric `acc`"):
        calibrate_judge(open_source(run), {("sums", 1): 1.0, ("sums", 2): 1.0}, "acc")
