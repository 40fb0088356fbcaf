"""`assay calibrate`: what is a judge's verdict worth?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from assay.cli.runs import in_option
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Hold a judge's scores against labels people gave to some of the documents.

Says how far judge and people agree, and gives the score people would have given to all documents, with an interval
that is right however good the judge is (PPI++): a good judge makes it narrow. FILE is JSONL or CSV with `document`,
`label` and, where the run has several tasks, `task`.

\b
Examples:
  assay calibrate latest --labels labels.csv
  assay calibrate latest --labels labels.jsonl --metric correct --json
"""


@click.command("calibrate", help=_HELP)
@click.argument("run")
@click.option(
    "--labels", type=click.Path(path_type=Path), required=True, metavar="FILE", help="What people said."
)
@click.option("--metric", default="", metavar="NAME", help="The judge's metric, if not the task's first.")
@click.option("--level", type=float, default=0.95, metavar="SHARE", help="Of the interval. [default: 0.95]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    run: str, labels: Path, metric: str, level: float, as_json: bool, folders: tuple[str, ...]
) -> int:
    """The command; its help text is above."""
    from assay.viewer.comparison.calibrating import calibrate, read_labels
    from assay.viewer.comparison.sources import open_source

    known = read_labels(labels)
    source = open_source(run, folders)
    try:
        reports = calibrate(source, known, metric, level)
    finally:
        source.close()
    if as_json:
        click.echo(json.dumps([report.as_json() for report in reports], ensure_ascii=False, indent=2))
    else:
        for report in reports:
            _print(report)
    return 0


def _print(report: Any) -> None:
    found = report.calibrated
    kappa = "" if report.kappa is None else f", kappa {report.kappa:.2f}"
    rows = [
        ("judge alone", f"{report.judge_mean:.4f}  over {found.judged} documents"),
        ("labels alone", f"{found.labels_alone:.4f} ± {found.labels_stderr:.4f}  over {found.labelled}"),
        (
            "together",
            f"{found.value:.4f} ± {found.stderr:.4f}  [{found.interval.low:.4f}, {found.interval.high:.4f}],"
            f" as good as {found.worth:.0f} labels",
        ),
        ("agreement", f"{report.agreement:.2f}{kappa}; the judge scores {report.bias:+.4f} against people"),
    ]
    if report.flip_rate is not None:
        rows.append(("flip rate", f"{report.flip_rate:.2f}  with the answers in the other order"))
    click.secho(printable(f"{report.task}, {report.metric}"), bold=True)
    for name, text in rows:
        click.secho(f"  {name:<13}", fg="cyan", nl=False)
        click.echo(text)
