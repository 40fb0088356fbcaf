"""The pages of watched training runs: the curve of each task, alarms, the best checkpoint, and what became of each checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.store.runs.watches import CheckpointRecord, Watch
from assay.viewer.charts import build_themed_figures
from assay.viewer.charts.training_curve import CheckpointMark, build_training_figure
from assay.viewer.plots.records import PlotTable
from assay.viewer.training_curves.curve import CurvePoint, TaskCurve, TrainingCurve
from assay.viewer.training_curves.formats import describe_alarm, describe_best, format_step
from assay.viewer.web.rendering import dump_figures
from assay.viewer.web.run_catalog import RunCatalog

__all__ = ["build_watch_context", "build_watches_context"]


def build_watches_context(watches: Sequence[Watch]) -> dict[str, Any]:
    """Build the template context of the list of watches."""
    rows = []
    for watch in watches:
        try:
            settings = watch.read_settings()
        except AssayError:
            continue
        outcomes = [record.outcome for record in watch.read_records().values()]
        rows.append(
            {
                "key": watch.key,
                "settings": settings,
                "finished": outcomes.count("finished"),
                "all": len(outcomes),
            }
        )
    return {"rows": rows}


def build_watch_context(curve: TrainingCurve, catalog: RunCatalog, watch: Watch) -> dict[str, Any]:
    """Build the template context of one watch."""
    keys = {folder: key for key, folder in catalog.folders().items()}
    linked = {
        record.run: keys.get((watch.run_folder / record.run).resolve(), "")
        for record in curve.records.values()
        if record.run
    }
    records = sorted(curve.records.values(), key=_sort_key, reverse=True)
    return {
        "settings": curve.settings,
        "tasks": [_build_task(task, linked) for task in curve.tasks],
        "records": [
            {"record": one, "step": format_step(one.step), "run_key": linked.get(one.run, "")}
            for one in records
        ],
        "finished": sum(one.outcome == "finished" for one in records),
        "notes": curve.notes,
    }


def _sort_key(record: CheckpointRecord) -> tuple[bool, float, str]:
    return (record.step is not None, record.step or 0.0, record.name)


def _build_task(curve: TaskCurve, linked: dict[str, str]) -> dict[str, Any]:
    marks = [
        CheckpointMark(
            name=point.name,
            step=point.step,
            value=point.value,
            low=point.low,
            high=point.high,
            change=_format_change(point),
            alarm=point.alarm,
            best=point is curve.best,
        )
        for point in curve.points
    ]
    build = partial(build_training_figure, marks, metric=curve.metric, share=curve.share)
    table = PlotTable(
        columns=("step", "checkpoint", curve.metric, "low", "high"),
        rows=tuple((point.step, point.name, point.value, point.low, point.high) for point in curve.points),
    )
    return {
        "curve": curve,
        "chart": dump_figures(build_themed_figures(build), table),
        "best": describe_best(curve),
        "alarms": [describe_alarm(curve, alarm) for alarm in curve.alarms if alarm.is_new],
        "points": [
            {"point": point, "run_key": linked.get(point.run, "")} for point in reversed(curve.points)
        ],
    }


def _format_change(point: CurvePoint) -> str:
    found = point.difference
    if found is None:
        return ""
    return f"{found.value:+.4f} ({found.interval.low:+.4f} – {found.interval.high:+.4f}) since the previous checkpoint"
