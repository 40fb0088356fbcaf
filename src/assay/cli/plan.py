"""`assay plan`: show what a run would do and list every problem. Does not call the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.options import OptionsCommand, add_run_options, build_run_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.engine.planning.cost_forecast import CostForecast, Range, TaskForecast
    from assay.engine.planning.records import Plan

__all__ = ["command"]

_HELP = """Show what a run would do and list every problem.

Reads the tasks and their data, renders every prompt and counts requests; sends no request and loads no weights. Accepts
the options of `assay run`. The number of requests of a dialogue depends on the answers; only its first one is counted.

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
    """Run the command; its help text is above."""
    if task_names:
        given = [name for word in task_names for name in word.split(",") if name]
        values["tasks"] = (*(values.get("tasks") or ()), given)
    spec = build_run_spec(values, config)

    from assay import api

    plan = api.plan(spec)

    from assay.engine.planning.cost_forecast import forecast_cost

    expected = forecast_cost(plan)
    if as_json:
        click.echo(json.dumps(_to_json(plan, expected), ensure_ascii=False, indent=2))
    else:
        _print(plan, expected)


add_run_options(command)


def _to_json(plan: Plan, expected: CostForecast) -> dict[str, Any]:
    tasks, counts = {}, expected.counts
    for name, planned in plan.tasks.items():
        tasks[name] = {
            "documents": planned.documents,
            "requests": counts[name],
            **_build_truncation(expected.tasks[name]),
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
        "install": plan.install_command,
        "tasks": tasks,
        "groups": {name: list(group.members) for name, group in plan.groups.items()},
        "documents": plan.documents,
        "requests": sum(sum(kinds.values()) for kinds in counts.values()),
        "estimate": expected.to_json(),
    }


def _build_truncation(task: TaskForecast) -> dict[str, Any]:
    """Return the number of prompts that exceed the context length, if any."""
    if not task.truncated:
        return {}
    totals = {
        "requests": task.truncated,
        "truncated_tokens": task.truncated_tokens,
        "input_tokens": task.kept_tokens,
    }
    return {"truncated_prompts": totals}


def _print(plan: Plan, expected: CostForecast) -> None:
    from rich.markup import escape

    from assay.cli.tables import echo_wrapped, print_table
    from assay.viewer.text_tables import Column, TextTable

    table = TextTable(
        columns=[
            Column(title="task", wrap=True),
            Column(title="request type", fold=1),
            Column(title="few-shot", justify="right", fold=2, folded="{} few-shot"),
            Column(title="documents", justify="right"),
            Column(title="requests", justify="right"),
        ]
    )
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
    print_table(table)
    total = sum(sum(kinds.values()) for kinds in counts.values())
    more = "at least " if any(planned.task.is_dialogue for planned in plan.tasks.values()) else ""
    echo_wrapped(
        f"{plan.documents} document{'' if plan.documents == 1 else 's'}, {more}{total} request{'' if total == 1 else 's'}"
        f" to `{plan.model.name}`; results folder: {plan.folder}"
    )
    echo_wrapped(_format_estimate(expected))
    has_remarks = bool(plan.notes)
    for name, task in expected.tasks.items():
        if task.truncated:
            has_remarks = True
            kept, removed = task.kept_tokens / task.truncated, task.truncated_tokens / task.truncated
            echo_wrapped(
                f"warning: {name}: {task.truncated} of {sum(task.kinds.values())} prompts exceed the context length and"
                f" will be truncated: {kept:.0f} of {kept + removed:.0f} tokens remain on average"
            )
    for name, judge in plan.judges.items():
        use = "required" if judge.needed else "available to helper functions"
        label = f"`{name}`" if name.startswith("user ") else f"judge `{name}`"
        echo_wrapped(f"{label}: {use}")
    for note in plan.notes:
        echo_wrapped(f"note: {note}")
    if plan.install_command:
        click.echo(f"install: {plan.install_command}")
    echo_wrapped("no errors found; see the warnings and notes above" if has_remarks else "no problems found")


def _format_estimate(expected: CostForecast) -> str:
    """Return the estimated numbers of tokens and the cost as ranges."""
    from assay.viewer.number_format import format_count, format_dollars

    def format_range(span: Range, format_value: Callable[[float], str]) -> str:
        low, high = format_value(span.low), format_value(span.high)
        return low if low == high else f"{low} to {high}"

    text = f"estimate: {format_range(expected.input_tokens, format_count)} input tokens, {format_range(expected.output_tokens, format_count)} output tokens"
    if not expected.billed_as:
        return text
    if expected.cost_usd is None:
        return f"{text}; cost unknown: no price for `{expected.billed_as}` (--prices FILE)"
    return f"{text}; {format_range(expected.cost_usd, format_dollars)} at prices of {expected.price_date}, without judges"
