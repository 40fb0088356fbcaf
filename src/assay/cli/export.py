"""`assay export`: a run in a format other programs read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from assay.cli.runs import found, in_option
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Write a run in a format other programs read.

RUN is an id, the start of one, a path, or `latest`. Texts go to standard output unless `--output` names a file.

\b
FORMAT is one of:
  jsonl       everything about each document, a line each
  csv         a row per document and filter, a column per metric
  parquet     the same rows as a parquet file (needs pyarrow)
  junit       a test case per document, or per --threshold, for CI
  html-table  the table of results as a page
  lm-eval     results and samples, as lm-evaluation-harness writes them
  lmms-eval   results and samples, as lmms-eval writes them

\b
Examples:
  assay export latest --format csv -o documents.csv
  assay export latest --format jsonl --tasks gsm8k > gsm8k.jsonl
  assay export latest --format junit --threshold gsm8k:exact_match=0.8 -o report.xml
  assay export latest --format lm-eval -o results
"""


@click.command("export", help=_HELP)
@click.argument("run")
@click.option("--format", "format_name", required=True, metavar="FORMAT", help="See above.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE|DIR", help="Where to write it."
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks of the run.")
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="TASK[:METRIC]=VALUE",
    help="With junit: a test case for this, instead of one per document; exits 3 when it is not met.",
)
@click.option(
    "--scoring", type=int, metavar="N", help="The run as scored the Nth time; 0: when it was asked."
)
@in_option
def command(
    run: str,
    format_name: str,
    output: Path | None,
    task_names: tuple[str, ...],
    thresholds: tuple[str, ...],
    scoring: int | None,
    folders: tuple[str, ...],
) -> int:
    """The command; its help text is above."""
    from assay.core.errors import BadOption
    from assay.store.runs import Run
    from assay.viewer.exports import export
    from assay.viewer.exports.junit import parse_threshold

    wanted = [parse_threshold(text) for text in thresholds]
    if wanted and format_name != "junit":
        raise BadOption("only `--format junit` has thresholds", where="--threshold")
    asked = Run(found(run, folders))
    opened = asked.scored(scoring)
    if opened is not asked and scoring is None:
        click.echo(
            f"as scored the last time (scoring {opened.id}); --scoring 0 is the run as it was asked", err=True
        )
    tasks = [name for word in task_names for name in word.split(",") if name]
    try:
        if wanted:
            return _gate(opened, wanted, output)
        files = export(opened, format_name, tasks, output, _Stdout())
    finally:
        opened.close()
    for file in files:
        click.echo(printable(f"written {file}"), err=True)
    return 0


class _Stdout:
    """Standard output as a file that takes any text."""

    def write(self, text: str) -> int:
        sys.stdout.write(text.encode("utf-8", "backslashreplace").decode())
        return len(text)


def _gate(run: Any, wanted: list[Any], output: Path | None) -> int:
    """One test case per threshold; 3 when one is not met."""
    import io

    from assay.core.errors import BadOutput
    from assay.viewer.exports.junit import unmet, write_thresholds

    stream = io.StringIO()
    write_thresholds(run, wanted, stream)
    if output is None:
        click.echo(stream.getvalue(), nl=False)
    else:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(stream.getvalue(), "utf-8")
        except OSError as error:
            raise BadOutput(f"cannot write the export: {error.strerror}", where=str(output)) from None
    missed = unmet(run, wanted)
    for message in missed:
        click.echo(printable(message), err=True)
    return 3 if missed else 0
