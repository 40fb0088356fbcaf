"""`assay lint-benchmark`: what is wrong with the documents rather than with the models?"""

from __future__ import annotations

import json
from typing import Any

import click

from assay.cli.runs import in_option
from assay.core.printable import printable

__all__ = ["command"]

_HELP = """Say what looks wrong with a benchmark, from several runs of it.

Documents nobody or everybody gets right, documents on which worse models do better (from four runs on), duplicates,
questions among their own few-shot examples, places that are right or chosen too often; and with `--blind`, what is
left of the score without the pictures. Runs as in `assay compare`.

\b
Examples:
  assay lint-benchmark run1 run2 run3 run4
  assay lint-benchmark with-pictures --blind without-pictures
  assay lint-benchmark run1 run2 --json
"""
_SHOWN = 8


@click.command("lint-benchmark", help=_HELP)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--blind", metavar="RUN", help="The same tasks asked without the pictures.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(runs: tuple[str, ...], blind: str | None, as_json: bool, folders: tuple[str, ...]) -> int:
    """The command; its help text is above."""
    from assay.viewer.comparison.linting import lint_benchmark
    from assay.viewer.comparison.sources import open_source

    sources = [open_source(word, folders) for word in (*runs, *((blind,) if blind else ()))]
    try:
        found = lint_benchmark(sources[: len(runs)], sources[-1] if blind else None)
    finally:
        for source in sources:
            source.close()
    if as_json:
        click.echo(json.dumps([one.as_json() for one in found], ensure_ascii=False, indent=2))
        return 0
    _print(found, len(runs))
    return 0


def _print(found: list[Any], runs: int) -> None:
    task = ""
    for one in found:
        if one.task != task:
            task = one.task
            click.secho(printable(task), bold=True)
        click.secho(f"  {one.kind:<11}", fg="yellow", nl=False)
        click.echo(printable(f"{one.count} of {one.total}: {one.what}"))
        if one.documents:
            more = ", …" if one.count > _SHOWN else ""
            click.echo(f"             documents {', '.join(map(str, one.documents[:_SHOWN]))}{more}")
    if not found:
        click.echo("nothing looks wrong")
    if runs == 1:
        click.echo("from one run only; several tell more about single documents", err=True)
