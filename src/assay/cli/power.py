"""`assay power`: how many documents does it take?"""

from __future__ import annotations

import json
from typing import Any

import click

from assay.cli.compare import words_of
from assay.cli.runs import in_option
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Say how small a difference a benchmark can show, and how many documents a difference takes.

From pilot runs: one tells how scores vary, two of different models how their difference does; where a task has `repeats`,
or with three or more runs of one model, also what sampling adds. Without a run: right-or-wrong scores, half of them right.

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
@click.option("--effect", type=float, metavar="POINTS", help="A difference to be found.")
@click.option(
    "--documents", type=int, metavar="N", help="Documents there will be. [default: those of the runs]"
)
@click.option("--repeats", type=int, default=1, metavar="K", help="Answers to each document. [default: 1]")
@click.option(
    "--correlation", type=float, default=0.5, metavar="R", help="Of two models' scores. [default: 0.5]"
)
@click.option(
    "--power", type=float, default=0.8, metavar="SHARE", help="Chance of finding it. [default: 0.8]"
)
@click.option(
    "--alpha", type=float, default=0.05, metavar="SHARE", help="Chance of a false alarm. [default: 0.05]"
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option(
    "--cluster_by", default="", metavar="FIELD", help="Documents alike in this field belong together."
)
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
    """The command; its help text is above."""
    from assay.viewer.comparison.planning import PowerOptions, plan_power
    from assay.viewer.comparison.sources import open_source

    options = PowerOptions(
        effect=effect,
        documents=documents,
        power=power,
        alpha=alpha,
        repeats=repeats,
        correlation=correlation,
        tasks=words_of(task_names),
        cluster_by=cluster_by,
    )
    sources = [open_source(word, folders) for word in runs]
    try:
        rows = plan_power(sources, options)
    finally:
        for source in sources:
            source.close()
    if as_json:
        click.echo(json.dumps([row.as_json() for row in rows], ensure_ascii=False, indent=2))
    else:
        _print(rows, options)
    return 0


def _print(rows: list[Any], options: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from assay.viewer.run_tables import table_text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for title in ("task", "metric"):
        table.add_column(title, overflow="fold")
    for title in ("documents", "detectable", *(f"for {effect:g}" for effect, _ in rows[0].needed)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("from", overflow="fold")
    for row in rows:
        how = (
            row.how
            if row.correlation is None or row.task == "any"
            else f"{row.how}, correlation {row.correlation:.2f}"
        )
        clusters = "" if row.design_effect == 1.0 else f", clusters ×{row.design_effect:.1f}"
        table.add_row(
            escape(printable(row.task)),
            escape(printable(row.metric)),
            f"{row.documents}",
            f"±{row.detectable:.2f}",
            *(f"{needed}" for _, needed in row.needed),
            f"{how}{clusters}",
        )
    console = Console()
    if console.is_terminal:
        console.print(table)
    else:
        click.echo(table_text(table))
    click.echo(
        f"points; found {100 * options.power:g} times in 100, false alarms {100 * options.alpha:g} in 100, paired"
    )
