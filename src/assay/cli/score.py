"""`assay score`: score the stored responses of a run again."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import find_run_folder, in_option
from assay.cli.run_output import start_logging
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.api import Run
    from assay.engine.results.rescore import Scoring

__all__ = ["command"]

_HELP = """Apply filters, metrics and judges again to the stored responses of a run. Sends no request to its model.

Reads the current task files, so that a corrected filter, metric or helper takes effect, and lists what changed. Stores
the new scores in the run next to the original ones; `assay runs show` lists both. RUN is a run id, the start of one, a
path, or `latest`.

\b
Examples:
  assay score latest
  assay score latest --dry_run --metric exact_match --metric f1
  assay score results/my-run --tasks gsm8k --filter flexible-extract
  assay score latest --judge openai,model=gpt-5
  assay score latest --dry_run --reasoning keep
"""


@click.command("score", help=_HELP)
@click.argument("run")
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks of the run.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME",
    help="Apply only this filter of the tasks, or a registered filter.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Apply only this metric of the tasks, or a registered metric.",
)
@click.option(
    "--judge",
    multiple=True,
    metavar="NAME",
    help="Judge to use instead of the run's judge, as in `assay run`.",
)
@click.option("--judge_args", metavar="ARGS", help="Arguments for every judge: key=value,key=value or JSON.")
@click.option(
    "--reasoning",
    type=click.Choice(["keep", "strip"]),
    help="Score the reasoning as part of the answers (keep), or remove reasoning from them (strip).",
)
@click.option("--dry_run", is_flag=True, help="Print the scores without storing them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    run: str,
    task_names: tuple[str, ...],
    filters: tuple[str, ...],
    metrics: tuple[str, ...],
    judge: tuple[str, ...],
    judge_args: str | None,
    reasoning: str | None,
    dry_run: bool,
    as_json: bool,
    folders: tuple[str, ...],
) -> None:
    """Run the command; its help text is above."""
    start_logging("WARNING")

    from assay import api

    opened = api.Run(find_run_folder(run, folders))
    tasks = [name for word in task_names for name in word.split(",") if name]
    others: dict[str, Any] = {"judge": list(judge)} if judge else {}
    if judge_args is not None:
        others["judge_args"] = judge_args
    if reasoning is not None:
        others["reasoning"] = reasoning
    scoring = api.score(opened, tasks=tasks, filters=filters, metrics=metrics, dry_run=dry_run, **others)
    try:
        rows = _build_rows(opened, scoring)
        if as_json:
            click.echo(
                json.dumps(_to_json(scoring, rows, dry_run), ensure_ascii=False, indent=2, default=str)
            )
        else:
            _print(scoring, rows)
            kept = (
                "dry run: nothing stored"
                if dry_run
                else f"stored as scoring {scoring.run.id} in {scoring.run.folder}"
            )
            click.echo(kept, err=True)
    finally:
        scoring.run.close()
        opened.close()
        if dry_run:
            shutil.rmtree(scoring.run.folder, ignore_errors=True)


def _build_rows(before: Run, scoring: Scoring) -> list[dict[str, Any]]:
    """Return one row per score with its old and new value."""
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
                "moved": scoring.changed_documents.get(key, 0),
            }
        )
    return rows


def _to_json(scoring: Scoring, rows: list[dict[str, Any]], dry_run: bool) -> dict[str, Any]:
    return {
        "scoring": None if dry_run else int(scoring.run.id),
        "folder": None if dry_run else str(scoring.run.folder),
        "changed": dict(scoring.changed),
        "notes": list(scoring.notes),
        "estimates": rows,
    }


def _print(scoring: Scoring, rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    from assay.cli.tables import print_table
    from assay.viewer.number_format import format_float, format_number
    from assay.viewer.text_tables import Column, TextTable

    table = TextTable(
        columns=[
            Column(title="task", wrap=True),
            Column(title="filter", wrap=True, fold=1, folded="filter {}", omit=frozenset({"none"})),
            Column(title="metric", wrap=True),
            Column(title="before", justify="right"),
            Column(title="now", justify="right"),
            Column(title="± stderr", justify="right", fold=3),
            Column(title="scored", justify="right", fold=2, folded="{} scored"),
            Column(title="changed", justify="right", fold=1, folded="{} changed"),
        ]
    )
    for row in rows:
        stderr = "" if row["stderr"] is None else f"± {format_float(row['stderr'])}"
        names = [escape(escape_control_characters(row[key])) for key in ("task", "filter", "metric")]
        numbers = [format_number(row["before"]), format_number(row["now"]), stderr, str(row["scored"])]
        table.add_row(*names, *map(escape, numbers), str(row["moved"] or ""))
    print_table(table)
    for task, what in scoring.changed.items():
        click.echo(escape_control_characters(f"changed since the run: {task}: {', '.join(what)}"))
    for note in scoring.notes:
        click.echo(escape_control_characters(f"changed since the run: {note}"))
    if not scoring.changed and not scoring.notes:
        click.echo("filters, metrics and helpers are unchanged")
