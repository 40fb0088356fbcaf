"""What a sweep would do and cost, run by run: `assay sweep --dry_run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

__all__ = ["print_forecast"]

_TITLES = ("model", "setting", "state", "tasks", "documents", "requests", "tokens", "cost")


def print_forecast(planned: Sequence[tuple[Any, Any]], *, as_json: bool) -> None:
    """A line for each run of a sweep, given as (cell, plan), and the sum of what is left to do."""
    rows = [_row(cell, plan) for cell, plan in planned]
    if as_json:
        click.echo(json.dumps({"runs": rows}, ensure_ascii=False, indent=2))
        return
    _print_table(rows)
    left = [row for row in rows if row["state"] != "finished"]
    documents, requests = (sum(row[key] for row in left) for key in ("documents", "requests"))
    click.echo(f"{len(left)} of {len(rows)} runs to do: {documents} documents, at most {requests} requests")
    _print_cost([row["estimate"] for row in left])
    for note in dict.fromkeys(note for row in rows for note in row["notes"]):
        click.echo(f"note: {note}")


def _row(cell: Any, plan: Any) -> dict[str, Any]:
    from assay.engine.planning.cost_forecast import forecast
    from assay.engine.planning.journal_setup import finished_run

    expected = forecast(plan)
    started = (plan.folder / "journal.sqlite").exists()
    return {
        "model": cell.model,
        "setting": cell.setting,
        "run": plan.run_id,
        "state": "finished" if finished_run(plan) is not None else "goes on" if started else "new",
        "tasks": list(plan.tasks),
        "documents": plan.documents,
        "requests": sum(sum(kinds.values()) for kinds in expected.counts.values()),
        "estimate": expected.plain(),
        "notes": list(plan.notes),
    }


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from assay.viewer.progress import amount

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in _TITLES:
        side: Any = "left" if title in ("model", "setting", "state") else "right"
        table.add_column(title, justify=side, no_wrap=True)
    for row in rows:
        estimate = row["estimate"]
        tokens = [
            read + written
            for read, written in zip(estimate["input_tokens"], estimate["output_tokens"], strict=True)
        ]
        table.add_row(
            escape(row["model"]),
            escape(row["setting"]),
            row["state"],
            str(len(row["tasks"])),
            str(row["documents"]),
            str(row["requests"]),
            f"{amount(tokens[0])} – {amount(tokens[1])}",
            _cost(estimate),
        )
    console = Console()
    (console if console.is_terminal else Console(width=10_000)).print(table)


def _cost(estimate: Mapping[str, Any]) -> str:
    from assay.viewer.tables import dollars

    if estimate["cost_usd"] is None:
        return "?" if estimate["billed_as"] else ""
    return " – ".join(dollars(end) for end in estimate["cost_usd"])


def _print_cost(estimates: Sequence[Mapping[str, Any]]) -> None:
    from assay.viewer.tables import dollars

    known = [estimate["cost_usd"] for estimate in estimates if estimate["cost_usd"] is not None]
    if known:
        low, high = (sum(ends[at] for ends in known) for at in (0, 1))
        click.echo(
            f"cost: {dollars(low)} to {dollars(high)}; judges, and answers known already, are not counted"
        )
    if unknown := {estimate["billed_as"] for estimate in estimates if estimate["cost_usd"] is None} - {""}:
        click.echo(f"cost unknown: no price for {', '.join(sorted(unknown))} (--prices FILE)")
