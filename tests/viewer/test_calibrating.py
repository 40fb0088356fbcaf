"""A judge against people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.making import make_model, write_task

import assay
from assay.core.errors import BadData, UnknownName, UserMistake
from assay.viewer.comparison.calibrating import calibrate, read_labels
from assay.viewer.comparison.sources import open_source

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(60)]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A run whose metric says that two thirds are right."""
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
def test_a_judge_that_agrees_makes_labels_worth_more(run: Any, tmp_path: Path, name: str) -> None:
    labels = {n: bool(n % 3) for n in range(20)}
    (report,) = calibrate(open_source(run), read_labels(write_labels(tmp_path / name, labels)))
    assert report.agreement == 1.0 and report.kappa == 1.0 and report.bias == 0.0
    assert report.calibrated.labelled == 20 and report.calibrated.judged == 60
    assert report.calibrated.worth > 40
    assert report.calibrated.value == pytest.approx(2 / 3, abs=0.02)
    assert report.flip_rate is None


def test_a_judge_that_is_too_kind_is_put_right(run: Any, tmp_path: Path) -> None:
    labels = {n: n % 3 == 1 for n in range(30)}
    (report,) = calibrate(open_source(run), read_labels(write_labels(tmp_path / "l.csv", labels)))
    assert report.judge_mean == pytest.approx(2 / 3)
    assert report.bias == pytest.approx(1 / 3)
    assert report.calibrated.interval.low < 1 / 3 < report.calibrated.interval.high < 2 / 3


def test_the_flip_rate_comes_from_a_judge_asked_in_both_orders(tmp_path: Path) -> None:
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
    (report,) = calibrate(open_source(made), {("duel", n): 1.0 for n in range(10)})
    assert report.flip_rate == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("document,label\n1,maybe\n", "not a label"),
        ("document,label\n", "no labels"),
        ("a\n1\n", "not a label"),
    ],
)
def test_files_that_hold_no_labels_are_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "l.csv").write_text(content)
    with pytest.raises(BadData, match=said):
        read_labels(tmp_path / "l.csv")
    with pytest.raises(BadData, match="cannot read"):
        read_labels(tmp_path / "missing.csv")


def test_labels_of_nothing_and_unknown_metrics_are_refused(run: Any) -> None:
    with pytest.raises(UserMistake, match="no label belongs"):
        calibrate(open_source(run), {("other", 1): 1.0})
    with pytest.raises(UnknownName, match="no metric `acc`"):
        calibrate(open_source(run), {("sums", 1): 1.0, ("sums", 2): 1.0}, "acc")
