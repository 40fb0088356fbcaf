"""`assay score`: the answers a run has, judged once more."""

from __future__ import annotations

import json
import shutil
from typing import Any

import click

from assay.cli.reporting import start_logging
from assay.cli.runs import found, in_option
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Apply filters, metrics and judges again to the answers a run has; its model is never asked.

The task files are read as they are now, so a corrected filter, metric or helper counts; what changed is named. The
result is kept in the run beside what it said before, and `assay runs show` lists both. RUN is an id, the start of
one, a path, or `latest`.

\b
Examples:
  assay score latest
  assay score latest --dry_run --metric exact_match --metric f1
  assay score results/my-run --tasks gsm8k --filter flexible-extract
  assay score latest --judge openai,model=gpt-5
"""


@click.command("score", help=_HELP)
@click.argument("run")
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks of the run.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME",
    help="Only this filter of the tasks, or a registered one.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Only this metric of the tasks, or a registered one.",
)
@click.option(
    "--judge", multiple=True, metavar="NAME", help="Another judge than the run had; as of `assay run`."
)
@click.option("--judge_args", metavar="ARGS", help="Arguments every judge gets: key=value,key=value or JSON.")
@click.option("--dry_run", is_flag=True, help="Print the numbers, keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    run: str,
    task_names: tuple[str, ...],
    filters: tuple[str, ...],
    metrics: tuple[str, ...],
    judge: tuple[str, ...],
    judge_args: str | None,
    dry_run: bool,
    as_json: bool,
    folders: tuple[str, ...],
) -> None:
    """The command; its help text is above."""
    start_logging("WARNING")

    from assay import api

    opened = api.Run(found(run, folders))
    tasks = [name for word in task_names for name in word.split(",") if name]
    others: dict[str, Any] = {"judge": list(judge)} if judge else {}
    if judge_args is not None:
        others["judge_args"] = judge_args
    scoring = api.score(opened, tasks=tasks, filters=filters, metrics=metrics, dry_run=dry_run, **others)
    try:
        rows = _rows(opened, scoring)
        if as_json:
            click.echo(
                json.dumps(_document(scoring, rows, dry_run), ensure_ascii=False, indent=2, default=str)
            )
        else:
            _print(scoring, rows)
            kept = (
                "nothing was kept" if dry_run else f"kept as scoring {scoring.run.id} in {scoring.run.folder}"
            )
            click.echo(kept, err=True)
    finally:
        scoring.run.close()
        opened.close()
        if dry_run:
            shutil.rmtree(scoring.run.folder, ignore_errors=True)


def _rows(before: Any, scoring: Any) -> list[dict[str, Any]]:
    """Each number, as it was and as it is."""
    old = {(one.task, one.pipeline, one.metric): one for one in before.estimates}
    rows = []
    for estimate in scoring.run.estimates:
        key = (estimate.task, estimate.pipeline, estimate.metric)
        was = old.get(key)
        rows.append(
            {
                "task": estimate.task,
                "filter": estimate.pipeline,
                "metric": estimate.metric,
                "before": None if was is None else was.value,
                "now": estimate.value,
                "stderr": estimate.stderr,
                "scored": estimate.scored,
                "unscored": estimate.unscored,
                "failed": estimate.failed,
                "moved": scoring.moved.get(key, 0),
            }
        )
    return rows


def _document(scoring: Any, rows: list[dict[str, Any]], dry_run: bool) -> dict[str, Any]:
    return {
        "scoring": None if dry_run else int(scoring.run.id),
        "folder": None if dry_run else str(scoring.run.folder),
        "changed": dict(scoring.changed),
        "notes": list(scoring.notes),
        "estimates": rows,
    }


def _print(scoring: Any, rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from assay.viewer.run_tables import table_text
    from assay.viewer.tables import digits, number

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for title in ("task", "filter", "metric"):
        table.add_column(title, overflow="fold")
    for title in ("before", "now", "± stderr", "scored", "moved"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        stderr = "" if row["stderr"] is None else f"± {digits(row['stderr'])}"
        names = [escape(printable(row[key])) for key in ("task", "filter", "metric")]
        numbers = [number(row["before"]), number(row["now"]), stderr, str(row["scored"])]
        table.add_row(*names, *map(escape, numbers), str(row["moved"] or ""))
    console = Console()
    if console.is_terminal:
        console.print(table)
    else:
        click.echo(table_text(table))
    for task, what in scoring.changed.items():
        click.echo(printable(f"changed since the run: {task}: {', '.join(what)}"))
    for note in scoring.notes:
        click.echo(printable(f"changed since the run: {note}"))
    if not scoring.changed and not scoring.notes:
        click.echo("filters, metrics and helpers are as they were")
