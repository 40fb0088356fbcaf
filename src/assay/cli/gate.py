"""`assay gate`: fail if a run misses a threshold or is worse than a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli.arguments import in_option, split_names
from assay.cli.compare import print_remarks, print_table
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.viewer.analysis.gate import GateResult

__all__ = ["command"]

_HELP = """Fail if a run misses a threshold or is significantly worse than a baseline.

Exits with code 3 if a check fails. A run is a run id, the start of one, a path, `latest`, or results of lm-eval or
lmms-eval. `--max_drop` is the tolerated drop in points (percent for metrics that are not fractions). A check fails only
if the drop is significantly larger, so that noise does not fail the gate.

\b
Examples:
  assay gate latest --baseline main-run
  assay gate latest --baseline main-run --max_drop 1.0 --alpha 0.01
  assay gate latest --min gsm8k:exact_match=0.7 --min arc_easy=0.6
  assay gate latest --baseline main-run --junit gate.xml --markdown summary.md
"""


@click.command("gate", help=_HELP)
@click.argument("run")
@click.option("--baseline", metavar="RUN", help="Baseline run.")
@click.option(
    "--min", "floors", multiple=True, metavar="TASK[:METRIC]=VALUE", help="Minimum score; repeatable."
)
@click.option(
    "--max_drop", type=float, default=0.0, metavar="POINTS", help="Tolerated drop in points. [default: 0]"
)
@click.option(
    "--alpha",
    type=float,
    default=0.05,
    metavar="SHARE",
    help="Significance level (false positive rate). [default: 0.05]",
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAMES",
    help="Metrics to check. [default: the first metric of each task]",
)
@click.option("--cluster_by", default="", metavar="FIELD", help="Cluster documents by this field.")
@click.option(
    "--correction",
    default="holm",
    metavar="NAME",
    help="Correction for multiple comparisons: holm, bh or none. [default: holm]",
)
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the checks as JUnit XML."
)
@click.option(
    "--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write a summary as Markdown."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    run: str,
    baseline: str | None,
    floors: tuple[str, ...],
    max_drop: float,
    alpha: float,
    task_names: tuple[str, ...],
    metrics: tuple[str, ...],
    cluster_by: str,
    correction: str,
    junit: Path | None,
    markdown: Path | None,
    as_json: bool,
    folders: tuple[str, ...],
) -> int:
    """Run the command; its help text is above."""
    from assay.viewer.analysis.gate import GateOptions, evaluate_gate, to_junit, to_markdown
    from assay.viewer.comparison.sources import open_source
    from assay.viewer.exports.junit import parse_threshold

    options = GateOptions(
        floors=[parse_threshold(text, "--min") for text in floors],
        max_drop=max_drop,
        alpha=alpha,
        tasks=split_names(task_names),
        metrics=split_names(metrics),
        cluster_by=cluster_by,
        correction=correction,
    )
    sources = [open_source(word, folders) for word in (run, baseline) if word is not None]
    try:
        gate = evaluate_gate(sources[0], sources[1] if baseline is not None else None, options)
    finally:
        for source in sources:
            source.close()
    for path, text in ((junit, to_junit(gate)), (markdown, to_markdown(gate))):
        if path is not None:
            _write(path, text)
    if as_json:
        click.echo(json.dumps(gate.as_json(), ensure_ascii=False, indent=2))
    else:
        _print(gate)
    return 0 if gate.passed else 3


def _write(path: Path, text: str) -> None:
    from assay.core.errors import OutputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise OutputError(f"cannot write the report: {error.strerror}", where=str(path)) from None
    click.echo(escape_control_characters(f"wrote {path}"), err=True)


def _print(gate: GateResult) -> None:
    if gate.comparison is not None:
        overall = gate.comparison.overall
        print_table(gate.comparison, [*gate.comparison.rows, *([overall] if overall else [])])
        print_remarks(gate.comparison)
        click.echo("")
    for check in gate.checks:
        click.secho(
            "pass  " if check.passed else "FAIL  ", fg="green" if check.passed else "red", bold=True, nl=False
        )
        click.echo(escape_control_characters(check.message))
    word, colour = ("passed", "green") if gate.passed else ("failed", "red")
    failed = sum(not check.passed for check in gate.checks)
    click.secho(f"{word}: ", fg=colour, bold=True, nl=False)
    click.echo(f"{len(gate.checks) - failed} of {len(gate.checks)} checks passed")
