"""`assay compare`: is one better than the other, and how sure is that?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from assay.cli.runs import in_option
from assay.core.printable import printable

__all__ = ["command", "print_remarks", "print_table", "words_of"]

_HELP = """Compare runs document by document: is one better, and how sure is that?

The first run is what the others are held against; p-values allow for all tasks of all runs. A run is an id, the start of one, a path, `latest`; or results of
lm-eval or lmms-eval: a samples file, or the folder it is in. What both were asked is paired, so that only the
difference counts: exactly for right and wrong, by sign flips otherwise, with whole clusters where documents belong
together. Warns about everything else that differs between the runs. With --models all names are those of models, and
the newest finished run of each task speaks for each.

\b
Examples:
  assay compare base tuned
  assay compare base tuned another --tasks gsm8k --show_flips
  assay compare base tuned --by subject --plot forest.svg
  assay compare results/base results/tuned --metric acc_norm --json
  assay compare --models qwen3-4b qwen3-8b llama3-8b --tasks gsm8k,mmlu
"""
_SHOWN_FLIPS = 10


@click.command("compare", help=_HELP)
@click.argument("runs", nargs=-1, metavar="FIRST SECOND...")
@click.option(
    "--models",
    multiple=True,
    metavar="NAMES",
    help="Compare the newest runs of these models (`assay runs --json` has their names).",
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAMES", help="These metrics instead of each task's first."
)
@click.option(
    "--cluster_by", default="", metavar="FIELD", help="Documents alike in this field belong together."
)
@click.option("--by", "category", default="", metavar="FIELD", help="Also within each value of this field.")
@click.option(
    "--correction",
    default="holm",
    metavar="NAME",
    help="Allow for many tasks: holm, bh or none. [default: holm]",
)
@click.option("--level", type=float, default=0.95, metavar="SHARE", help="Of the intervals. [default: 0.95]")
@click.option("--show_flips", is_flag=True, help="List the documents on which the runs disagree.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the differences: .svg or .png."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    runs: tuple[str, ...],
    models: tuple[str, ...],
    task_names: tuple[str, ...],
    metrics: tuple[str, ...],
    cluster_by: str,
    category: str,
    correction: str,
    level: float,
    show_flips: bool,
    plot: Path | None,
    as_json: bool,
    folders: tuple[str, ...],
) -> int:
    """The command; its help text is above."""
    from assay.core.errors import BadOption
    from assay.viewer.comparison.comparing import compare_sources
    from assay.viewer.comparison.records import CompareOptions
    from assay.viewer.comparison.settling import settled
    from assay.viewer.comparison.sources import MODEL, open_source

    if models:
        runs = tuple(f"{MODEL}{name}" for name in [*words_of(models), *words_of(runs)])
    if len(runs) < 2:
        raise BadOption("it takes two runs to compare", hint="`assay runs` shows all")
    options = CompareOptions(
        tasks=words_of(task_names),
        metrics=words_of(metrics),
        cluster_by=cluster_by,
        category=category,
        correction=correction,
        level=level,
        flips=show_flips,
    )
    sources = [open_source(word, folders) for word in runs]
    try:
        found = settled([compare_sources(sources[0], other, options) for other in sources[1:]])
        if as_json:
            click.echo(json.dumps([one.as_json() for one in found], ensure_ascii=False, indent=2))
        for comparison, other in zip(found, sources[1:], strict=True):
            if not as_json:
                _print(comparison, show_flips=show_flips, sources=(sources[0], other))
            if plot is not None:
                _draw(comparison, plot, several=len(found) > 1)
    finally:
        for source in sources:
            source.close()
    return 0


def words_of(values: tuple[str, ...]) -> list[str]:
    """Names given several times or with commas."""
    return [name for value in values for name in value.split(",") if name]


def _draw(comparison: Any, path: Path, *, several: bool) -> None:
    from assay.viewer.comparison.forest import write_picture

    if several:
        path = path.with_stem(f"{path.stem}-{Path(comparison.second).name}")
    write_picture(comparison, path)
    click.echo(printable(f"written {path}"), err=True)


def _print(comparison: Any, *, show_flips: bool, sources: tuple[Any, Any]) -> None:
    from assay.viewer.comparison.models import ModelSheets

    first = _named(comparison.first, comparison.first_model)
    click.secho(printable(f"{_named(comparison.second, comparison.second_model)} against {first}"), bold=True)
    rows = [*comparison.rows, *([comparison.overall] if comparison.overall else [])]
    print_table(comparison, rows)
    if comparison.categories:
        print_table(comparison, comparison.categories)
    print_remarks(comparison)
    for source in sources:
        if isinstance(source, ModelSheets):
            used = dict.fromkeys(source.runs[row.task] for row in comparison.rows)
            click.echo(printable(f"{source.name}: {', '.join(used)}"))
    if show_flips:
        _print_flips(comparison, sources)
    click.echo("")


def _named(run: str, model: str) -> str:
    return run if not model or model in run else f"{run} ({model})"


def print_table(comparison: Any, rows: Any) -> None:
    """A table as wide as the terminal, or whole where there is none."""
    from rich.console import Console

    from assay.viewer.comparison.showing import comparison_table
    from assay.viewer.run_tables import table_text

    console = Console()
    if console.is_terminal:
        console.print(comparison_table(comparison, rows, width=console.width))
    else:
        click.echo(table_text(comparison_table(comparison, rows)))


def print_remarks(comparison: Any) -> None:
    """Warnings and notes, each on its line."""
    from assay.viewer.comparison.showing import remarks

    for kind, text in remarks(comparison):
        click.secho(
            f"{kind}: ", fg="yellow" if kind == "warning" else "cyan", bold=kind == "warning", nl=False
        )
        click.echo(text)


def _print_flips(comparison: Any, sources: tuple[Any, Any]) -> None:
    """Documents on which the runs disagree, the first few of each task with what was said."""
    for row in comparison.rows:
        if not row.flips:
            continue
        better = [flip for flip in row.flips if (flip.second > flip.first) == row.higher_is_better]
        click.echo("")
        click.secho(
            printable(
                f"{row.task}: flipped documents: {len(row.flips)}, {len(better)} of them for the better"
            ),
            bold=True,
        )
        shown = row.flips[:_SHOWN_FLIPS]
        before = sources[0].looks(row.task, [flip.document for flip in shown])
        after = sources[1].looks(row.task, [flip.other for flip in shown])
        for flip in shown:
            click.echo(f"  document {flip.document}: {flip.first:g} → {flip.second:g}")
            for look in (before.get(flip.document), after.get(flip.other)):
                if look is not None:
                    said = look.answers.get(row.pipeline) or " | ".join(look.responses)
                    click.echo(printable(f"    {_short(said)!r}  (target {_short(look.target)!r})"))
        if len(row.flips) > _SHOWN_FLIPS:
            click.echo(f"  … and {len(row.flips) - _SHOWN_FLIPS} more: --json has all")


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
