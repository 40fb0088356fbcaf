"""`assay compare`: compare runs document by document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli.arguments import in_option, print_json, split_names
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.store.documents.score_tables import ScoreTableSource
    from assay.viewer.comparison.records import Comparison, ComparisonRow

__all__ = ["command", "print_remarks", "print_table"]

_HELP = """Compare runs document by document, with p-values and confidence intervals.

The first run is the baseline. A run is a run id, the start of one, a path, `latest`, or results of lm-eval or lmms-eval
(a samples file or its folder). Documents that both runs answered are paired: binary scores use an exact test, other
scores a sign-flip permutation test, clustered documents are permuted by cluster. P-values are corrected over all tasks
of all runs. Other differences between the runs are reported as warnings; no run is called better if prompts, judges,
metric definitions, or dtype, revision or quantisation of the same model differ (--allow_mismatch). With --models, all names are model names, and
the newest finished run of each task represents the model.

\b
Examples:
  assay compare base tuned
  assay compare base tuned another --tasks gsm8k --show_flips
  assay compare base tuned --by subject --plot forest.svg
  assay compare base tuned --labels
  assay compare results/base results/tuned --metric acc_norm --json
  assay compare --models qwen3-4b qwen3-8b llama3-8b --tasks gsm8k,mmlu
"""
_MAX_SHOWN_FLIPS = 10


@click.command("compare", help=_HELP)
@click.argument("runs", nargs=-1, metavar="FIRST SECOND...")
@click.option(
    "--models",
    multiple=True,
    metavar="NAMES",
    help="Compare the newest runs of these models (`assay runs --json` lists model names).",
)
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAMES",
    help="Metrics to compare. [default: the first metric of each task]",
)
@click.option("--cluster_by", default="", metavar="FIELD", help="Cluster documents by this field.")
@click.option(
    "--by", "category", default="", metavar="FIELD", help="Also compare within each value of this field."
)
@click.option(
    "--correction",
    default="holm",
    metavar="NAME",
    help="Correction for multiple comparisons: holm, bh or none. [default: holm]",
)
@click.option(
    "--level",
    type=float,
    default=0.95,
    metavar="SHARE",
    help="Confidence level of the intervals. [default: 0.95]",
)
@click.option(
    "--allow_mismatch",
    multiple=True,
    metavar="KINDS",
    help="Call a run better despite these differences: prompts, judge, scoring, identity, pairing, or all.",
)
@click.option(
    "--labels",
    "by_labels",
    is_flag=True,
    help="Compare the human labels of the documents instead of their scores.",
)
@click.option("--show_flips", is_flag=True, help="List the documents whose scores differ.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a forest plot of the differences: .svg or .png.",
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
    allow_mismatch: tuple[str, ...],
    by_labels: bool,
    show_flips: bool,
    plot: Path | None,
    as_json: bool,
    folders: tuple[str, ...],
) -> int:
    """Run the command; its help text is above."""
    from assay.core.errors import InvalidOption
    from assay.engine.imports.run_cache import replace_results_by_run
    from assay.viewer.comparison.conclusion import state_conclusion
    from assay.viewer.comparison.label_scores import LabelScoreTables
    from assay.viewer.comparison.multiplicity import adjust_comparisons
    from assay.viewer.comparison.records import CompareOptions
    from assay.viewer.comparison.run_comparison import compare_sources
    from assay.viewer.comparison.sources import MODEL_PREFIX, open_source

    if models:
        runs = tuple(f"{MODEL_PREFIX}{name}" for name in [*split_names(models), *split_names(runs)])
    if len(runs) < 2:
        raise InvalidOption("two or more runs are required", hint="`assay runs` lists stored runs")
    options = CompareOptions(
        tasks=split_names(task_names),
        metrics=split_names(metrics),
        cluster_by=cluster_by,
        category=category,
        correction=correction,
        level=level,
        flips=show_flips,
        allow=split_names(allow_mismatch),
    )
    if by_labels and metrics:
        raise InvalidOption("labels have no metric", where="--metric", hint="leave out --metric or --labels")
    sources: list[ScoreTableSource] = [open_source(replace_results_by_run(word), folders) for word in runs]
    try:
        if by_labels:
            sources = [LabelScoreTables(source) for source in sources]
        found = adjust_comparisons([compare_sources(sources[0], other, options) for other in sources[1:]])
        if as_json:
            print_json([{"conclusion": state_conclusion(one), **one.as_json()} for one in found])
        for comparison, other in zip(found, sources[1:], strict=True):
            if not as_json:
                _print(comparison, show_flips=show_flips, sources=(sources[0], other))
            if plot is not None:
                _write_plot(comparison, plot, several=len(found) > 1)
    finally:
        for source in sources:
            source.close()
    return 0


def _write_plot(comparison: Comparison, path: Path, *, several: bool) -> None:
    from assay.viewer.comparison.forest_plot import write_forest_plot

    if several:
        path = path.with_stem(f"{path.stem}-{Path(comparison.second).name}")
    write_forest_plot(comparison, path)
    click.echo(escape_control_characters(f"written {path}"), err=True)


def _print(
    comparison: Comparison, *, show_flips: bool, sources: tuple[ScoreTableSource, ScoreTableSource]
) -> None:
    from assay.cli.tables import get_terminal_width, wrap_line
    from assay.viewer.comparison.conclusion import state_conclusion
    from assay.viewer.comparison.groups import order_rows
    from assay.viewer.comparison.model_scores import ModelScoreTables

    width = get_terminal_width()
    click.secho(wrap_line(f"{state_conclusion(comparison)}.", width), bold=True)
    first = _format_run(comparison.first, comparison.first_model)
    second = _format_run(comparison.second, comparison.second_model)
    click.echo(escape_control_characters(f"first: {first}; second: {second}"))
    ordered = [row for _, row in order_rows(comparison)]
    rows = [*ordered, *([comparison.overall] if comparison.overall else [])]
    print_table(comparison, rows)
    if comparison.categories:
        print_table(comparison, comparison.categories)
    print_remarks(comparison)
    for source in sources:
        if isinstance(source, ModelScoreTables):
            used = dict.fromkeys(source.runs[row.task] for row in comparison.rows)
            click.echo(escape_control_characters(f"{source.name}: {', '.join(used)}"))
    if show_flips:
        _print_flips(comparison, sources)
    click.echo("")


def _format_run(run: str, model: str) -> str:
    return run if not model or model in run else f"{run} ({model})"


def print_table(comparison: Comparison, rows: Sequence[ComparisonRow]) -> None:
    """Print a table, as wide as the terminal or uncut if standard output is not a terminal."""
    from assay.cli.tables import print_table
    from assay.viewer.comparison.comparison_table import build_comparison_table

    print_table(build_comparison_table(comparison, rows))


def print_remarks(comparison: Comparison) -> None:
    """Print warnings and notes, one per line."""
    from assay.cli.tables import get_terminal_width, wrap_line
    from assay.viewer.comparison.comparison_table import collect_remarks

    for kind, text in collect_remarks(comparison):
        line = wrap_line(f"{kind}: {text}", get_terminal_width())
        colour = "yellow" if kind == "warning" else "cyan"
        click.secho(line[: len(kind) + 2], fg=colour, bold=kind == "warning", nl=False)
        click.echo(line[len(kind) + 2 :])


def _print_flips(comparison: Comparison, sources: tuple[ScoreTableSource, ScoreTableSource]) -> None:
    """Print the documents whose scores differ, the first few of each task with their answers."""
    for row in comparison.rows:
        if not row.flips:
            continue
        better = [flip for flip in row.flips if (flip.second > flip.first) == row.higher_is_better]
        click.echo("")
        click.secho(
            escape_control_characters(
                f"{row.task}: {len(row.flips)} changed documents, {len(better)} of them improved"
            ),
            bold=True,
        )
        shown = row.flips[:_MAX_SHOWN_FLIPS]
        before = sources[0].read_excerpts(row.task, [flip.document for flip in shown])
        after = sources[1].read_excerpts(row.task, [flip.other for flip in shown])
        for flip in shown:
            click.echo(f"  document {flip.document}: {flip.first:g} → {flip.second:g}")
            for look in (before.get(flip.document), after.get(flip.other)):
                if look is not None:
                    answer = look.answers.get(row.pipeline) or " | ".join(look.responses)
                    click.echo(
                        escape_control_characters(
                            f"    {_shorten(answer)!r}  (target {_shorten(look.target)!r})"
                        )
                    )
        if len(row.flips) > _MAX_SHOWN_FLIPS:
            click.echo(f"  … and {len(row.flips) - _MAX_SHOWN_FLIPS} more; --json lists all")


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
