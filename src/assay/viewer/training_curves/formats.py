"""A training curve as text: sentences, a table for the terminal, CSV and JSON."""

from __future__ import annotations

import csv
import io
from typing import Any

from assay.core.terminal_text import escape_control_characters
from assay.stats.comparisons.comparison import Difference
from assay.stats.comparisons.regression_alarms import Regression
from assay.viewer.number_format import format_float
from assay.viewer.text_tables import Column, TextTable
from assay.viewer.training_curves.curve import CurvePoint, RegressionAlarm, TaskCurve, TrainingCurve

__all__ = [
    "build_checkpoint_payload", "build_curve_table", "curve_to_csv", "curve_to_json", "describe_alarm", "describe_best",
    "describe_checkpoint", "format_step",
]  # fmt: skip

_CSV_COLUMNS = (
    "task", "metric", "checkpoint", "step", "run", "value", "low", "high", "documents", "difference", "difference_low",
    "difference_high", "p_value", "alarm", "may_be_best",
)  # fmt: skip


_MIN_SHOWN_CONFIDENCE = 0.5


def format_step(step: float | None) -> str:
    """Format a training step.

    >>> format_step(1500.0), format_step(None)
    ('1500', '')
    """
    return "" if step is None else f"{step:.0f}" if step == int(step) else f"{step:g}"


def _format_block(steps: tuple[float, ...]) -> str:
    if len(steps) == 1:
        return f"step {format_step(steps[0])}"
    return f"the mean of steps {format_step(steps[0])} to {format_step(steps[-1])}"


def describe_alarm(curve: TaskCurve, alarm: RegressionAlarm) -> str:
    """Describe a regression in one sentence."""
    drop = alarm.regression
    return (
        f"{curve.task}: {curve.metric} of {_format_block(drop.later)} is {_format_change(drop.difference, curve)} compared"
        f" with {_format_block(drop.earlier)} (p = {drop.p_value:.2g}, {drop.documents:,} documents)"
    )


def _format_change(difference: float, curve: TaskCurve) -> str:
    return f"{100 * difference:+.1f} points" if curve.share else f"{difference:+.4g}"


def describe_best(curve: TaskCurve) -> str:
    """Say which checkpoint is the best and how sure that is; empty if there is only one."""
    if curve.best is None:
        return ""
    others = sum(point.is_candidate and point is not curve.best for point in curve.points)
    parts = [f"{curve.task}: best {curve.best.name}, {curve.metric} {format_float(curve.best.value)}"]
    if curve.best_confidence >= _MIN_SHOWN_CONFIDENCE:
        parts.append(f"{100 * min(curve.best_confidence, 0.999):.1f} % confidence that no other is better")
    parts.append(
        f"{others} other checkpoint{'s' if others != 1 else ''} may be as good or better (95 %)"
        if others
        else f"all others{' that were compared' if curve.incomplete else ''} are worse (95 %)"
    )
    return "; ".join(parts)


def describe_checkpoint(curve: TrainingCurve, name: str) -> list[str]:
    """Describe the score of a checkpoint in one line for each task."""
    lines = []
    for task in curve.tasks:
        for point in task.points:
            if point.name == name:
                score = _format_score(task.task, task.metric, point.value, point.low, point.high)
                lines.append(f"{score}{_format_difference(point.difference)}")
    for estimate in curve.unnumbered.get(name, ()):
        low, high = estimate.interval or (None, None)
        lines.append(_format_score(estimate.task, estimate.metric, float(estimate.value), low, high))
    return lines


def _format_score(task: str, metric: str, value: float, low: float | None, high: float | None) -> str:
    interval = "" if low is None or high is None else f" [{format_float(low)}, {format_float(high)}]"
    return f"{task} {metric} {format_float(value)}{interval}"


def _format_difference(found: Difference | None) -> str:
    if found is None:
        return ""
    low, high = found.interval.low, found.interval.high
    return f", {found.value:+.4f} [{low:+.4f}, {high:+.4f}] since the previous checkpoint"


def build_checkpoint_payload(curve: TrainingCurve, name: str) -> dict[str, dict[str, Any]]:
    """Return the scores of a checkpoint by task as JSON values, for hooks."""
    found = {
        task.task: {"metric": task.metric, **_build_point_payload(point)}
        for task in curve.tasks
        for point in task.points
        if point.name == name
    }
    for estimate in curve.unnumbered.get(name, ()):
        interval = None if estimate.interval is None else list(estimate.interval)
        found[estimate.task] = {
            "metric": estimate.metric, "checkpoint": name, "step": None, "run": curve.records[name].run,
            "value": float(estimate.value), "interval": interval, "documents": estimate.scored,
        }  # fmt: skip
    return found


def build_curve_table(curve: TaskCurve) -> TextTable:
    """Build the table of a task for the terminal: a row for each checkpoint."""
    from rich.markup import escape

    table = TextTable(
        columns=[
            Column(title="checkpoint", wrap=True),
            Column(title=f"{curve.metric} {'↑' if curve.higher_is_better else '↓'}", justify="right"),
            Column(title="95 % interval"),
            Column(title="change", justify="right"),
            Column(title="95 % interval", fold=1, folded="change {}"),
            Column(title="p", justify="right", fold=2, folded="p {}"),
            Column(title=""),
        ]
    )
    for point in curve.points:
        found = point.difference
        marks = [
            *(["[red]regression[/]"] if point.alarm else []),
            *(
                ["[green]best[/]"]
                if point is curve.best
                else ["[dim]may be best[/]"]
                if point.is_candidate
                else []
            ),
        ]
        table.add_row(
            escape(escape_control_characters(point.name)),
            format_float(point.value),
            ""
            if point.low is None or point.high is None
            else f"{format_float(point.low)} – {format_float(point.high)}",
            "" if found is None else f"{found.value:+.4f}",
            "" if found is None else f"{found.interval.low:+.4f} – {found.interval.high:+.4f}",
            "" if found is None else f"{found.p_value:.2g}",
            ", ".join(marks),
        )
    return table


def curve_to_csv(curve: TrainingCurve) -> str:
    """Return all points as CSV."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for task in curve.tasks:
        for point in task.points:
            found = point.difference
            writer.writerow(
                [
                    task.task, task.metric, point.name, format_step(point.step), point.run, point.value, point.low, point.high,
                    point.documents, *((None,) * 4 if found is None else
                    (found.value, found.interval.low, found.interval.high, found.p_value)),
                    int(point.alarm), int(point.is_candidate),
                ]
            )  # fmt: skip
    return stream.getvalue()


def curve_to_json(curve: TrainingCurve) -> dict[str, Any]:
    """Return the curve as JSON values."""
    return {
        "checkpoints": [
            {
                "name": record.name, "step": record.step, "outcome": record.outcome, "run": record.run,
                "reason": record.reason,
            }
            for record in sorted(curve.records.values(), key=lambda one: (one.step is None, one.step or 0.0, one.name))
        ],
        "tasks": [
            {
                "task": task.task,
                "metric": task.metric,
                "higher_is_better": task.higher_is_better,
                "points": [_build_point_payload(point) for point in task.points],
                "best": None if task.best is None else {
                    "checkpoint": task.best.name,
                    "confidence": task.best_confidence,
                    "candidates": [point.name for point in task.points if point.is_candidate],
                },
                "alpha": task.alpha,
                "regressions": [
                    {"checkpoint": one.checkpoint, "new": one.is_new, **_to_json(one.regression)} for one in task.alarms
                ],
                "note": task.note,
            }
            for task in curve.tasks
        ],
        "notes": list(curve.notes),
    }  # fmt: skip


def _build_point_payload(point: CurvePoint) -> dict[str, Any]:
    """Return a point as JSON values, for files and hooks."""
    found = point.difference
    return {
        "checkpoint": point.name,
        "step": point.step,
        "run": point.run,
        "value": point.value,
        "interval": None if point.low is None else [point.low, point.high],
        "documents": point.documents,
        "difference": None
        if found is None
        else {
            "value": found.value,
            "interval": [found.interval.low, found.interval.high],
            "p_value": found.p_value,
        },
        "regression": point.alarm,
        "may_be_best": point.is_candidate,
    }


def _to_json(drop: Regression) -> dict[str, Any]:
    return {
        "earlier_steps": list(drop.earlier),
        "later_steps": list(drop.later),
        "difference": drop.difference,
        "p_value": drop.p_value,
        "level": drop.level,
        "documents": drop.documents,
    }
