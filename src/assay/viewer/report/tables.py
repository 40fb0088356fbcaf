"""The tables of a report as rows of plain text, which the template escapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.records.verdicts import Estimate
from assay.store.runs.usage import UsageTotals
from assay.viewer.matrix import Matrix, NumberStyle
from assay.viewer.matrix.formats import format_error, format_value
from assay.viewer.number_format import DIRECTION_ARROWS, format_dollars, format_duration, format_float
from assay.viewer.results.run_overview import RunOverview

__all__ = [
    "build_matrix_table",
    "build_score_rows",
    "build_settings_table",
    "build_summary_tiles",
    "build_task_rows",
    "build_usage_rows",
]

_OUTPUT_TYPE_NAMES = {
    "generate_until": "generated text",
    "multiple_choice": "log-likelihood of choices",
    "loglikelihood": "log-likelihood",
    "loglikelihood_rolling": "log-likelihood of texts",
}


def build_summary_tiles(facts: Sequence[RunOverview]) -> list[dict[str, str]]:
    """Build the tiles at the top of a report."""
    if len(facts) == 1:
        return _build_run_tiles(facts[0])
    tasks = list(dict.fromkeys(task.name for one in facts for task in one.tasks))
    documents = sum(one.documents for one in facts)
    seconds = sum(one.seconds or 0.0 for one in facts)
    costs = [one.spent.cost_usd for one in facts if one.spent.cost_usd is not None]
    tiles = [
        _build_tile("runs", str(len(facts)), f"{len({one.model for one in facts})} models"),
        _build_tile("tasks", str(len(tasks)), ", ".join(tasks[:2]) + (" …" if len(tasks) > 2 else "")),
        _build_tile("documents", f"{documents:,}", "in all runs"),
        _build_tile("time", format_duration(seconds), "in all runs"),
    ]
    return [*tiles, *([_build_tile("cost", format_dollars(sum(costs)), "in all runs")] if costs else [])]


def _build_run_tiles(facts: RunOverview) -> list[dict[str, str]]:
    tiles = []
    first = next((row for row in facts.scores if row.value is not None), None)
    if first is not None and first.estimate is not None:
        tiles.append(
            _build_tile(
                f"{first.label}, {first.estimate.metric}", first.text, _format_interval(first.estimate)
            )
        )
    counts = [task.outcomes for task in facts.tasks]
    ended = sum(sum(one.values()) for one in counts)
    scored = sum(one.get("scored", 0) for one in counts)
    share = f"{scored / ended:.1%} scored" if ended else "none processed"
    tiles += [
        _build_tile("documents", f"{facts.documents:,}", share),
        _build_tile("tasks", str(len(facts.tasks)), "" if facts.finished else "unfinished"),
        _build_tile(
            "time", "–" if facts.seconds is None else format_duration(facts.seconds), _format_speed(facts)
        ),
    ]
    if facts.spent.cost_usd is not None:
        tiles.append(
            _build_tile(
                "cost",
                format_dollars(facts.spent.cost_usd),
                f"{facts.spent.requests:,} requests" + _format_reasoning(facts.spent),
            )
        )
    elif facts.spent.has_usage:
        tiles.append(
            _build_tile(
                "input tokens",
                f"{facts.spent.input_tokens:,}",
                f"{facts.spent.output_tokens:,} output tokens" + _format_reasoning(facts.spent),
            )
        )
    return tiles


def _format_reasoning(spent: UsageTotals) -> str:
    return f", {spent.reasoning_tokens:,} tokens of reasoning" if spent.reasoning_tokens else ""


def _build_tile(name: str, value: str, more: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "more": more}


def _format_interval(estimate: Estimate) -> str:
    if estimate.interval is not None:
        return f"95 % interval: {format_float(estimate.interval[0])} – {format_float(estimate.interval[1])}"
    return "" if estimate.stderr is None else f"± {format_float(estimate.stderr)}"


def _format_speed(facts: RunOverview) -> str:
    if not facts.seconds or not facts.finished:
        return ""
    return f"{facts.documents / facts.seconds:,.1f} documents per second"


def build_score_rows(facts: RunOverview) -> list[dict[str, Any]]:
    """Build the table of results of one run, with the parts of a breakdown below its score."""
    lines: list[dict[str, Any]] = []
    for row in facts.scores:
        estimate = row.estimate
        line: dict[str, Any] = {
            "label": row.label if row.is_first else "",
            "depth": row.depth,
            "group": row.group,
            "n_shot": "" if row.n_shot is None or not row.is_first else str(row.n_shot),
            "metric": "",
            "arrow": "",
            "value": "",
            "error": "",
            "interval": "",
            "counts": (),
        }
        if estimate is not None:
            pipeline = "" if estimate.pipeline in ("", "none") else f" ({estimate.pipeline})"
            line |= {
                "metric": f"{estimate.metric}{pipeline}",
                "arrow": DIRECTION_ARROWS[estimate.higher_is_better],
                "value": row.text,
                "error": "" if estimate.stderr is None else f"± {format_float(estimate.stderr)}",
                "interval": ""
                if estimate.interval is None
                else " – ".join(map(format_float, estimate.interval)),
                "counts": (
                    (f"{estimate.scored:,}", ""),
                    (f"{estimate.unscored:,}", "count-warn" if estimate.unscored else ""),
                    (f"{estimate.failed:,}", "count-bad" if estimate.failed else ""),
                ),
            }
        lines.append(line)
        for name, value in row.parts:
            blank = {"label": "", "n_shot": "", "arrow": "", "error": "", "interval": "", "counts": ()}
            lines.append({**blank, "depth": row.depth, "group": False, "metric": f"· {name}", "value": value})
    return lines


def build_matrix_table(matrix: Matrix) -> dict[str, Any]:
    """Build the table of several runs side by side."""
    style = NumberStyle()
    return {
        "columns": [{"label": column.label} for column in matrix.columns],
        "rows": [
            {
                "label": row.label,
                "metric": row.measure,
                "arrow": DIRECTION_ARROWS[row.higher_is_better],
                "depth": row.depth,
                "group": row.group,
                "cells": [
                    None
                    if cell is None
                    else {
                        "shown": format_value(cell, row, style),
                        "error": format_error(cell, row, style),
                        "best": cell.best,
                    }
                    for cell in row.cells
                ],
            }
            for row in matrix.rows
        ],
    }


def build_usage_rows(facts: Sequence[RunOverview], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Build the rows of tokens and cost: each run, its tasks and its judges."""
    rows = []
    for one, label in zip(facts, labels, strict=True):
        if not one.spent.has_usage and not one.spent_by_judge:
            continue
        rows.append(_build_usage_row(label, one.spent, whole=True))
        tasks = [task for task in one.tasks if task.spent is not None] if len(one.tasks) > 1 else []
        rows += [
            _build_usage_row(task.label, task.spent, depth=1) for task in tasks[:40] if task.spent is not None
        ]
        rows += [
            _build_usage_row(f"judge {name}", spent, depth=1) for name, spent in one.spent_by_judge.items()
        ]
    return rows


def _build_usage_row(name: str, spent: UsageTotals, *, whole: bool = False, depth: int = 0) -> dict[str, Any]:
    cost = "" if spent.cost_usd is None else format_dollars(spent.cost_usd)
    if spent.cost_usd is not None and spent.requests > spent.priced:
        cost += f" + {spent.requests - spent.priced:,} requests of unknown cost"
    return {
        "name": name,
        "whole": whole,
        "depth": depth,
        "requests": f"{spent.requests:,}",
        "read": f"{spent.input_tokens:,}",
        "cached": f"{spent.cached_tokens:,}",
        "written": f"{spent.output_tokens:,}",
        "reasoning": f"{spent.reasoning_tokens:,}",
        "cost": cost or "–",
    }


def build_settings_table(facts: Sequence[RunOverview], labels: Sequence[str]) -> dict[str, Any]:
    """Build the table of settings side by side, with a flag on those that differ."""
    names = list(dict.fromkeys(name for one in facts for name, _ in one.settings))
    known = [dict(one.settings) for one in facts]
    return {
        "columns": list(labels),
        "rows": [
            {
                "name": name,
                "cells": [one.get(name, "–") for one in known],
                "differs": len({one.get(name) for one in known}) > 1,
            }
            for name in names
        ],
    }


def build_task_rows(facts: Sequence[RunOverview]) -> list[dict[str, Any]]:
    """Build one row per task of all runs."""
    tasks = {task.name: task for one in reversed(facts) for task in reversed(one.tasks)}
    return [
        {
            "label": task.label,
            "version": "" if task.version is None else str(task.version),
            "n_shot": "" if task.n_shot is None else str(task.n_shot),
            "documents": f"{task.documents:,}",
            "original": "" if task.original is None else f"{task.original:,}",
            "kind": _OUTPUT_TYPE_NAMES.get(task.output_type, task.output_type),
        }
        for task in sorted(tasks.values(), key=lambda task: list(reversed(tasks)).index(task.name))
    ]
