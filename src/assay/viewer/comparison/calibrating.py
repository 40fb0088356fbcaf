"""`calibrate`: what a judge's scores are worth, held against labels people gave to some documents."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import BadData, UnknownName, UserMistake
from assay.stats.calibration import Calibrated, cohen_kappa, prediction_powered
from assay.store.sheets import SheetSource
from assay.viewer.comparison.pairing import numbers_in

__all__ = ["JudgeReport", "calibrate", "read_labels"]

_SWAPPED = "_consistent"
"""What a comparative judge that is asked in both orders reports beside its metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """A judge against people, and the number both give together."""

    task: str
    metric: str
    judge_mean: float
    """What the judge alone says of all documents."""

    calibrated: Calibrated
    agreement: float
    """The share of labelled documents on which both say the same."""

    kappa: float | None
    bias: float
    """How much higher the judge scores the labelled documents than people do."""

    flip_rate: float | None
    """How often the judge changes its mind when the two answers change places; None where it was not asked both ways."""

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def read_labels(path: Path) -> dict[tuple[str, int], float]:
    """People's labels by (task, document): a JSONL or CSV file with `document`, `label` and, for several tasks, `task`.

    Raises:
        BadData: The file cannot be read as that.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BadData(f"cannot read the labels: {error.strerror}", where=str(path)) from None
    labels: dict[tuple[str, int], float] = {}
    for number, row in _rows(path, text):
        try:
            label = row["label"]
            value = {"true": 1.0, "false": 0.0}.get(str(label).lower())
            labels[str(row.get("task") or ""), int(row["document"])] = (
                float(label) if value is None else value
            )
        except (KeyError, TypeError, ValueError):
            raise BadData(
                "this is not a label",
                where=f"{path}:{number}",
                hint="each row has `document` (a number) and `label` (a number, true or false)",
            ) from None
    if not labels:
        raise BadData("there are no labels in the file", where=str(path))
    return labels


def _rows(path: Path, text: str) -> list[tuple[int, Mapping[str, Any]]]:
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


def calibrate(
    source: SheetSource, labels: Mapping[tuple[str, int], float], metric: str = "", level: float = 0.95
) -> list[JudgeReport]:
    """Hold each labelled task's judge against its labels.

    Raises:
        UserMistake: No label belongs to a scored document of the run.
    """
    found = []
    for task in source.tasks:
        own = {
            document: value
            for (name, document), value in labels.items()
            if name == task or (not name and len(source.tasks) == 1)
        }
        if own and (report := _report(source, task, own, metric, level)) is not None:
            found.append(report)
    if not found:
        raise UserMistake(
            "no label belongs to a scored document of the run",
            where="--labels",
            hint="several tasks need a `task` in each row; the run has: " + ", ".join(source.tasks),
        )
    return found


def _report(
    source: SheetSource, task: str, labels: Mapping[int, float], metric: str, level: float
) -> JudgeReport | None:
    sheet = source.sheet(task)
    column = next((one for one in sheet.columns.values() if metric in ("", one.metric)), None)
    if column is None:
        known = ", ".join(one.metric for one in sheet.columns.values())
        raise UnknownName(f"`{task}` has no metric `{metric}`", where="--metric", hint=f"it has: {known}")
    scores = numbers_in(column)
    if scores is None:
        return None
    scored = ~np.isnan(scores)
    labelled = np.array([document in labels for document in sheet.documents])
    both = scored & labelled
    if int(both.sum()) < 2:
        return None
    truth = np.array([labels[sheet.documents[row]] for row in np.flatnonzero(both).tolist()])
    judged, others = scores[both], scores[scored & ~labelled]
    swapped = sheet.columns.get((column.pipeline, f"{column.metric}{_SWAPPED}"))
    consistent = None if swapped is None else numbers_in(swapped)
    return JudgeReport(
        task=task,
        metric=column.metric,
        judge_mean=float(scores[scored].mean()),
        calibrated=prediction_powered(truth, judged, others, level=level),
        agreement=float((truth == judged).mean()),
        kappa=cohen_kappa(truth.tolist(), judged.tolist()),
        bias=float((judged - truth).mean()),
        flip_rate=None if consistent is None else 1 - float(np.nanmean(consistent)),
    )
