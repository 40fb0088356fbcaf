"""One run: its numbers with intervals, how documents ended, categories, settings, how fast it went."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from assay.stats.distributions import t_quantile
from assay.stats.intervals import wilson
from assay.store.index.columns import Columns
from assay.store.index.querying import Breakdown, breakdown, interesting_categories
from assay.store.lock import is_held
from assay.store.runs import Run
from assay.viewer.charts import (
    CategoryMark,
    categories_figure,
    on_one_scale,
    outcomes_figure,
    scores_figure,
    themed,
    throughput_figure,
)
from assay.viewer.run_facts import RunFacts, outcome_bars, run_facts, score_marks
from assay.viewer.tables import spent_text
from assay.viewer.web.rendering import chart_json
from assay.viewer.web.runs_page import outcome_bar

__all__ = ["category_context", "run_context"]

_MOST_MARKS = 80
"""Rows of a chart; the table has them all."""

_CATEGORIES = 40


def run_context(run: Run, key: str, state: str, tags: list[str]) -> dict[str, Any]:
    """What the page of a run shows."""
    facts = run_facts(run)
    manifest = run.facts.get("manifest")
    charts = [
        chart_json(themed(partial(scores_figure, marks)))
        for marks in on_one_scale(score_marks(facts)[:_MOST_MARKS])
        if marks[0].share or len(marks) > 1  # a dot by itself says nothing that the table does not
    ]
    pace = facts.pace
    return {
        "key": key,
        "id": run.id if "@" not in key else key,
        "state": state,
        "tags": tags,
        "facts": facts,
        "score_charts": charts,
        "outcome_chart": _outcome_chart(facts),
        "bars": {task.name: outcome_bar(task.outcomes, task.documents, state) for task in facts.tasks},
        "bar": outcome_bar(_summed(facts), facts.documents, state),
        "pace_chart": None
        if pace is None
        else chart_json(themed(lambda theme: throughput_figure(pace, theme))),
        "spent": spent_text(facts.spent, run.facts.get("billing", {}).get("")) if facts.spent.any else "",
        "manifest": manifest if isinstance(manifest, dict) else {},
        "command": (manifest or {}).get("command") if isinstance(manifest, dict) else None,
        "folder": str(run.folder),
        "scorings": _scorings(run, key),
        "configs": {name: task.get("config", {}) for name, task in run.tasks.items()},
        "identity": run.facts.get("identity", {}),
        "held": is_held(run.folder),
    }


def _outcome_chart(facts: RunFacts) -> Any:
    """A chart where there are several tasks and not all ended alike; else a line says it all."""
    bars = outcome_bars(facts)[:_MOST_MARKS]
    if len(bars) < 2 or all(set(bar.counts) <= {"scored"} for bar in bars):
        return None
    return chart_json(themed(lambda theme: outcomes_figure(bars, theme)))


def _summed(facts: RunFacts) -> dict[str, int]:
    total: dict[str, int] = {}
    for task in facts.tasks:
        for ending, count in task.outcomes.items():
            total[ending] = total.get(ending, 0) + count
    return total


def _scorings(run: Run, key: str) -> list[dict[str, Any]]:
    """The run as it was scored at first and later, for whoever wants to see the other."""
    base = key.partition("@")[0]
    whole = run if "@" not in key else Run(run.folder.parent.parent)
    later = whole.scorings()
    for one in later:
        one.close()
    if whole is not run:
        whole.close()
    if not later:
        return []
    names = [(base, "as asked"), *((f"{base}@{one.id}", f"scoring {one.id}") for one in later)]
    return [{"key": name, "label": label, "current": name == key} for name, label in names]


def category_context(columns: Columns, task: str, field: str, metric: int) -> dict[str, Any]:
    """The breakdown of a task by a field of its documents."""
    if task not in columns.tasks:
        named = (name for name in columns.tasks if interesting_categories(columns, name))
        task = next(named, columns.tasks[0] if columns.tasks else "")
    fields = interesting_categories(columns, task)
    chosen = field if field in fields else next(iter(fields), "")
    names = columns.metrics.get(task, [])
    metric = metric if 0 <= metric < len(names) else 0
    parts = breakdown(columns, task, chosen, metric) if chosen else []
    share = _between_0_and_1(columns, task, metric)
    marks = [_mark(part, share=share) for part in parts[:_CATEGORIES]]
    chart = None
    if marks:
        title = names[metric][1] if names else "score"
        chart = chart_json(themed(lambda theme: categories_figure(marks, theme, metric=title, share=share)))
    return {
        "task": task,
        "fields": {name: len(values) for name, values in fields.items()},
        "field": chosen,
        "parts_listed": list(zip(parts[:_CATEGORIES], marks, strict=True)),
        "more": max(0, len(parts) - _CATEGORIES),
        "metric": metric,
        "metrics": names,
        "chart": chart,
    }


def _between_0_and_1(columns: Columns, task: str, metric: int) -> bool:
    """Whether every score of a task is a share."""
    if task not in columns.tasks:
        return False
    values = columns.scores[metric][columns.task == columns.tasks.index(task)]
    values = values[~np.isnan(values)]
    return len(values) > 0 and bool(values.min() >= 0 and values.max() <= 1)


def _mark(part: Breakdown, *, share: bool) -> CategoryMark:
    low: float | None = None
    high: float | None = None
    if share and part.right is not None:
        interval = wilson(part.right, part.documents)
        low, high = interval.low, interval.high
    elif part.stderr is not None:
        half = t_quantile(0.975, part.documents - 1) * part.stderr
        low, high = part.mean - half, part.mean + half
    return CategoryMark(name=part.value, value=part.mean, low=low, high=high, documents=part.documents)
