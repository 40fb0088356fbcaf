"""`assay power`: calculate how many documents are needed to detect a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.cli.arguments import in_option, print_json, split_names
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.viewer.analysis.power import PowerOptions, PowerRow

__all__ = ["command"]

_HELP = """Calculate the smallest difference a benchmark can detect, and how many documents a difference needs.

Variances come from pilot runs: one run gives the variance of scores, two runs of different models the variance of their
difference; `repeats`, or three or more runs of one model, add the sampling variance. Without a run, assumes binary
scores with a mean of 0.5.

\b
Examples:
  assay power
  assay power base tuned
  assay power base tuned --effect 1.0
  assay power base --documents 500 --correlation 0.7
  assay power try1 try2 try3 --repeats 4
"""


@click.command("power", help=_HELP)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--effect", type=float, metavar="POINTS", help="Difference to detect, in points.")
@click.option("--documents", type=int, metavar="N", help="Number of documents. [default: as in the runs]")
@click.option("--repeats", type=int, default=1, metavar="K", help="Answers per document. [default: 1]")
@click.option(
    "--correlation",
    type=float,
    default=0.5,
    metavar="R",
    help="Correlation between the scores of two models. [default: 0.5]",
)
@click.option("--power", type=float, default=0.8, metavar="SHARE", help="Statistical power. [default: 0.8]")
@click.option(
    "--alpha",
    type=float,
    default=0.05,
    metavar="SHARE",
    help="Significance level (false positive rate). [default: 0.05]",
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option("--cluster_by", default="", metavar="FIELD", help="Cluster documents by this field.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    runs: tuple[str, ...],
    effect: float | None,
    documents: int | None,
    repeats: int,
    correlation: float,
    power: float,
    alpha: float,
    task_names: tuple[str, ...],
    cluster_by: str,
    as_json: bool,
    folders: tuple[str, ...],
) -> int:
    """Run the command; its help text is above."""
    from assay.viewer.analysis.power import PowerOptions, analyse_power
    from assay.viewer.comparison.sources import open_source

    options = PowerOptions(
        effect=effect,
        documents=documents,
        power=power,
        alpha=alpha,
        repeats=repeats,
        correlation=correlation,
        tasks=split_names(task_names),
        cluster_by=cluster_by,
    )
    sources = [open_source(word, folders) for word in runs]
    try:
        rows = analyse_power(sources, options)
    finally:
        for source in sources:
            source.close()
    if as_json:
        print_json([row.as_json() for row in rows])
    else:
        _print(rows, options)
    return 0


def _print(rows: list[PowerRow], options: PowerOptions) -> None:
    from rich.markup import escape

    from assay.cli.tables import echo_wrapped, print_table
    from assay.viewer.text_tables import Column, TextTable

    table = TextTable(
        columns=[
            Column(title="task", wrap=True),
            Column(title="metric", wrap=True),
            Column(title="documents", justify="right"),
            Column(title="detectable", justify="right"),
            *(
                Column(title=f"for {effect:g}", justify="right", fold=1, folded=f"for {effect:g}: {{}}")
                for effect, _ in rows[0].needed
            ),
            Column(title="from", wrap=True, fold=2, folded="from {}"),
        ]
    )
    for row in rows:
        how = (
            row.how
            if row.correlation is None or row.task == "any"
            else f"{row.how}, correlation {row.correlation:.2f}"
        )
        clusters = "" if row.design_effect == 1.0 else f", clusters ×{row.design_effect:.1f}"
        table.add_row(
            escape(escape_control_characters(row.task)),
            escape(escape_control_characters(row.metric)),
            f"{row.documents}",
            "none" if row.detectable is None else f"±{row.detectable:.2f}",
            *(f"{needed}" for _, needed in row.needed),
            f"{how}{clusters}",
        )
    print_table(table)
    tests = " or ".join(dict.fromkeys(row.test for row in rows))
    echo_wrapped(
        f"differences in points; paired test ({tests}), power {100 * options.power:g}%, significance level"
        f" {100 * options.alpha:g}%"
    )
    if any(row.detectable is None for row in rows):
        click.echo("none: so few documents cannot give a significant result")
