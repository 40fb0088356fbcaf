"""Reads the curve of a watched training run from its runs: scores, paired differences of neighbours, regressions, the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.core.records.verdicts import Estimate
from assay.stats.comparisons.best_of_many import BestOfMany, find_best
from assay.stats.comparisons.comparison import Difference, compare_pairs
from assay.stats.comparisons.regression_alarms import Regression, RegressionDetector
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.documents.score_tables import ScoreTable
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.run import Run
from assay.store.runs.watches import CheckpointRecord, Watch, WatchSettings
from assay.viewer.comparison.clusters import read_clusters
from assay.viewer.comparison.pairing import pair_documents, scores_from_column
from assay.viewer.comparison.run_comparison import find_aggregation, is_higher_better
from assay.viewer.results.run_overview import is_share

__all__ = ["CurvePoint", "CurveReader", "RegressionAlarm", "TaskCurve", "TrainingCurve"]

Floats = NDArray[np.float64]

_MEAN_AGGREGATIONS = frozenset({"mean", "nanmean"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The score of one checkpoint."""

    name: str
    step: float
    run: str
    value: float
    low: float | None
    high: float | None
    """95 % interval."""

    documents: int
    difference: Difference | None = None
    """Compared with the previous checkpoint on the same documents; None for the first, and for metrics without document scores."""

    is_candidate: bool = False
    """Whether it may be the best checkpoint."""

    alarm: bool = False
    """Whether it raised an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionAlarm:
    """A drop that was found when a checkpoint was evaluated."""

    checkpoint: str
    regression: Regression
    """Differences have the sign of the metric."""

    is_new: bool
    """False if the checkpoint evaluated before raised an alarm, too: the drop continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCurve:
    """The main metric of one task over all checkpoints, in the order of steps."""

    task: str
    metric: str
    higher_is_better: bool
    share: bool
    """Whether all values lie between 0 and 1."""

    points: tuple[CurvePoint, ...]
    alarms: tuple[RegressionAlarm, ...] = ()
    best: CurvePoint | None = None
    best_confidence: float = 0.0
    """How sure it is that no other checkpoint is better."""

    incomplete: int = 0
    """Checkpoints that lack too many documents to be compared with the best."""

    alpha: float = 0.0
    """The false-alarm rate of this task over the whole training run; 0 without alarms."""

    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCurve:
    """Everything that a page or file shows of a watch."""

    settings: WatchSettings
    records: Mapping[str, CheckpointRecord]
    tasks: tuple[TaskCurve, ...]
    notes: tuple[str, ...] = ()
    unnumbered: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)
    """The scores of checkpoints without a step in their name, which are not part of the curve."""


@dataclass(slots=True)
class _RunScores:
    """What is kept of a run: its estimates and the document scores of the main metric of each task."""

    estimates: dict[str, Estimate]
    tables: dict[str, ScoreTable]
    clusters: dict[str, Sequence[Any] | None]


@dataclass(slots=True)
class CurveReader:
    """Reads the curve of a watch; finished runs are read once, so that it can be called after every checkpoint."""

    watch: Watch
    _runs: dict[tuple[str, float | None], _RunScores] = field(default_factory=dict)
    """By the name of the run and when it ended: a checkpoint that is overwritten is evaluated again under the same name."""

    def read(self) -> TrainingCurve:
        """Return the curve as it is now."""
        settings, records = self.watch.read_settings(), self.watch.read_records()
        notes: list[str] = []
        evaluated: list[tuple[CheckpointRecord, _RunScores]] = []
        unnumbered: dict[str, Sequence[Estimate]] = {}
        for record in records.values():
            if record.outcome != "finished":
                continue
            try:
                scores = self._read_run(record.run, record.ended_s)
            except AssayError as error:
                notes.append(f"{record.name}: {error.what}")
                continue
            if record.step is None:
                unnumbered[record.name] = () if scores is None else tuple(scores.estimates.values())
                notes.append(f"{record.name} has no step in its name, so it is not part of the curve")
            elif scores is not None:
                evaluated.append((record, scores))
        evaluated.sort(key=lambda pair: (pair[0].step or 0.0, pair[0].name))
        names = list(dict.fromkeys(task for _, scores in evaluated for task in scores.estimates))
        watched = [task for task in names if not settings.alarm_tasks or task in settings.alarm_tasks]
        curves = []
        for task in names:
            own = [(record, scores) for record, scores in evaluated if task in scores.estimates]
            alpha = settings.alpha / len(watched) if task in watched else 0.0
            curves.append(_build_task_curve(task, own, alpha))
        return TrainingCurve(
            settings=settings,
            records=records,
            tasks=tuple(curves),
            notes=tuple(notes),
            unnumbered=unnumbered,
        )

    def _read_run(self, name: str, ended_s: float | None) -> _RunScores | None:
        if (name, ended_s) in self._runs:
            return self._runs[name, ended_s]
        folder = self.watch.run_folder / name
        if not name or not (folder / JOURNAL_FILE).is_file():
            return None
        run = Run(folder)
        try:
            if not run.finished:
                return None
            self._runs[name, ended_s] = _read_scores(run)
            return self._runs[name, ended_s]
        finally:
            run.close()


def _read_scores(run: Run) -> _RunScores:
    source = RunScoreTables(run)
    estimates: dict[str, Estimate] = {}
    for estimate in run.estimates:
        is_number = isinstance(estimate.value, (int, float)) and not isinstance(estimate.value, bool)
        if estimate.task in run.tasks and is_number:
            estimates.setdefault(estimate.task, estimate)
    tables, clusters = {}, {}
    for task in estimates:
        table = source.read_score_table(task)
        tables[task] = table
        clusters[task] = read_clusters(source, table, pair_documents(table, table), "")[0]
    return _RunScores(estimates, tables, clusters)


def _build_task_curve(
    task: str, evaluated: Sequence[tuple[CheckpointRecord, _RunScores]], alpha: float
) -> TaskCurve:
    first = evaluated[0][1].estimates[task]
    upward = first.higher_is_better is not False
    aligned = _align_scores(task, evaluated)
    clusters = evaluated[0][1].clusters[task]
    best: BestOfMany | None = None
    alarms: tuple[RegressionAlarm, ...] = ()
    note, incomplete = "", 0
    if aligned is None:
        note = f"{first.metric} has no document scores, so there are no differences and no alarms"
        alpha = 0.0
    else:
        signed = aligned if upward else -aligned
        best = find_best(signed, clusters) if len(signed) > 1 else None
        if best is not None and best.left_out:
            names = ", ".join(evaluated[row][0].name for row in best.left_out)
            incomplete = len(best.left_out)
            note = f"not compared with the best, because many documents have no score: {names}"
            best = None if incomplete >= len(signed) - 1 else best
        if alpha:
            alarms = _find_alarms([record for record, _ in evaluated], signed, clusters, alpha, upward=upward)
    raised = {alarm.checkpoint for alarm in alarms}
    points = []
    for at, (record, scores) in enumerate(evaluated):
        estimate = scores.estimates[task]
        low, high = estimate.interval or (None, None)
        points.append(
            CurvePoint(
                name=record.name,
                step=float(record.step or 0.0),
                run=record.run,
                value=float(estimate.value),
                low=low,
                high=high,
                documents=estimate.scored,
                difference=_compare_neighbours(aligned, at, clusters) if aligned is not None and at else None,
                is_candidate=best is not None and at in best.candidates,
                alarm=record.name in raised,
            )
        )
    return TaskCurve(
        task=task,
        metric=first.metric,
        higher_is_better=upward,
        share=all(is_share(scores.estimates[task]) for _, scores in evaluated),
        points=tuple(points),
        alarms=alarms,
        best=None if best is None else points[best.index],
        best_confidence=0.0 if best is None else best.confidence,
        incomplete=incomplete,
        alpha=alpha,
        note=note,
    )


def _align_scores(task: str, evaluated: Sequence[tuple[CheckpointRecord, _RunScores]]) -> Floats | None:
    """Return a row of document scores for each checkpoint, for the documents of the first; None without such scores."""
    reference = evaluated[0][1]
    base, key = reference.tables[task], reference.estimates[task]
    rows = []
    for _, scores in evaluated:
        table = scores.tables[task]
        column = table.columns.get((key.pipeline, key.metric))
        values = None if column is None else scores_from_column(column)
        if column is None or values is None or find_aggregation(column) not in _MEAN_AGGREGATIONS:
            return None
        if is_higher_better(column) != (key.higher_is_better is not False):
            return None
        pairing = pair_documents(base, table)
        row = np.full(len(base.documents), np.nan)
        row[pairing.first] = values[pairing.second]
        rows.append(row)
    return np.stack(rows)


def _compare_neighbours(aligned: Floats, at: int, clusters: Sequence[Any] | None) -> Difference | None:
    before, after = aligned[at - 1], aligned[at]
    kept = ~(np.isnan(before) | np.isnan(after))
    if not kept.any():
        return None
    names = (
        None
        if clusters is None
        else [name for name, keep in zip(clusters, kept.tolist(), strict=True) if keep]
    )
    return compare_pairs(before[kept], after[kept], names)


def _find_alarms(
    records: Sequence[CheckpointRecord],
    scores: Floats,
    clusters: Sequence[Any] | None,
    alpha: float,
    *,
    upward: bool,
) -> tuple[RegressionAlarm, ...]:
    """Return the alarms in the order in which the checkpoints were evaluated, which is the order of the looks."""
    detector = RegressionDetector(alpha, clusters)
    order = sorted(range(len(records)), key=lambda at: (records[at].ended_s or 0.0, records[at].step or 0.0))
    found = []
    continues = False
    for at in order:
        drop = detector.add(records[at].step or 0.0, scores[at])
        if drop is not None:
            if not upward:
                drop = Regression(
                    earlier=drop.earlier, later=drop.later, difference=-drop.difference, p_value=drop.p_value,
                    level=drop.level, documents=drop.documents,
                )  # fmt: skip
            found.append(RegressionAlarm(checkpoint=records[at].name, regression=drop, is_new=not continues))
        continues = drop is not None
    return tuple(found)
