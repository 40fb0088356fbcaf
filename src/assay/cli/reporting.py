"""What a command says about a run: that it starts, how it ended, what failed."""

from __future__ import annotations

import json
import logging
import shlex
from typing import Any

import click

from assay.core.endings import ENDINGS
from assay.core.errors import BadOption
from assay.core.printable import printable
from assay.core.runspec import RunSpec
from assay.core.secrets import redacted

__all__ = ["announce", "command_line", "report", "start_logging"]

_REASONS = 3
"""Reasons shown for each task."""


def start_logging(verbosity: str) -> None:
    """Log to standard error from this level on."""
    level = logging.getLevelName(verbosity.upper())
    if not isinstance(level, int):
        raise BadOption(
            f"`{verbosity}` is not a log level", where="--verbosity", hint="DEBUG, INFO, WARNING or ERROR"
        )
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutKeys("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class _WithoutKeys(logging.Formatter):
    """Libraries log what servers say, and some servers echo the key they were sent."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def command_line() -> tuple[str, ...]:
    """The command as it was typed, for the manifest; secrets are taken out when it is written down."""
    given = click.get_current_context().obj
    return ("assay", *given) if isinstance(given, (list, tuple)) else ()


def announce(plan: Any) -> None:
    """Say what is about to happen: a start, a continuation, or nothing."""
    from assay.engine.planning.journal_setup import finished_run

    tasks, documents = len(plan.tasks), plan.documents
    verb = "continuing" if (plan.folder / "journal.sqlite").exists() and not plan.spec.refresh else "running"
    if finished_run(plan) is not None:
        verb = "already finished:"
    click.echo(
        f"{verb} {plan.model.name} on {tasks} task{'s' if tasks != 1 else ''}, "
        f"{documents} document{'s' if documents != 1 else ''}  ({plan.folder})",
        err=True,
    )
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    if plan.programs.isolation is not None:
        click.echo(f"programs run in the sandbox {plan.programs.isolation}", err=True)


def check_failures(run: Any, allowed: float) -> None:
    """A number drawn from too few answers must not look like success to a script."""
    from assay.core.errors import TooManyFailures

    failed, asked = run.failed_requests()
    if failed > allowed * asked:
        raise TooManyFailures(
            f"{failed} of {asked} requests failed, more than the {100 * allowed:g}% that --max_failures allows",
            where=str(run.folder),
            hint="repeat the command to ask them again",
        )
    for task in run.tasks:
        counts = run.outcomes(task)
        scored = [estimate.scored for estimate in run.estimates if estimate.task == task]
        if scored and not any(scored) and set(counts) - {"skipped"}:
            ended = ", ".join(f"{counts[ending]} {ending}" for ending in ENDINGS if ending in counts)
            raise TooManyFailures(
                f"no document of `{task}` has a score: {ended}",
                where=str(run.folder),
                hint="the first reason is above",
            )


def report(run: Any, *, as_json: bool, max_failures: float | None = None) -> None:
    """Print a run's results, and fail when too many of its requests did (by default: more than it was told then)."""
    if as_json:
        from assay.viewer.lm_eval_files import results_document

        click.echo(json.dumps(results_document(run), ensure_ascii=False, indent=2, default=str))
    else:
        print_run(run)
    told = run.facts["spec"].get("max_failures", 0.01)
    check_failures(run, told if max_failures is None else max_failures)


def print_run(run: Any) -> None:
    """The table, where everything is, and why documents have no score."""
    from rich.console import Console

    from assay.viewer.tables import remarks, results_table

    console = Console()
    if not console.is_terminal:
        click.echo(run.table())
    else:
        console.print(results_table(run, width=console.width))
        for line in remarks(run):
            click.echo(line)
    click.echo(f"stored in {run.folder}")
    for file in run.files[:1]:
        click.echo(f"results   {file}")
    _print_reasons(run)
    click.echo(
        f"next: `{_show_command(run.facts['spec'])}` shows what was asked; `assay ls tasks` what else there is"
    )


def _print_reasons(run: Any) -> None:
    """How documents ended that were not scored, and why: a few reasons of each task, with the first document of each."""
    from assay.viewer.reasons import reason
    from assay.viewer.tables import accounts

    for line in accounts(run):
        click.echo(printable(line))
    for task in run.tasks:
        query = (
            "SELECT min(document), count(*), outcome, why FROM outcomes WHERE task = ? AND why != ''"
            " GROUP BY outcome, why ORDER BY min(document)"
        )
        rows = list(run.journal.query(f"{query} LIMIT {_REASONS + 1}", (task,)))
        for document, count, outcome, why in rows[:_REASONS]:
            more = f" and {count - 1} more" if count > 1 else ""
            click.echo(printable(f"{outcome}: {task}, document {document}{more}: {reason(why)}"))
        if len(rows) > _REASONS:
            click.echo(
                f"more reasons: `assay export {shlex.quote(str(run.folder))} --format jsonl` has all, whole"
            )
    for estimate in run.estimates:
        if estimate.why and estimate.scored:
            click.echo(printable(f"no value: {estimate.task}, {estimate.metric}: {reason(estimate.why)}"))


def _show_command(spec: Any) -> str:
    """The command that shows the prompts of this very run."""
    words = ["assay", "show", *spec["tasks"]]
    if spec["model"] != RunSpec().model:
        words += ["--model", spec["model"]]
    arguments = spec.get("model_args") or {}
    if arguments and "***" not in map(str, arguments.values()):
        words += ["--model_args", json.dumps(arguments)]
    for folder in spec["include_path"]:
        words += ["--include_path", folder]
    for name in ("data_root", "num_fewshot", "system_instruction"):
        if spec[name] is not None:
            words += [f"--{name}", str(spec[name])]
    for name in ("apply_chat_template", "mc_as_generation"):
        if spec.get(name):
            words.append(f"--{name}")
    return shlex.join(words)
