"""`assay export`: write a run in the format of another program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from assay.cli.arguments import find_run_or_results, in_option
from assay.core.terminal_text import escape_control_characters

__all__ = ["command"]

_HELP = """Export a run in the format of another program.

RUN is a run id, the start of one, a path, or `latest`. Text formats are written to standard output unless `--output`
names a file. The guide `interchange` lists what each format leaves out.

\b
FORMAT is one of:
  jsonl            all data of each document, one line per document
  csv              one row per document and filter, one column per metric
  parquet          the same rows as a Parquet file (needs pyarrow)
  junit            one test case per document, or per --threshold, for CI
  html-table       the result table as an HTML page
  lm-eval          results and samples files of lm-evaluation-harness
  lmms-eval        results and samples files of lmms-eval
  inspect          logs of inspect_ai (.eval), one per task
  inspect-json     the same logs as JSON
  every-eval-ever  records of Every Eval Ever, with instances
  hf-eval-results  .eval_results of a model repository on the Hub
  model-index      model-index of a model card; -o README.md updates it
  mlflow           a folder of MLflow (needs the plugin trackers)
  wandb            an offline run of Weights & Biases (same plugin)

\b
Examples:
  assay export latest --format csv -o documents.csv
  assay export latest --format jsonl --tasks gsm8k > gsm8k.jsonl
  assay export latest --format junit --threshold gsm8k:exact_match=0.8 -o report.xml
  assay export latest --format lm-eval -o results
  assay export latest --format inspect -o logs && inspect view --log-dir logs
  assay export latest --format model-index -o README.md
"""


@click.command("export", help=_HELP)
@click.argument("run")
@click.option("--format", "format_name", required=True, metavar="FORMAT", help="Export format, see above.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE|DIR", help="Output file or folder."
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks of the run.")
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="TASK[:METRIC]=VALUE",
    help="With junit: write test cases for thresholds instead of documents; exits with code 3 if one is missed.",
)
@click.option(
    "--scoring",
    type=int,
    metavar="N",
    help="Export the Nth rescoring of the run (0: the original scores). [default: the latest]",
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
    """Run the command; its help text is above."""
    from assay.core.errors import InvalidOption
    from assay.store.runs.run import Run
    from assay.viewer.exports.formats import export
    from assay.viewer.exports.junit import parse_threshold

    parsed_thresholds = [parse_threshold(text) for text in thresholds]
    if parsed_thresholds and format_name != "junit":
        raise InvalidOption("`--threshold` requires `--format junit`", where="--threshold")
    asked = Run(find_run_or_results(run, folders))
    opened = asked.scored(scoring)
    if opened is not asked and scoring is None:
        click.echo(
            f"exporting the latest scores (scoring {opened.id}); --scoring 0 exports the original scores",
            err=True,
        )
    tasks = [name for word in task_names for name in word.split(",") if name]
    try:
        if parsed_thresholds:
            return _export_thresholds(opened, parsed_thresholds, output)
        files = export(opened, format_name, tasks, output, _StdoutWriter())
    finally:
        opened.close()
    for file in files:
        click.echo(escape_control_characters(f"wrote {file}"), err=True)
    return 0


class _StdoutWriter:
    """Writes to standard output, escaping characters that UTF-8 cannot encode."""

    def write(self, text: str) -> int:
        sys.stdout.write(text.encode("utf-8", "backslashreplace").decode())
        return len(text)


def _export_thresholds(run: Any, thresholds: list[Any], output: Path | None) -> int:
    """Write one test case per threshold and return 3 if a threshold is missed."""
    import io

    from assay.core.errors import OutputError
    from assay.viewer.exports.junit import describe_unmet_thresholds, write_thresholds

    stream = io.StringIO()
    write_thresholds(run, thresholds, stream)
    if output is None:
        click.echo(stream.getvalue(), nl=False)
    else:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(stream.getvalue(), "utf-8")
        except OSError as error:
            raise OutputError(f"cannot write the export: {error.strerror}", where=str(output)) from None
    missed = describe_unmet_thresholds(run, thresholds)
    for message in missed:
        click.echo(escape_control_characters(message), err=True)
    return 3 if missed else 0
