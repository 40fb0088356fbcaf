"""`assay table`: print the scores of runs as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import in_option, json_option, print_json, split_names

if TYPE_CHECKING:
    from assay.viewer.matrix.score_matrix import Matrix

__all__ = ["command"]

_HELP = """Print the scores of runs as one table: tasks in rows, runs in columns.

A run is a run id, the start of one, a path, `latest`, or results of lm-eval or lmms-eval. Scores come with their
standard error or confidence interval. The best score of a row is highlighted only if it is significantly better than
every other run; the test is paired if the runs share documents.

\b
Examples:
  assay table base tuned
  assay table base tuned --format md
  assay table base tuned --format latex --percent --transpose -o table.tex
  assay table latest --format csv --every -o numbers.csv
  assay table base tuned --json
"""


@click.command("table", help=_HELP)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--format", "format_name", default="text", metavar="NAME", help="text, md, latex or csv. [default: text]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Output file. [default: standard output]",
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks and groups.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAMES",
    help="Metrics to show. [default: the first metric of each task]",
)
@click.option("--every", is_flag=True, help="Show every metric and filter of each task.")
@click.option(
    "--error",
    default="stderr",
    metavar="NAME",
    help="Uncertainty to show: stderr, interval or none. [default: stderr]",
)
@click.option("--percent", is_flag=True, help="Show fractions as percentages: 57.30 for 0.5730.")
@click.option(
    "--digits",
    type=click.IntRange(0, 12),
    metavar="N",
    help="Number of decimals. [default: 4; 2 with --percent]",
)
@click.option("--transpose", is_flag=True, help="Show runs in rows and tasks in columns.")
@json_option
@in_option
def command(
    runs: tuple[str, ...],
    format_name: str,
    output: Path | None,
    task_names: tuple[str, ...],
    metrics: tuple[str, ...],
    every: bool,
    error: Any,
    percent: bool,
    digits: int | None,
    transpose: bool,
    as_json: bool,
    folders: tuple[str, ...],
) -> int:
    """Run the command; its help text is above."""
    from contextlib import ExitStack

    from assay.cli.tables import print_matrix
    from assay.core.errors import InvalidOption, UnknownName
    from assay.engine.imports.run_cache import replace_results_by_run
    from assay.viewer.atomic_files import write_atomically
    from assay.viewer.comparison.sources import open_source
    from assay.viewer.matrix import FORMATS, NumberStyle, build_matrix, format_matrix

    if format_name not in FORMATS:
        raise UnknownName(
            f"unknown format `{format_name}`", where="--format", hint=f"one of: {', '.join(FORMATS)}"
        )
    if error not in ("stderr", "interval", "none"):
        raise InvalidOption(f"invalid value `{error}`", where="--error", hint="use stderr, interval or none")
    style = NumberStyle(error=error, percent=percent, digits=digits, models_in_rows=transpose)
    with ExitStack() as opened:
        sources = []
        for word in runs:
            sources.append(open_source(replace_results_by_run(word), folders))
            opened.callback(sources[-1].close)
        matrix = build_matrix(
            sources, tasks=split_names(task_names), metrics=split_names(metrics), all_metrics=every
        )
    if as_json:
        if output is not None:
            raise InvalidOption(
                "`--json` prints to standard output", where="--output", hint="redirect it: `> FILE`"
            )
        print_json(_to_json(matrix))
        return 0
    if output is None and format_name == "text":
        print_matrix(matrix, style)
        return 0
    text = format_matrix(matrix, format_name, style)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text)
        click.echo(f"wrote {output}", err=True)
    return 0


def _to_json(matrix: Matrix) -> dict[str, Any]:
    """Return the table as JSON: a row per task, filter and metric, with a cell per run (null: no score)."""
    return {
        "runs": [{"name": one.name, "label": one.label, "model": one.model} for one in matrix.columns],
        "rows": [
            {
                "task": row.task,
                "label": row.label,
                "metric": row.metric,
                "filter": row.pipeline,
                "group": row.group,
                "higher_is_better": row.higher_is_better,
                "cells": [
                    None
                    if cell is None
                    else {
                        "value": cell.value,
                        "stderr": cell.stderr,
                        "interval": None if cell.interval is None else list(cell.interval),
                        "scored": cell.scored,
                        "best": cell.best,
                    }
                    for cell in row.cells
                ],
            }
            for row in matrix.rows
        ],
        "notes": list(matrix.notes),
    }
