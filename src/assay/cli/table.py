"""`assay table`: the numbers of some runs as a table for a terminal, a pull request, a paper or a spreadsheet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.compare import words_of
from assay.cli.runs import in_option

__all__ = ["command"]

_HELP = """Print the numbers of runs as one table: tasks in rows, runs in columns.

A run is an id, the start of one, a path, `latest`; or results of lm-eval or lmms-eval. Numbers come with their standard
error, or their interval. The best one of a row stands out only where it beats every other run beyond chance: document
by document where the runs share documents.

\b
Examples:
  assay table base tuned
  assay table base tuned --format md
  assay table base tuned --format latex --percent --transpose -o table.tex
  assay table latest --format csv --every -o numbers.csv
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
    help="Write it there instead of printing it.",
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks and groups.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAMES", help="These metrics instead of each task's first."
)
@click.option("--every", is_flag=True, help="Every metric and filter of each task.")
@click.option(
    "--error",
    default="stderr",
    metavar="NAME",
    help="What stands behind a number: stderr, interval or none. [default: stderr]",
)
@click.option("--percent", is_flag=True, help="Shares in points: 57.30 for 0.5730.")
@click.option("--digits", type=click.IntRange(0, 12), metavar="N", help="Decimals. [default: 4; of points 2]")
@click.option("--transpose", is_flag=True, help="Runs in rows, tasks in columns.")
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
    folders: tuple[str, ...],
) -> int:
    """The command; its help text is above."""
    from contextlib import ExitStack

    from assay.core.errors import BadOption, UnknownName
    from assay.viewer.comparison.sources import open_source
    from assay.viewer.files import write_whole
    from assay.viewer.matrix import FORMATS, Style, make_matrix, written

    if format_name not in FORMATS:
        raise UnknownName(
            f"no format is called `{format_name}`", where="--format", hint=f"one of: {', '.join(FORMATS)}"
        )
    if error not in ("stderr", "interval", "none"):
        raise BadOption(
            f"`{error}` does not stand behind a number", where="--error", hint="stderr, interval or none"
        )
    style = Style(error=error, percent=percent, digits=digits, models_in_rows=transpose)
    with ExitStack() as opened:
        sources = []
        for word in runs:
            sources.append(open_source(word, folders))
            opened.callback(sources[-1].close)
        matrix = make_matrix(sources, tasks=words_of(task_names), metrics=words_of(metrics), every=every)
    text = written(matrix, format_name, style)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(output, text)
        click.echo(f"written {output}", err=True)
    return 0
