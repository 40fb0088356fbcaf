"""`assay run`: parse, call, print. Data to standard output, talk to standard error."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path
from typing import Any

import click

from assay.cli.options import OptionsCommand, add_run_options, spec_from
from assay.core.printable import printable

__all__ = ["command"]

_WIDE = 115
"""Columns of a terminal that hold the whole table."""

_HELP = """Evaluate a model on tasks.

Without arguments: the embedded model on the embedded tasks. Re-issuing a command continues its run: nothing that
was answered is asked again, and a finished run is shown at once.

\b
Examples:
  assay run
  assay run --tasks quickstart_addition,quickstart_facts --limit 20
  assay run my_task.yaml --output_path results --log_samples
  assay run --config run.yaml --json
"""


@click.command("run", cls=OptionsCommand, help=_HELP)
@click.argument("task_names", nargs=-1, metavar="[TASKS]...")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on standard output.")
@click.option("-v", "--verbosity", default="WARNING", metavar="LEVEL", help="How much to log: DEBUG … ERROR.")
def command(
    task_names: tuple[str, ...], as_json: bool, verbosity: str, config: Path | None, **values: Any
) -> None:
    """The command; its help text is above."""
    from assay.core.errors import BadOption

    level = logging.getLevelName(verbosity.upper())
    if not isinstance(level, int):
        raise BadOption(
            f"`{verbosity}` is not a log level", where="--verbosity", hint="DEBUG, INFO, WARNING or ERROR"
        )
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    if task_names:
        given = [name for word in task_names for name in word.split(",") if name]
        values["tasks"] = (*(values.get("tasks") or ()), given)
    spec = spec_from(values, config)

    from assay import api
    from assay.viewer.lm_eval_files import results_document

    run = api.run(spec, progress=True, on_plan=_announce)
    if as_json:
        click.echo(json.dumps(results_document(run), ensure_ascii=False, indent=2, default=str))
    else:
        _print_run(run)
    _check_failures(run, spec.max_failures)


add_run_options(command)


def _announce(plan: Any) -> None:
    tasks, documents = len(plan.tasks), plan.documents
    known = (plan.folder / "journal.sqlite").exists()
    click.echo(
        f"{'continuing' if known else 'running'} {plan.model.name} on {tasks} task{'s' if tasks != 1 else ''}, "
        f"{documents} document{'s' if documents != 1 else ''}  ({plan.folder})",
        err=True,
    )
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    if plan.programs.isolation is not None:
        click.echo(f"programs run in the sandbox {plan.programs.isolation}", err=True)


def _check_failures(run: Any, allowed: float) -> None:
    """A number drawn from too few answers must not look like success to a script."""
    from assay.core.errors import TooManyFailures

    failed, asked = run.failed_requests()
    if failed > allowed * asked:
        raise TooManyFailures(
            f"{failed} of {asked} requests failed, more than the {100 * allowed:g}% that --max_failures allows",
            where=str(run.folder),
            hint="repeat the command to ask them again",
        )


def _print_run(run: Any) -> None:
    from rich.console import Console

    from assay.viewer.tables import judges_text, results_table

    console = Console()
    if not console.is_terminal:
        click.echo(run.table())
    else:
        console.print(results_table(run, narrow=console.width < _WIDE))
        for line in judges_text(run):
            click.echo(line)
    click.echo(f"stored in {run.folder}")
    for file in run.files[:1]:
        click.echo(f"results   {file}")
    _print_reasons(run)
    click.echo(
        f"next: `{_show_command(run.facts['spec'])}` shows what was asked; `assay ls tasks` what else there is"
    )


def _print_reasons(run: Any) -> None:
    """How documents ended that were not scored, and why: the first of each task, with its number."""
    from assay.viewer.tables import accounts

    for line in accounts(run):
        click.echo(printable(line))
    for task in run.tasks:
        query = "SELECT document, outcome, why FROM outcomes WHERE task = ? AND why != ''"
        for document, outcome, why in list(run.journal.query(f"{query} ORDER BY document LIMIT 1", (task,))):
            reason = why.strip().splitlines()[-1] if why.strip() else "no reason given"
            click.echo(printable(f"{outcome}: {task}, document {document}: {reason}"))
    for estimate in run.estimates:
        if estimate.why and estimate.scored:
            click.echo(
                printable(
                    f"no value: {estimate.task}, {estimate.metric}: {estimate.why.strip().splitlines()[-1]}"
                )
            )


def _show_command(spec: Any) -> str:
    """The command that shows the prompts of this very run."""
    words = ["assay", "show", *spec["tasks"]]
    for folder in spec["include_path"]:
        words += ["--include_path", folder]
    for name in ("data_root", "num_fewshot", "system_instruction"):
        if spec[name] is not None:
            words += [f"--{name}", str(spec[name])]
    if spec["apply_chat_template"]:
        words.append("--apply_chat_template")
    return shlex.join(words)
