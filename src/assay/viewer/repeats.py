"""What the repeats of a run say, under its table: how much sampling adds, and what several answers are good for."""

from __future__ import annotations

import io
from typing import Any

from assay.store.runs import Run

__all__ = ["repeats_text"]


def repeats_text(run: Run) -> list[str]:
    """A small table, a line for each task, filter and metric that was asked several times; nothing for other runs."""
    rows = run.facts.get("repeats") or []
    if not rows:
        return []
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("repeats", "filter", "metric"):
        table.add_column(title)
    for title in (
        "answers",
        "mean ± stderr",
        "between",
        "within",
        "pass@k",
        "pass^k",
        "maj@k",
        "consistency",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for about in _together(rows):
        count, numbers = about["repeats"], about["numbers"]
        error = numbers["mean"]["stderr"]
        table.add_row(
            escape(about["task"]),
            escape(about["pipeline"]),
            escape(about["metric"]),
            f"{about['documents']} × {count}",
            _number(numbers["mean"]["value"]) + (f" ± {_number(error)}" if error is not None else ""),
            _number(about["between"]),
            _number(about["within"]),
            _of(numbers, f"pass@{count}"),
            _of(numbers, f"pass^{count}"),
            _of(numbers, f"maj@{count}"),
            _of(numbers, "consistency"),
        )
    stream = io.StringIO()
    Console(file=stream, width=10_000, color_system=None).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def _together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Filters that make the same of every single answer (they only select differently) share a line."""
    found: list[dict[str, Any]] = []
    for row in rows:
        known = next((one for one in found if {**one, "pipeline": ""} == {**row, "pipeline": ""}), None)
        if known is None:
            found.append(dict(row))
        else:
            known["pipeline"] += f", {row['pipeline']}"
    return found


def _of(numbers: dict[str, Any], name: str) -> str:
    return _number(numbers[name]["value"]) if name in numbers else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
