"""Output of commands that execute a run: the start line, results, failures, next steps."""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import print_json
from assay.core.errors import InvalidOption
from assay.core.home import assay_home
from assay.core.options.run_spec import RunSpec
from assay.core.records.endings import ENDINGS
from assay.core.secrets import redact
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.api import Run
    from assay.core.records.verdicts import Estimate
    from assay.engine.planning.records import Plan

__all__ = ["announce_run", "get_command_line", "report_run", "set_results_printer", "start_logging"]

_MAX_REASONS = 3
"""Maximum number of reasons shown per task."""

_LOW_SCORE = 0.5
"""Below this score, the next step is to look at wrong answers."""

_MIN_ENDING_SHARE = 0.01
"""An ending that is rarer among the documents is not offered as a next step."""


def start_logging(verbosity: str) -> None:
    """Log messages of this level and above to standard error."""
    level = logging.getLevelName(verbosity.upper())
    if not isinstance(level, int):
        raise InvalidOption(
            f"invalid log level `{verbosity}`", where="--verbosity", hint="DEBUG, INFO, WARNING or ERROR"
        )
    handler = logging.StreamHandler()
    handler.setFormatter(_RedactingFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class _RedactingFormatter(logging.Formatter):
    """Redacts secrets: libraries log server messages, and some servers echo the API key."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def get_command_line() -> tuple[str, ...]:
    """Return the command line for the manifest, which redacts secrets."""
    given = click.get_current_context().obj
    return ("assay", *given) if isinstance(given, (list, tuple)) else ()


def announce_run(plan: Plan) -> None:
    """Print whether a run starts, continues, or is already finished."""
    from assay.cli.tables import echo_wrapped
    from assay.engine.planning.setup.journal_setup import find_finished_run

    tasks, documents = len(plan.tasks), plan.documents
    verb = "continuing" if (plan.folder / "journal.sqlite").exists() and not plan.spec.refresh else "running"
    if find_finished_run(plan) is not None:
        verb = "already finished:"
    echo_wrapped(
        f"{verb} {plan.model.name} on {tasks} task{'s' if tasks != 1 else ''}, "
        f"{documents} document{'s' if documents != 1 else ''}  ({plan.folder})",
        err=True,
    )
    for note in plan.notes:
        echo_wrapped(f"note: {note}", err=True)
    if plan.has_user_code or plan.programs.isolation is not None:
        _warn_root_once()
    if plan.programs.isolation is not None:
        echo_wrapped(f"model-written programs run in the sandbox {plan.programs.isolation}", err=True)


def _warn_root_once() -> None:
    """Warn if task code runs as root; only the first time, because containers often have no other user."""
    from assay.cli.tables import echo_wrapped

    marker = assay_home() / "root-warning-shown"
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or marker.exists():
        return
    echo_wrapped(
        "warning: running as root, so the code of the tasks can change everything on this machine;"
        " use an ordinary user (this warning is shown once)",
        err=True,
    )
    with suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def check_failures(run: Run, allowed: float) -> None:
    """Raise an error if too many requests failed or a task has no score."""
    from assay.core.errors import TooManyFailures

    failed, asked = run.failed_requests()
    if failed > allowed * asked:
        raise TooManyFailures(
            f"{failed} of {asked} requests failed, more than --max_failures allows ({100 * allowed:g}%)",
            where=str(run.folder),
            hint=_suggest_remedy(run),
        )
    for task in run.tasks:
        counts = run.outcomes(task)
        scored = [estimate.scored for estimate in run.estimates if estimate.task == task]
        if scored and not any(scored) and set(counts) - {"skipped"}:
            ended = ", ".join(f"{counts[ending]} {ending}" for ending in ENDINGS if ending in counts)
            raise TooManyFailures(
                f"no document of `{task}` has a score: {ended}",
                where=str(run.folder),
                hint="see the reasons above",
            )


def _suggest_remedy(run: Run) -> str:
    """Return what to do about failed documents: correct the task or its media if that is why they failed."""
    reasons = [
        why
        for task in run.tasks
        for _, _, outcome, why in run.journal.read_outcome_reasons(task, limit=_MAX_REASONS + 1)
        if outcome == "failed"
    ]
    if reasons and all(why.startswith("not rendered:") for why in reasons):
        return "correct the task where the reasons above say, then repeat the command; `assay check` shows all such documents"
    if reasons and all(why.startswith(("not rendered:", "bad media:")) for why in reasons):
        return "provide the missing media (see the reasons above), then repeat the command"
    return "repeat the command to retry the failed requests"


def report_run(run: Run, *, as_json: bool, max_failures: float | None = None) -> None:
    """Print the results of a run and raise an error if too many requests failed (default limit: the run's own)."""
    if as_json:
        from assay.viewer.exports.lm_eval import build_results

        print_json(build_results(run))
    else:
        print_run(run)
    stored_limit = run.facts["spec"].get("max_failures", 0.01)
    check_failures(run, stored_limit if max_failures is None else max_failures)


_printers: list[Callable[[Run], None]] = []


def set_results_printer(printer: Callable[[Run], None]) -> None:
    """Print results with another function, for commands that imitate another harness."""
    _printers[:] = [printer]


def print_run(run: Run) -> None:
    """Print the result table, the run folder, and why documents have no score."""
    if _printers:
        _printers[0](run)
        _print_reasons(run)
        return
    from assay.cli.tables import echo_wrapped, get_terminal_width, print_table
    from assay.viewer.results.notes import format_notes
    from assay.viewer.terminal.results_table import build_results_table

    print_table(build_results_table(run))
    for line in format_notes(run, width=get_terminal_width()):
        echo_wrapped(line)
    click.echo(f"stored in {run.folder}")
    for file in run.files[:1]:
        click.echo(f"results   {file}")
    if reused := _format_cache_use(run):
        echo_wrapped(reused)
    _print_reasons(run)
    for line in _list_next_steps(run):
        click.echo(line)


def _list_next_steps(run: Run) -> list[str]:
    """Return the commands that help to understand the result, the most useful first."""
    from assay.store.runs.lookup import DEFAULT_FOLDER

    is_default = run.folder.resolve().parent == Path(DEFAULT_FOLDER).resolve()
    word = "latest" if is_default else shlex.quote(str(run.folder))
    steps = []
    if ending := _find_common_ending(run):
        steps.append(f"`assay show {word} --ending {ending}` shows documents that ended without an answer")
    if any(_is_low(estimate) for estimate in run.estimates if estimate.task in run.tasks):
        steps.append(f"`assay show {word} --wrong -n 5` shows wrong answers")
    steps.append(f"`{_build_show_command(run.facts['spec'])}` shows the prompts")
    steps.append("`assay view` shows everything in a browser")
    return [f"{'next: ' if index == 0 else '      '}{step}" for index, step in enumerate(steps)]


def _find_common_ending(run: Run) -> str:
    """Return the most frequent ending other than `scored` and `skipped`; empty if it is rarer than one in a hundred."""
    counts = run.journal.count_all_outcomes()
    others = {ending: count for ending, count in counts.items() if ending not in ("scored", "skipped")}
    common = max(others, key=lambda ending: others[ending], default="")
    return common if common and others[common] > _MIN_ENDING_SHARE * sum(counts.values()) else ""


def _is_low(estimate: Estimate) -> bool:
    """Whether a score between 0 and 1 is below one half, for a metric where higher is better."""
    value = estimate.value
    is_share = isinstance(value, (int, float)) and 0 <= value <= 1
    return is_share and estimate.higher_is_better is True and value < _LOW_SCORE


def _format_cache_use(run: Run) -> str:
    """Return how many responses came from the cache, which file that is, and how to disable it."""
    from assay.store.cache.response_cache import default_cache_path

    reused, total = run.journal.count_cached_responses()
    if not reused:
        return ""
    path = run.facts["spec"].get("use_cache") or default_cache_path()
    return f"reused    {reused} of {total} responses from the cache {path} (--no_cache disables it)"


def _print_reasons(run: Run) -> None:
    """Print how unscored documents ended and why: a few reasons per task, each with its first document."""
    from assay.cli.tables import echo_wrapped
    from assay.viewer.documents.failure_reasons import summarise_reason
    from assay.viewer.results.notes import format_outcome_notes

    for line in format_outcome_notes(run):
        echo_wrapped(escape_control_characters(line))
    for task in run.tasks:
        rows = run.journal.read_outcome_reasons(task, limit=_MAX_REASONS + 1)
        for document, count, outcome, why in rows[:_MAX_REASONS]:
            more = f" and {count - 1} more" if count > 1 else ""
            echo_wrapped(
                escape_control_characters(
                    f"{outcome}: {task}, document {document}{more}: {summarise_reason(why)}"
                )
            )
        if len(rows) > _MAX_REASONS:
            click.echo(
                f"more reasons: `assay export {shlex.quote(str(run.folder))} --format jsonl` contains all"
            )
    for estimate in run.estimates:
        if estimate.why and (estimate.scored or not (estimate.unscored or estimate.failed)):
            click.echo(
                escape_control_characters(
                    f"no value: {estimate.task}, {estimate.metric}: {summarise_reason(estimate.why)}"
                )
            )


def _build_show_command(spec: Any) -> str:
    """Return the command that shows the prompts of this run."""
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
