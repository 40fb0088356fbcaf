"""`assay gate`: may this run pass?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from assay.cli.compare import print_remarks, print_table, words_of
from assay.cli.runs import in_option
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Say whether a run may pass: no number below its floor, no drop that chance does not explain.

Exits 3 when it may not. A run is an id, the start of one, a path, `latest`, or results of lm-eval or lmms-eval.
`--max_drop` allows a drop of so many points (percent, for metrics that are no shares); only one that is larger beyond
doubt stops the run, so that noise does not.

\b
Examples:
  assay gate latest --baseline main-run
  assay gate latest --baseline main-run --max_drop 1.0 --alpha 0.01
  assay gate latest --min gsm8k:exact_match=0.7 --min arc_easy=0.6
  assay gate latest --baseline main-run --junit gate.xml --markdown summary.md
"""


@click.command("gate", help=_HELP)
@click.argument("run")
@click.option("--baseline", metavar="RUN", help="What it must not be worse than.")
@click.option("--min", "floors", multiple=True, metavar="TASK[:METRIC]=VALUE", help="A number it must reach.")
@click.option(
    "--max_drop", type=float, default=0.0, metavar="POINTS", help="A drop that is allowed. [default: 0]"
)
@click.option(
    "--alpha", type=float, default=0.05, metavar="SHARE", help="Chance of a false alarm. [default: 0.05]"
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAMES", help="These instead of each task's first."
)
@click.option(
    "--cluster_by", default="", metavar="FIELD", help="Documents alike in this field belong together."
)
@click.option("--correction", default="holm", metavar="NAME", help="holm, bh or none. [default: holm]")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML for CI.")
@click.option(
    "--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write a summary in Markdown."
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
    """The command; its help text is above."""
    from assay.viewer.comparison.gates import GateOptions, judge_gate, junit_of, markdown_of
    from assay.viewer.comparison.sources import open_source
    from assay.viewer.exports.junit import parse_threshold

    options = GateOptions(
        floors=[parse_threshold(text, "--min") for text in floors],
        max_drop=max_drop,
        alpha=alpha,
        tasks=words_of(task_names),
        metrics=words_of(metrics),
        cluster_by=cluster_by,
        correction=correction,
    )
    sources = [open_source(word, folders) for word in (run, baseline) if word is not None]
    try:
        gate = judge_gate(sources[0], sources[1] if baseline is not None else None, options)
    finally:
        for source in sources:
            source.close()
    for path, text in ((junit, junit_of(gate)), (markdown, markdown_of(gate))):
        if path is not None:
            _write(path, text)
    if as_json:
        click.echo(json.dumps(gate.as_json(), ensure_ascii=False, indent=2))
    else:
        _print(gate)
    return 0 if gate.passed else 3


def _write(path: Path, text: str) -> None:
    from assay.core.errors import BadOutput

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise BadOutput(f"cannot write the report: {error.strerror}", where=str(path)) from None
    click.echo(printable(f"written {path}"), err=True)


def _print(gate: Any) -> None:
    if gate.comparison is not None:
        overall = gate.comparison.overall
        print_table(gate.comparison, [*gate.comparison.rows, *([overall] if overall else [])])
        print_remarks(gate.comparison)
        click.echo("")
    for check in gate.checks:
        click.secho(
            "pass  " if check.passed else "FAIL  ", fg="green" if check.passed else "red", bold=True, nl=False
        )
        click.echo(printable(check.message))
    word, colour = ("passed", "green") if gate.passed else ("stopped", "red")
    failed = sum(not check.passed for check in gate.checks)
    click.secho(f"{word}: ", fg=colour, bold=True, nl=False)
    click.echo(f"{len(gate.checks) - failed} of {len(gate.checks)} checks hold")
