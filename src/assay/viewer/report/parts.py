"""Tables of a report: plain texts in rows, so that the page only has to escape them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.verdicts import Estimate
from assay.store.usage import Spent
from assay.viewer.matrix import Matrix, Style
from assay.viewer.matrix.formats import error_text, value_text
from assay.viewer.run_facts import RunFacts
from assay.viewer.run_tables import duration
from assay.viewer.tables import digits, dollars

__all__ = ["matrix_part", "score_lines", "settings_part", "spending_rows", "summary_tiles", "task_rows"]

_ARROWS = {True: "↑", False: "↓", None: ""}
_KINDS = {
    "generate_until": "text",
    "multiple_choice": "likelihood of choices",
    "loglikelihood": "likelihood",
    "loglikelihood_rolling": "likelihood of texts",
}


def summary_tiles(facts: Sequence[RunFacts]) -> list[dict[str, str]]:
    """The few numbers to read first."""
    if len(facts) == 1:
        return _tiles_of_one(facts[0])
    tasks = list(dict.fromkeys(task.name for one in facts for task in one.tasks))
    documents = sum(one.documents for one in facts)
    seconds = sum(one.seconds or 0.0 for one in facts)
    costs = [one.spent.cost_usd for one in facts if one.spent.cost_usd is not None]
    tiles = [
        _tile("runs", str(len(facts)), f"{len({one.model for one in facts})} models"),
        _tile("tasks", str(len(tasks)), ", ".join(tasks[:2]) + (" …" if len(tasks) > 2 else "")),
        _tile("documents asked", f"{documents:,}", "in all runs"),
        _tile("time", duration(seconds), "in all runs"),
    ]
    return [*tiles, *([_tile("cost", dollars(sum(costs)), "in all runs")] if costs else [])]


def _tiles_of_one(facts: RunFacts) -> list[dict[str, str]]:
    tiles = []
    first = next((row for row in facts.scores if row.value is not None), None)
    if first is not None and first.estimate is not None:
        tiles.append(_tile(f"{first.label}, {first.estimate.metric}", first.shown, _pm(first.estimate)))
    counts = [task.outcomes for task in facts.tasks]
    ended = sum(sum(one.values()) for one in counts)
    scored = sum(one.get("scored", 0) for one in counts)
    share = f"{scored / ended:.1%} scored" if ended else "none ended"
    tiles += [
        _tile("documents", f"{facts.documents:,}", share),
        _tile("tasks", str(len(facts.tasks)), "" if facts.finished else "unfinished"),
        _tile("time", "–" if facts.seconds is None else duration(facts.seconds), _speed(facts)),
    ]
    if facts.spent.cost_usd is not None:
        tiles.append(_tile("cost", dollars(facts.spent.cost_usd), f"{facts.spent.requests:,} requests"))
    elif facts.spent.any:
        tiles.append(
            _tile("tokens", f"{facts.spent.input_tokens:,}", f"read; {facts.spent.output_tokens:,} written")
        )
    return tiles


def _tile(name: str, value: str, more: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "more": more}


def _pm(estimate: Estimate) -> str:
    if estimate.interval is not None:
        return f"95 %: {digits(estimate.interval[0])} – {digits(estimate.interval[1])}"
    return "" if estimate.stderr is None else f"± {digits(estimate.stderr)}"


def _speed(facts: RunFacts) -> str:
    if not facts.seconds or not facts.finished:
        return ""
    return f"{facts.documents / facts.seconds:,.1f} documents per second"


def score_lines(facts: RunFacts) -> list[dict[str, Any]]:
    """The table of results of one run, a breakdown below its number."""
    lines: list[dict[str, Any]] = []
    for row in facts.scores:
        estimate = row.estimate
        line: dict[str, Any] = {
            "label": row.label if row.first else "",
            "depth": row.depth,
            "group": row.group,
            "shots": "" if row.n_shot is None or not row.first else str(row.n_shot),
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
                "arrow": _ARROWS[estimate.higher_is_better],
                "value": row.shown,
                "error": "" if estimate.stderr is None else f"± {digits(estimate.stderr)}",
                "interval": "" if estimate.interval is None else " – ".join(map(digits, estimate.interval)),
                "counts": (
                    (f"{estimate.scored:,}", ""),
                    (f"{estimate.unscored:,}", "count-warn" if estimate.unscored else ""),
                    (f"{estimate.failed:,}", "count-bad" if estimate.failed else ""),
                ),
            }
        lines.append(line)
        for name, value in row.parts:
            blank = {"label": "", "shots": "", "arrow": "", "error": "", "interval": "", "counts": ()}
            lines.append({**blank, "depth": row.depth, "group": False, "metric": f"· {name}", "value": value})
    return lines


def matrix_part(matrix: Matrix) -> dict[str, Any]:
    """Runs side by side."""
    style = Style()
    return {
        "columns": [{"label": column.label} for column in matrix.columns],
        "rows": [
            {
                "label": row.label,
                "metric": row.measure,
                "arrow": _ARROWS[row.higher_is_better],
                "depth": row.depth,
                "group": row.group,
                "cells": [
                    None
                    if cell is None
                    else {
                        "shown": value_text(cell, row, style),
                        "error": error_text(cell, row, style),
                        "best": cell.best,
                    }
                    for cell in row.cells
                ],
            }
            for row in matrix.rows
        ],
    }


def spending_rows(facts: Sequence[RunFacts], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Tokens and money: of each run, of its tasks and of its judges."""
    rows = []
    for one, label in zip(facts, labels, strict=True):
        if not one.spent.any and not one.spent_by_judge:
            continue
        rows.append(_spent_row(label, one.spent, whole=True))
        tasks = [task for task in one.tasks if task.spent is not None] if len(one.tasks) > 1 else []
        rows += [_spent_row(task.label, task.spent, depth=1) for task in tasks[:40] if task.spent is not None]
        rows += [_spent_row(f"judge {name}", spent, depth=1) for name, spent in one.spent_by_judge.items()]
    return rows


def _spent_row(name: str, spent: Spent, *, whole: bool = False, depth: int = 0) -> dict[str, Any]:
    cost = "" if spent.cost_usd is None else dollars(spent.cost_usd)
    if spent.cost_usd is not None and spent.requests > spent.priced:
        cost += f" + {spent.requests - spent.priced:,} of unknown cost"
    return {
        "name": name,
        "whole": whole,
        "depth": depth,
        "requests": f"{spent.requests:,}",
        "read": f"{spent.input_tokens:,}",
        "cached": f"{spent.cached_tokens:,}",
        "written": f"{spent.output_tokens:,}",
        "cost": cost or "–",
    }


def settings_part(facts: Sequence[RunFacts], labels: Sequence[str]) -> dict[str, Any]:
    """Settings side by side; those that differ are marked."""
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


def task_rows(facts: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """What each task was, once however many runs have it."""
    tasks = {task.name: task for one in reversed(facts) for task in reversed(one.tasks)}
    return [
        {
            "label": task.label,
            "version": "" if task.version is None else str(task.version),
            "shots": "" if task.n_shot is None else str(task.n_shot),
            "documents": f"{task.documents:,}",
            "original": "" if task.original is None else f"{task.original:,}",
            "kind": _KINDS.get(task.output_type, task.output_type),
        }
        for task in sorted(tasks.values(), key=lambda task: list(reversed(tasks)).index(task.name))
    ]
