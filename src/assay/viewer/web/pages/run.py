"""The page of a run: scores with intervals, outcomes, categories, throughput, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from assay.stats.intervals.confidence_intervals import wilson_interval
from assay.stats.numerics.distributions import t_quantile
from assay.store.database.locks import is_locked
from assay.store.index.columns import Columns
from assay.store.index.queries import Breakdown, compute_breakdown, list_categories
from assay.store.runs.run import Run
from assay.viewer.charts import (
    CategoryMark,
    ScoreMark,
    build_categories_figure,
    build_outcomes_figure,
    build_scores_figure,
    build_themed_figures,
    build_throughput_figure,
    group_by_scale,
)
from assay.viewer.documents.failure_reasons import summarise_reason
from assay.viewer.results.notes import (
    REPEAT_TITLES,
    build_repeat_rows,
    format_notes,
    format_outcome_notes,
    format_usage,
)
from assay.viewer.results.run_overview import (
    RunOverview,
    ScoreRow,
    TaskOverview,
    build_outcome_bars,
    build_run_overview,
    build_score_marks,
)
from assay.viewer.results.variants import build_variant_rows
from assay.viewer.web.pages.runs import build_outcome_bar
from assay.viewer.web.rendering import dump_figures

__all__ = ["build_category_context", "build_run_context"]

_MAX_MARKS = 16
"""The number of rows in a chart; the table has all of them."""

_MAX_OPEN_ROWS = 20
"""Groups of a longer table are collapsed."""

_EXTREMES = 5
_MIN_TASKS_FOR_EXTREMES = 12
_MAX_OUTCOME_ROWS = 12
_MAX_REASONS = 200
"""The number of different reasons that are read for each task."""

_MAX_CATEGORIES = 40


def build_run_context(run: Run, key: str, state: str, tags: list[str]) -> dict[str, Any]:
    """Build the template context of a run's page."""
    facts = build_run_overview(run)
    manifest = run.facts.get("manifest")
    charts = [
        dump_figures(build_themed_figures(partial(build_scores_figure, marks)))
        for marks in group_by_scale(_select_marks(build_score_marks(facts)))
        if marks[0].share or len(marks) > 1  # a single dot adds nothing to the table
    ]
    pace = facts.throughput
    return {
        "key": key,
        "id": run.id if "@" not in key else key,
        "state": state,
        "tags": tags,
        "facts": facts,
        "score_charts": charts,
        "score_rows": _build_score_rows(facts.scores),
        "extremes": _find_extremes(facts.scores),
        "repeats": build_repeat_rows(run),
        "repeat_titles": REPEAT_TITLES,
        "variants": build_variant_rows(run),
        "notes": [*format_notes(run, repeats=False), *format_outcome_notes(run)],
        "reasons": _group_reasons(run, facts),
        "outcome_rows": _split_outcomes(facts),
        "outcome_chart": _build_outcome_chart(facts),
        "bars": {task.name: build_outcome_bar(task.outcomes, task.documents, state) for task in facts.tasks},
        "bar": build_outcome_bar(_sum_outcomes(facts), facts.documents, state),
        "throughput_chart": None
        if pace is None
        else dump_figures(build_themed_figures(lambda theme: build_throughput_figure(pace, theme))),
        "spent": format_usage(facts.spent, run.facts.get("billing", {}).get(""))
        if facts.spent.has_usage
        else "",
        "manifest": manifest if isinstance(manifest, dict) else {},
        "command": (manifest or {}).get("command") if isinstance(manifest, dict) else None,
        "folder": str(run.folder),
        "scorings": _list_scorings(run, key),
        "configs": {name: task.get("config", {}) for name, task in run.tasks.items()},
        "identity": run.facts.get("identity", {}),
        "held": is_locked(run.folder),
    }


def _select_marks(marks: list[ScoreMark]) -> list[ScoreMark]:
    """Return the marks of a chart; of many, only the groups and the tasks outside of groups."""
    if len(marks) <= _MAX_MARKS:
        return marks
    upper = [mark for mark in marks if mark.group or mark.depth == 0]
    return (upper or marks)[:_MAX_MARKS]


def _build_score_rows(rows: Sequence[ScoreRow]) -> list[dict[str, Any]]:
    """Return the rows of the table of scores with the groups around them; groups of a long table are collapsed."""
    collapsed = sum(row.is_first for row in rows) > _MAX_OPEN_ROWS
    open_groups: list[tuple[int, str]] = []
    found = []
    for number, row in enumerate(rows):
        if row.is_first:
            while open_groups and open_groups[-1][0] >= row.depth:
                open_groups.pop()
        within = [name for depth, name in open_groups if depth < row.depth]
        name = f"g{number}" if row.group and row.is_first else ""
        found.append(
            {
                "row": row,
                "group": name,
                "within": " ".join(within),
                "hidden": collapsed and bool(within),
                "collapsed": collapsed,
            }
        )
        if name:
            open_groups.append((row.depth, name))
    return found


def _find_extremes(rows: Sequence[ScoreRow]) -> dict[str, list[ScoreRow]] | None:
    """Return the tasks with the best and the worst scores; None if there are few tasks or their metrics differ."""
    leaves = [
        row for row in rows if row.is_first and not row.group and row.estimate and row.value is not None
    ]
    metrics = Counter(row.estimate.metric for row in leaves if row.estimate)
    if len(leaves) < _MIN_TASKS_FOR_EXTREMES or not metrics:
        return None
    metric, count = metrics.most_common(1)[0]
    if count < _MIN_TASKS_FOR_EXTREMES:
        return None
    same = [row for row in leaves if row.estimate and row.estimate.metric == metric]
    upward = not (same[0].estimate and same[0].estimate.higher_is_better is False)
    same.sort(key=lambda row: row.value or 0.0, reverse=upward)
    return {"best": same[:_EXTREMES], "worst": same[-_EXTREMES:][::-1]}


def _group_reasons(run: Run, facts: RunOverview) -> list[dict[str, Any]]:
    """Return the reasons of documents without a reliable score, the most frequent first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for task in facts.tasks:
        if set(task.outcomes) <= {"scored", "skipped", "open"}:
            continue
        for document, count, outcome, why in run.journal.read_outcome_reasons(task.name, limit=_MAX_REASONS):
            if outcome in ("scored", "skipped"):
                continue
            reason = summarise_reason(why)
            known = found.setdefault(
                (outcome, reason),
                {
                    "outcome": outcome,
                    "reason": reason,
                    "count": 0,
                    "first": (task.name, document),
                    "tasks": [],
                },
            )
            known["count"] += count
            if task.name not in known["tasks"]:
                known["tasks"].append(task.name)
    return sorted(found.values(), key=lambda one: -one["count"])


def _split_outcomes(facts: RunOverview) -> dict[str, list[TaskOverview]]:
    """Return the tasks whose outcomes are shown at once, and the others of a long list."""
    if len(facts.tasks) <= _MAX_OUTCOME_ROWS:
        return {"shown": list(facts.tasks), "more": []}
    problems = [task for task in facts.tasks if set(task.outcomes) - {"scored", "skipped"}]
    problems.sort(key=lambda task: -sum(count for name, count in task.outcomes.items() if name != "scored"))
    shown = problems[:_MAX_OUTCOME_ROWS]
    return {"shown": shown, "more": [task for task in facts.tasks if task not in shown]}


def _build_outcome_chart(facts: RunOverview) -> Any:
    """Return a chart if there are several tasks and not all documents are scored."""
    bars = build_outcome_bars(facts)
    if not 2 <= len(bars) <= _MAX_MARKS or all(set(bar.counts) <= {"scored"} for bar in bars):
        return None
    return dump_figures(build_themed_figures(lambda theme: build_outcomes_figure(bars, theme)))


def _sum_outcomes(facts: RunOverview) -> dict[str, int]:
    total: dict[str, int] = {}
    for task in facts.tasks:
        for ending, count in task.outcomes.items():
            total[ending] = total.get(ending, 0) + count
    return total


def _list_scorings(run: Run, key: str) -> list[dict[str, Any]]:
    """Return the original scoring and the later ones, for the tabs of the page."""
    base = key.partition("@")[0]
    whole = run if "@" not in key else Run(run.folder.parent.parent)
    later = whole.scorings()
    for one in later:
        one.close()
    if whole is not run:
        whole.close()
    if not later:
        return []
    names = [(base, "original scoring"), *((f"{base}@{one.id}", f"scoring {one.id}") for one in later)]
    return [{"key": name, "label": label, "current": name == key} for name, label in names]


def build_category_context(columns: Columns, task: str, field: str, metric: int) -> dict[str, Any]:
    """Build the template context of a task's scores by category."""
    if task not in columns.tasks:
        named = (name for name in columns.tasks if list_categories(columns, name))
        task = next(named, columns.tasks[0] if columns.tasks else "")
    fields = list_categories(columns, task)
    chosen = field if field in fields else next(iter(fields), "")
    names = columns.metrics.get(task, [])
    metric = metric if 0 <= metric < len(names) else 0
    parts = compute_breakdown(columns, task, chosen, metric) if chosen else []
    share = _is_between_0_and_1(columns, task, metric)
    marks = [_build_mark(part, share=share) for part in parts[:_MAX_CATEGORIES]]
    chart = None
    if marks:
        title = names[metric][1] if names else "score"
        chart = dump_figures(
            build_themed_figures(
                lambda theme: build_categories_figure(marks, theme, metric=title, share=share)
            )
        )
    return {
        "task": task,
        "fields": {name: len(values) for name, values in fields.items()},
        "field": chosen,
        "parts_listed": list(zip(parts[:_MAX_CATEGORIES], marks, strict=True)),
        "more": max(0, len(parts) - _MAX_CATEGORIES),
        "metric": metric,
        "metrics": names,
        "chart": chart,
    }


def _is_between_0_and_1(columns: Columns, task: str, metric: int) -> bool:
    """Whether every score of a task lies between 0 and 1."""
    if task not in columns.tasks:
        return False
    values = columns.scores[metric][columns.task == columns.tasks.index(task)]
    values = values[~np.isnan(values)]
    return len(values) > 0 and bool(values.min() >= 0 and values.max() <= 1)


def _build_mark(part: Breakdown, *, share: bool) -> CategoryMark:
    low: float | None = None
    high: float | None = None
    if share and part.right is not None:
        interval = wilson_interval(part.right, part.documents)
        low, high = interval.low, interval.high
    elif part.stderr is not None:
        half = t_quantile(0.975, part.documents - 1) * part.stderr
        low, high = part.mean - half, part.mean + half
    return CategoryMark(name=part.value, value=part.mean, low=low, high=high, documents=part.documents)
