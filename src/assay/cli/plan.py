"""`assay plan`: what a run would do; every problem at once; no model call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from assay.cli.options import OptionsCommand, add_run_options, spec_from

__all__ = ["command"]

_HELP = """Say what a run would do, and everything that is wrong with it.

Reads the tasks and their data, renders every prompt, counts; asks nothing and loads no weights. Takes the same
options as `assay run`. How many requests a dialogue makes depends on the answers: it is counted with its first.

\b
Examples:
  assay plan
  assay plan --tasks my_task.yaml --model embedded
  assay plan --tasks quickstart --json
"""


@click.command("plan", cls=OptionsCommand, help=_HELP)
@click.argument("task_names", nargs=-1, metavar="[TASKS]...")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON on standard output.")
def command(task_names: tuple[str, ...], as_json: bool, config: Path | None, **values: Any) -> None:
    """The command; its help text is above."""
    if task_names:
        given = [name for word in task_names for name in word.split(",") if name]
        values["tasks"] = (*(values.get("tasks") or ()), given)
    spec = spec_from(values, config)

    from assay import api

    plan = api.plan(spec)

    from assay.engine.planning.cost_forecast import forecast

    expected = forecast(plan)
    if as_json:
        click.echo(json.dumps(_document(plan, expected), ensure_ascii=False, indent=2))
    else:
        _print(plan, expected)


add_run_options(command)


def _document(plan: Any, expected: Any) -> dict[str, Any]:
    tasks, counts = {}, expected.counts
    for name, planned in plan.tasks.items():
        tasks[name] = {
            "documents": planned.documents,
            "requests": counts[name],
            **({"at_least": True} if planned.task.is_dialogue else {}),
            "output_type": planned.spec.output_type,
            "num_fewshot": planned.task.num_fewshot,
            "version": planned.spec.version,
            "digest": planned.digest,
            "path": planned.spec.path,
        }
    return {
        "run_id": plan.run_id,
        "folder": str(plan.folder),
        "model": plan.model.name,
        "identity": dict(plan.identity),
        "judges": {name: dict(judge.identity) for name, judge in plan.judges.items()},
        "notes": list(plan.notes),
        "tasks": tasks,
        "groups": {name: list(group.members) for name, group in plan.groups.items()},
        "documents": plan.documents,
        "requests": sum(sum(kinds.values()) for kinds in counts.values()),
        "estimate": expected.plain(),
    }


def _print(plan: Any, expected: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, side in (
        ("task", "left"),
        ("asks for", "left"),
        ("shots", "right"),
        ("documents", "right"),
        ("requests", "right"),
    ):
        table.add_column(title, justify=side, no_wrap=True)  # type: ignore[arg-type]
    counts = expected.counts
    for name, planned in plan.tasks.items():
        kinds = counts[name]
        table.add_row(
            escape(name),
            ", ".join(sorted(kinds)),
            str(planned.task.num_fewshot),
            str(planned.documents),
            f"{sum(kinds.values())}{'+' if planned.task.is_dialogue else ''}",
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)  # a file has room for long names
    console.print(table)
    total = sum(sum(kinds.values()) for kinds in counts.values())
    more = "at least " if any(planned.task.is_dialogue for planned in plan.tasks.values()) else ""
    click.echo(
        f"{plan.documents} documents, {more}{total} requests to `{plan.model.name}`; would be stored in {plan.folder}"
    )
    click.echo(_estimate(expected))
    for name, judge in plan.judges.items():
        use = "judges" if judge.needed else "is there for helpers that ask a judge"
        click.echo(f"the model `{name}` {use}")
    for note in plan.notes:
        click.echo(f"note: {note}")
    click.echo("no problems found")


def _estimate(expected: Any) -> str:
    """About how many tokens and how much money, as a range; and what it does not know."""
    from assay.viewer.progress import amount
    from assay.viewer.tables import dollars

    def ends(span: Any, show: Any) -> str:
        low, high = show(span.low), show(span.high)
        return low if low == high else f"{low} to {high}"

    said = f"estimate: {ends(expected.read, amount)} tokens read, {ends(expected.written, amount)} written"
    if not expected.billed_as:
        return said
    if expected.cost_usd is None:
        return f"{said}; cost unknown: no price for `{expected.billed_as}` (--prices FILE)"
    return (
        f"{said}; {ends(expected.cost_usd, dollars)} by prices of {expected.price_date}, judges not counted"
    )
