from __future__ import annotations

import csv
import io
import json

from assay.viewer.text_tables import render_table_text
from assay.viewer.training_curves.curve import TrainingCurve
from assay.viewer.training_curves.formats import (
    build_curve_table,
    curve_to_csv,
    curve_to_json,
    describe_alarm,
    describe_best,
    describe_checkpoint,
)


def test_table_has_a_row_for_each_checkpoint(curve: TrainingCurve) -> None:
    text = render_table_text(build_curve_table(curve.tasks[0]))
    lines = [line for line in text.splitlines() if "checkpoint-" in line]
    assert len(lines) == 4
    assert "0.8500" in lines[2] and lines[2].endswith("best")
    assert "-0.7000" in lines[3] and lines[3].endswith("regression")


def test_sentences(curve: TrainingCurve) -> None:
    (task,) = curve.tasks
    assert describe_best(task).startswith("sums: best checkpoint-300, exact_match 0.8500; ")
    assert describe_best(task).endswith("all others are worse (95 %)")
    assert describe_alarm(task, task.alarms[0]).startswith(
        "sums: exact_match of step 400 is -70.0 points compared with step 300 (p = "
    )
    assert "+0.3500 [" in describe_checkpoint(curve, "checkpoint-200")[0]
    assert "since" not in describe_checkpoint(curve, "checkpoint-100")[0]


def test_csv_has_all_numbers(curve: TrainingCurve) -> None:
    rows = list(csv.DictReader(io.StringIO(curve_to_csv(curve))))
    assert [(row["step"], row["value"], row["alarm"], row["may_be_best"]) for row in rows] == [
        ("100", "0.25", "0", "0"),
        ("200", "0.6", "0", "0"),
        ("300", "0.85", "0", "1"),
        ("400", "0.15", "1", "0"),
    ]
    assert rows[0]["difference"] == "" and float(rows[1]["difference"]) > 0.3


def test_json_can_be_written(curve: TrainingCurve) -> None:
    content = json.loads(json.dumps(curve_to_json(curve), allow_nan=False))
    assert [one["outcome"] for one in content["checkpoints"]] == ["finished"] * 4
    assert content["tasks"][0]["best"]["checkpoint"] == "checkpoint-300"
    assert content["tasks"][0]["regressions"][0]["later_steps"] == [400]
