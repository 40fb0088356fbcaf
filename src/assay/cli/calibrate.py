"""`assay calibrate`: compare a judge's scores with human labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli.arguments import in_option, print_json
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.viewer.analysis.judge_calibration import JudgeCalibration

__all__ = ["command"]

_HELP = """Compare a judge's scores with human labels for some of the documents.

Shows the agreement between judge and labels, and estimates the mean human score over all documents. The confidence
interval is valid for any judge (PPI++) and narrower for a good one. FILE is JSONL or CSV with the columns `document`,
`label` and, if the run has several tasks, `task`. Without --labels, the labels that people gave in `assay view` are used:
the mean of all people, or those of one person (--labeller).

\b
Examples:
  assay calibrate latest
  assay calibrate latest --labels labels.csv
  assay calibrate latest --labels labels.jsonl --metric correct --json
"""


@click.command("calibrate", help=_HELP)
@click.argument("run")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with human labels. [default: the labels of the run]",
)
@click.option(
    "--labeller", default="", metavar="NAME", help="Of the labels of the run, use those of one person."
)
@click.option(
    "--metric",
    default="",
    metavar="NAME",
    help="Metric of the judge. [default: the first metric of the task]",
)
@click.option(
    "--level",
    type=float,
    default=0.95,
    metavar="SHARE",
    help="Confidence level of the interval. [default: 0.95]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    run: str,
    labels: Path | None,
    labeller: str,
    metric: str,
    level: float,
    as_json: bool,
    folders: tuple[str, ...],
) -> int:
    """Run the command; its help text is above."""
    from assay.core.errors import InvalidOption
    from assay.viewer.analysis.judge_calibration import calibrate_judge, collect_run_labels, read_labels
    from assay.viewer.comparison.sources import open_source

    if labels is not None and labeller:
        raise InvalidOption("the labels of a file have no names", where="--labeller")
    known = None if labels is None else read_labels(labels)
    source = open_source(run, folders)
    try:
        found = collect_run_labels(source, labeller) if known is None else known
        reports = calibrate_judge(source, found, metric, level)
    finally:
        source.close()
    if as_json:
        print_json([report.as_json() for report in reports])
    else:
        for report in reports:
            _print(report)
    return 0


def _print(report: JudgeCalibration) -> None:
    found = report.calibrated
    kappa = "" if report.kappa is None else f", kappa {report.kappa:.2f}"
    rows = [
        ("judge alone", f"{report.judge_mean:.4f}  over {found.judged} documents"),
        ("labels alone", f"{found.labels_alone:.4f} ± {found.labels_stderr:.4f}  over {found.labelled}"),
        (
            "combined",
            f"{found.value:.4f} ± {found.stderr:.4f}  [{found.interval.low:.4f}, {found.interval.high:.4f}],"
            f" equivalent to {found.worth:.0f} labels",
        ),
        ("agreement", f"{report.agreement:.2f}{kappa}; judge bias {report.bias:+.4f}"),
    ]
    if report.flip_rate is not None:
        rows.append(("flip rate", f"{report.flip_rate:.2f}  when the order of the answers is swapped"))
    click.secho(escape_control_characters(f"{report.task}, {report.metric}"), bold=True)
    for name, text in rows:
        click.secho(f"  {name:<13}", fg="cyan", nl=False)
        click.echo(text)
