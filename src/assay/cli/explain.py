"""`assay explain`: explain why two runs of the same benchmark have different scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.cli.arguments import in_option, print_json, split_names
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.viewer.analysis.explanation import Explanation

__all__ = ["command"]

_HELP = """Explain why two runs of the same benchmark have different scores.

Assigns each document whose score differs to one cause: the difference that is closest to the score. Causes are
documents, extraction, judge, changed metric, truncated answers, chat template, few-shot examples or their seed, prompt,
generation settings, tokens, quantisation, dtype, revision, backend, or the model itself. The contributions of the causes add up to the gap. Accepts the same runs as `assay compare`.

\b
Examples:
  assay explain mine published-samples/
  assay explain hf-run vllm-run --tasks gsm8k --examples 5
  assay explain a b --json
"""
_BAR_WIDTH = 30


@click.command("explain", help=_HELP)
@click.argument("first")
@click.argument("second")
@click.option("--tasks", "task_names", multiple=True, metavar="NAMES", help="Only these tasks.")
@click.option(
    "--metric", default="", metavar="NAME", help="Metric to explain. [default: the first metric of each task]"
)
@click.option(
    "--examples", type=int, default=2, metavar="N", help="Number of documents to show per cause. [default: 2]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_option
def command(
    first: str,
    second: str,
    task_names: tuple[str, ...],
    metric: str,
    examples: int,
    as_json: bool,
    folders: tuple[str, ...],
) -> int:
    """Run the command; its help text is above."""
    from assay.engine.imports.run_cache import replace_results_by_run
    from assay.viewer.analysis.explanation import explain_difference
    from assay.viewer.comparison.sources import open_source

    sources = [open_source(replace_results_by_run(word), folders) for word in (first, second)]
    try:
        found = explain_difference(sources[0], sources[1], split_names(task_names), metric, examples)
        names = [source.name for source in sources]
    finally:
        for source in sources:
            source.close()
    if as_json:
        print_json([one.as_json() for one in found])
        return 0
    click.secho(escape_control_characters(f"{names[1]} against {names[0]}"), bold=True)
    for one in found:
        _print(one)
    return 0


def _print(explanation: Explanation) -> None:
    from assay.viewer.analysis.explanation import CAUSES

    click.echo("")
    click.secho(escape_control_characters(f"{explanation.task}, {explanation.metric}"), bold=True, nl=False)
    gap = f"{explanation.first:.4f} → {explanation.second:.4f}, a gap of {100 * explanation.gap:+.2f} points"
    click.echo(f": {gap} over {explanation.documents} documents")
    widest = max((abs(cause.gap) for cause in explanation.causes), default=0.0) or 1.0
    for cause in sorted(explanation.causes, key=lambda cause: -abs(cause.gap)):
        bar = ("█" if cause.gap >= 0 else "▒") * max(1, round(_BAR_WIDTH * abs(cause.gap) / widest))
        meaning = CAUSES[cause.name]
        if cause.name == "model" and explanation.same_model:
            meaning = "same model and same request, different answer: sampling, batching or backend"
        click.secho(f"  {cause.name:<14}", fg="cyan", nl=False)
        counted = f"{cause.documents} document{'' if cause.documents == 1 else 's'}"
        click.echo(f"{100 * cause.gap:+8.2f}  {counted:<16} {bar}")
        click.secho(f"  {'':<14}{meaning}", dim=True)
        if cause.detail:
            click.echo(escape_control_characters(f"  {'':<14}{cause.detail}"))
        for example in cause.examples:
            click.echo(f"    document {example.document}: {example.first_score:g} → {example.second_score:g}")
            for text in (example.first, example.second):
                click.echo(escape_control_characters(f"      {text!r}"))
    if not explanation.causes:
        click.echo("  every document has the same score in both runs")
    for one in explanation.mismatches:
        share = "" if one.count is None else f" ({one.count} of {one.total} documents)"
        click.secho("  differs: ", fg="yellow", nl=False)
        click.echo(escape_control_characters(f"{one.kind}: {one.what}{share}"))
