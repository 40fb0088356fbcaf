"""`assay lint-benchmark`: find suspicious documents of a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.cli.arguments import in_option, print_json
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.viewer.analysis.benchmark_lint import LintFinding

__all__ = ["command"]

_HELP = """Find suspicious documents of a benchmark from several runs.

Reports documents that no run or every run answers correctly, targets that strong models contradict and documents that
weaker models answer better (both need four runs), duplicates, near-duplicates and contradictions, documents among their own few-shot
examples, constant targets and answers, and answer positions that are correct or chosen too often. With `--blind`, shows the score without images. Accepts the same runs as `assay compare`.

\b
Examples:
  assay lint-benchmark run1 run2 run3 run4
  assay lint-benchmark with-pictures --blind without-pictures
  assay lint-benchmark run1 run2 --json
"""
_MAX_SHOWN_DOCUMENTS = 8


@click.command("lint-benchmark", help=_HELP)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--blind", metavar="RUN", help="Run of the same tasks without images.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(runs: tuple[str, ...], blind: str | None, as_json: bool, folders: tuple[str, ...]) -> int:
    """Run the command; its help text is above."""
    from assay.viewer.analysis.benchmark_lint import lint_benchmark
    from assay.viewer.comparison.sources import open_source

    sources = [open_source(word, folders) for word in (*runs, *((blind,) if blind else ()))]
    try:
        found = lint_benchmark(sources[: len(runs)], sources[-1] if blind else None)
    finally:
        for source in sources:
            source.close()
    if as_json:
        print_json([one.as_json() for one in found])
        return 0
    _print(found, len(runs))
    return 0


def _print(found: list[LintFinding], runs: int) -> None:
    task = ""
    for one in found:
        if one.task != task:
            task = one.task
            click.secho(escape_control_characters(task), bold=True)
        click.secho(f"  {one.kind:<16}", fg="yellow", nl=False)
        click.echo(escape_control_characters(f"{one.count} of {one.total}: {one.what}"))
        if one.documents:
            more = ", …" if one.count > _MAX_SHOWN_DOCUMENTS else ""
            click.echo(
                f"                  documents {', '.join(map(str, one.documents[:_MAX_SHOWN_DOCUMENTS]))}{more}"
            )
    if not found:
        click.echo("no problems found")
    if runs == 1:
        click.echo("based on one run; more runs give more reliable findings", err=True)
