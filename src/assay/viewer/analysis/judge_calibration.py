"""`calibrate`: a judge's scores compared with human labels of some documents."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import DatasetError, UnknownName, UserError
from assay.stats.calibration import CalibratedMean, compute_cohen_kappa, estimate_calibrated_mean
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.documents.score_tables import ScoreTableSource
from assay.store.runs.labels import read_run_labels
from assay.viewer.analysis.label_agreement import average_labels
from assay.viewer.comparison.pairing import scores_from_column

__all__ = ["JudgeCalibration", "calibrate_judge", "collect_run_labels", "read_labels"]

_CONSISTENCY_SUFFIX = "_consistent"
"""The suffix of the metric that a comparative judge reports when it is asked in both orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCalibration:
    """A judge's agreement with human labels, and the calibrated score."""

    task: str
    metric: str
    judge_mean: float
    """The mean of the judge's scores over all documents."""

    calibrated: CalibratedMean
    agreement: float
    """The share of labelled documents on which judge and label agree."""

    kappa: float | None
    bias: float
    """The mean of judge score minus label over the labelled documents."""

    flip_rate: float | None
    """How often the judge's preference changes when the answers are swapped; None if it was not asked in both orders."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def read_labels(path: Path) -> dict[tuple[str, int], float]:
    """Read labels by (task, document) from a JSONL or CSV file with `document`, `label` and, for several tasks, `task`.

    Raises:
        DatasetError: The file cannot be read as that.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise DatasetError(f"cannot read the labels: {error.strerror}", where=str(path)) from None
    labels: dict[tuple[str, int], float] = {}
    for number, row in _read_rows(path, text):
        try:
            label = row["label"]
            value = {"true": 1.0, "false": 0.0}.get(str(label).lower())
            labels[str(row.get("task") or ""), int(row["document"])] = (
                float(label) if value is None else value
            )
        except (KeyError, TypeError, ValueError):
            raise DatasetError(
                "invalid label",
                where=f"{path}:{number}",
                hint="each row has `document` (a number) and `label` (a number, true or false)",
            ) from None
    if not labels:
        raise DatasetError("the file has no labels", where=str(path))
    return labels


def collect_run_labels(source: ScoreTableSource, who: str = "") -> dict[tuple[str, int], float]:
    """Return the labels that people gave to the documents of a run, by (task, document).

    A label is the mean verdict of all people, or the verdict of one person.

    Raises:
        UserError: The run has no labels.
        UnknownName: The person did not label any document.
    """
    labels = read_run_labels(source.run.folder) if isinstance(source, RunScoreTables) else []
    if who and labels:
        people = sorted({label.who for label in labels})
        if who not in people:
            raise UnknownName(
                f"`{who}` has no labels", where="--labeller", hint=f"labels are by: {', '.join(people)}"
            )
        labels = [label for label in labels if label.who == who]
    found = average_labels(labels)
    if not found:
        raise UserError(
            f"`{source.name}` has no labels",
            hint="`assay view` labels documents with the keys 1 (right) and 2 (wrong); --labels reads a file",
        )
    return found


def _read_rows(path: Path, text: str) -> list[tuple[int, Mapping[str, Any]]]:
    if path.suffix == ".csv":
        return [(number, row) for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2)]
    rows: list[tuple[int, Mapping[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            rows.append((number, row if isinstance(row, dict) else {}))
    return rows


def calibrate_judge(
    source: ScoreTableSource, labels: Mapping[tuple[str, int], float], metric: str = "", level: float = 0.95
) -> list[JudgeCalibration]:
    """Calibrate the judge of each labelled task with its labels.

    Raises:
        UserError: No label matches a scored document of the run.
    """
    found = []
    for task in source.tasks:
        own = {
            document: value
            for (name, document), value in labels.items()
            if name == task or (not name and len(source.tasks) == 1)
        }
        if own and (report := _calibrate_task(source, task, own, metric, level)) is not None:
            found.append(report)
    if not found:
        raise UserError(
            "no label matches a scored document of the run",
            where="--labels",
            hint="a run with several tasks needs `task` in each row; the run has: " + ", ".join(source.tasks),
        )
    return found


def _calibrate_task(
    source: ScoreTableSource, task: str, labels: Mapping[int, float], metric: str, level: float
) -> JudgeCalibration | None:
    table = source.read_score_table(task)
    column = next((one for one in table.columns.values() if metric in ("", one.metric)), None)
    if column is None:
        known = ", ".join(one.metric for one in table.columns.values())
        raise UnknownName(f"`{task}` has no metric `{metric}`", where="--metric", hint=f"it has: {known}")
    scores = scores_from_column(column)
    if scores is None:
        return None
    scored = ~np.isnan(scores)
    labelled = np.array([document in labels for document in table.documents])
    both = scored & labelled
    if int(both.sum()) < 2:
        return None
    truth = np.array([labels[table.documents[row]] for row in np.flatnonzero(both).tolist()])
    judged, others = scores[both], scores[scored & ~labelled]
    swapped = table.columns.get((column.pipeline, f"{column.metric}{_CONSISTENCY_SUFFIX}"))
    consistent = None if swapped is None else scores_from_column(swapped)
    return JudgeCalibration(
        task=task,
        metric=column.metric,
        judge_mean=float(scores[scored].mean()),
        calibrated=estimate_calibrated_mean(truth, judged, others, level=level),
        agreement=float((truth == judged).mean()),
        kappa=compute_cohen_kappa(truth.tolist(), judged.tolist()),
        bias=float((judged - truth).mean()),
        flip_rate=None if consistent is None else 1 - float(np.nanmean(consistent)),
    )
