"""`assay same`: decide whether two runs or servers come from the same model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import find_run_folder, in_option, json_option, print_json
from assay.cli.options import OptionsCommand, add_run_options, collect_options
from assay.core.errors import InvalidOption
from assay.core.options.parsing import parse_arguments
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.core.options.run_spec import RunSpec
    from assay.engine.planning.records import Plan
    from assay.viewer.same_model.verdict import SameModelOptions, SameModelVerdict

__all__ = ["command"]

FIRST_ROUND_SIZE = 64
"""Documents of each task that both models answer before the first decision; every round doubles them."""

_REFUSED_OPTIONS = ("budget", "history", "subset", "stop_when")
"""Options of runs that select documents in another way than the rounds."""

_HELP = """Decide whether two runs or servers come from the same model: other servers, quantisations, engines, dates.

FIRST and SECOND are finished runs of the same tasks with the same options. Without them, `--model` and `--against` are
asked, in rounds of random documents, until there is a verdict. The verdict compares scores, texts, log probabilities,
tool calls and finish reasons document by document with a sequential test. `same` means that the mean discrepancy per
document is below `--delta` in each of them, and so is the difference of the mean scores; `different` that one is above.

Exit codes: 0 same, 3 different, 5 not enough evidence.

Sampled answers differ from themselves: use --repeats 2 in both runs, or pass a second run of each server with
--reference. The same runs show how much a server that batches requests differs from itself at temperature 0.

\b
Examples:
  assay same vllm-gsm8k-0a1b2c3d llamacpp-gsm8k-4e5f6a7b
  assay same monday tuesday --reference monday-again --reference tuesday-again
  assay same q8 q4 --delta 0.05 --json
  assay same --tasks gsm8k --limit 500 --model llamacpp --model_args pretrained=q8.gguf \\
      --against llamacpp --against_args pretrained=q4.gguf
"""


@click.command("same", cls=OptionsCommand, help=_HELP)
@click.argument("runs", nargs=-1, metavar="[FIRST SECOND]")
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="RUN",
    help="A second run of the first server: its own noise. Given twice: also one of the second server.",
)
@click.option(
    "--delta",
    type=float,
    default=0.02,
    metavar="SHARE",
    help="Largest mean discrepancy per document that counts as the same model. [default: 0.02]",
)
@click.option(
    "--alpha",
    type=float,
    default=0.05,
    metavar="SHARE",
    help="Largest probability of `different` for the same model. [default: 0.05]",
)
@click.option(
    "--beta",
    type=float,
    default=0.05,
    metavar="SHARE",
    help="Largest probability of `same` for different models. [default: 0.05]",
)
@click.option("--against", metavar="NAME", help="Without runs: the second model; `--model` is the first.")
@click.option(
    "--against_args", metavar="ARGS", help="Its model arguments. [default: those of `--model_args`]"
)
@json_option
@in_option
def command(
    runs: tuple[str, ...],
    references: tuple[str, ...],
    delta: float,
    alpha: float,
    beta: float,
    against: str | None,
    against_args: str | None,
    as_json: bool,
    folders: tuple[str, ...],
    config: Path | None,
    **values: Any,
) -> int:
    """Run the command; its help text is above."""
    from assay.viewer.same_model.verdict import SameModelOptions

    given = collect_options(values, config)
    tasks = tuple(given.get("tasks", ())) if runs else ()
    options = SameModelOptions(delta=delta, alpha=alpha, beta=beta, tasks=tasks)
    if len(runs) == 2 and against is None:
        if extra := sorted(given.keys() - {"tasks"}):
            raise InvalidOption(
                f"--{extra[0]} has no effect on finished runs", hint="leave it out, or pass --against"
            )
        verdict = _judge_runs(runs, references, folders, options)
    elif runs or against is None:
        raise InvalidOption(
            "two finished runs are required, or two models to ask",
            hint="assay same FIRST SECOND, or assay same --tasks T --model M1 --against M2",
        )
    else:
        verdict = _ask_both(given, against, against_args, options, references)
    if as_json:
        print_json(verdict.as_json())
    else:
        _print(verdict)
    return verdict.exit_code


add_run_options(command)


def _judge_runs(
    runs: tuple[str, ...], references: tuple[str, ...], folders: tuple[str, ...], options: SameModelOptions
) -> SameModelVerdict:
    from assay.store.runs.run import Run
    from assay.viewer.same_model.verdict import judge_same_model

    if len(references) > 2:
        raise InvalidOption(
            "there are more than two reference runs",
            where="--reference",
            hint="one of the first server, then one of the second",
        )
    opened = [Run(find_run_folder(word, folders)) for word in (*runs, *references)]
    try:
        return judge_same_model(opened[0], opened[1], options, *opened[2:])
    finally:
        for run in opened:
            run.close()


def _ask_both(
    given: Mapping[str, Any],
    against: str,
    against_args: str | None,
    options: SameModelOptions,
    references: tuple[str, ...],
) -> SameModelVerdict:
    """Ask both models about more and more random documents until there is a verdict or no document is left."""
    from dataclasses import replace

    from assay import api
    from assay.core.options.run_spec import RunSpec
    from assay.viewer.same_model.verdict import judge_same_model

    if references:
        raise InvalidOption(
            "a reference run belongs to two finished runs", where="--reference", hint="use --repeats 2"
        )
    for name in _REFUSED_OPTIONS:
        if given.get(name):
            raise InvalidOption(
                "`assay same` chooses the documents that it asks itself",
                where=f"--{name}",
                hint="leave it out, or pass two finished runs",
            )
    spec = RunSpec.of(given)
    arguments = spec.model_args if against_args is None else parse_arguments(against_args)
    specs = (spec, replace(spec, model=against, model_args=arguments))
    plan, _ = [api.plan(one) for one in specs]  # errors of both models are reported before the first request
    orders = _shuffle_documents(plan)
    size = FIRST_ROUND_SIZE
    while True:
        samples = {task: sorted(order[:size]) for task, order in orders.items()}
        runs = [api.run(_select(one, samples), progress=True) for one in specs]
        verdict = judge_same_model(runs[0], runs[1], replace(options, only_end=True))
        for run in runs:
            run.close()
        if verdict.result.decision != "undecided" or all(size >= len(order) for order in orders.values()):
            return verdict
        click.echo(f"no verdict after {verdict.documents} documents; asking more", err=True)
        size *= 2


def _select(spec: RunSpec, samples: Mapping[str, list[int]]) -> RunSpec:
    from dataclasses import replace

    return replace(spec, samples=dict(samples), limit=None, offset=0)


def _shuffle_documents(plan: Plan) -> dict[str, list[int]]:
    """Return the documents of each task in random order, the same for the same seed and for all prompts of a task."""
    from assay.tasks.variants.expansion import find_family

    orders = {}
    for planned in plan.tasks.values():
        name = find_family(planned.spec)
        order = list(planned.task.indices)
        Random(f"{plan.spec.seed[0]} {name} same").shuffle(order)
        orders[name] = order
    return orders


def _print(verdict: SameModelVerdict) -> None:
    from assay.cli.tables import echo_wrapped, get_terminal_width, print_table, wrap_line
    from assay.viewer.same_model.verdict_text import build_channel_table, format_evidence

    colour = {"same": "green", "different": "red", "undecided": "yellow"}[verdict.result.decision]
    sentence = escape_control_characters(f"{verdict.sentence}.")
    click.secho(wrap_line(sentence, get_terminal_width()), bold=True, fg=colour)
    first, second = (
        name if not model or model in name else f"{name} ({model})"
        for name, model in (
            (verdict.first, verdict.first_model),
            (verdict.second, verdict.second_model),
        )
    )
    echo_wrapped(escape_control_characters(f"first: {first}; second: {second}"))
    print_table(build_channel_table(verdict))
    for line in format_evidence(verdict):
        echo_wrapped(escape_control_characters(line))
    for note in verdict.notes:
        echo_wrapped(escape_control_characters(f"note: {note}"))
