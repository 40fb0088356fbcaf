"""`assay check`: find problems in task files without a model."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from assay.core.installation import merge_install_commands

if TYPE_CHECKING:
    from assay.checks.findings import Finding, Report, Subject

__all__ = ["command"]

_HELP = """Check task files and list every problem before a run.

TASKS are names, groups, tags, globs, YAML files or folders. Checks YAML keys, functions, metrics, filters and
templates, and renders the first documents of each available dataset (--documents). Exits with code 2 if there are errors.
Packages that task code needs are listed once, with one `pip install` line for all of them; --install runs it.

\b
Examples:
  assay check my_task.yaml
  assay check my_tasks/ --json
  assay check 'mmlu_*' --no_data
  assay check gsm8k arc_easy --data_root ~/datasets
  assay check my_tasks/ --install
"""
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_MAX_SHOWN_NAMES = 4


@click.command("check", help=_HELP)
@click.argument("task_names", nargs=-1, required=True, metavar="TASKS...")
@click.option(
    "--include_path", multiple=True, metavar="DIR", help="Additional folder with task files; repeatable."
)
@click.option(
    "--allow_data_outside",
    is_flag=True,
    help="Allow data and media files outside the folder of the task, --data_root and the working directory.",
)
@click.option(
    "--data_root", metavar="DIR", help="Local folder with datasets, in the layout of the Hugging Face hub."
)
@click.option(
    "--documents",
    default="5",
    show_default=True,
    metavar="N|all",
    help="Number of documents to look at in each task.",
)
@click.option("--no_data", is_flag=True, help="Skip all checks that need the dataset.")
@click.option(
    "--helper_timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for task code, per document (0: no limit).",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="Number of processes. [default: 1]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--install", is_flag=True, help="Install the missing packages after asking, then check again.")
@click.option("--yes", is_flag=True, help="With --install: do not ask for confirmation.")
def command(
    task_names: tuple[str, ...],
    include_path: tuple[str, ...],
    data_root: str | None,
    allow_data_outside: bool,
    documents: str,
    no_data: bool,
    helper_timeout: float,
    jobs: int,
    as_json: bool,
    install: bool,
    yes: bool,
) -> int:
    """Run the command; its help text is above."""
    from assay.checks.checker import CheckOptions, check_tasks
    from assay.tasks.files.index import TaskIndex, find_task_roots

    words = [name for word in task_names for name in word.split(",") if name]
    index = TaskIndex.build(find_task_roots(include_path))
    report = check_tasks(
        words,
        index,
        CheckOptions(
            data=not no_data,
            documents=_parse_documents(documents),
            data_root=data_root,
            allow_data_outside=allow_data_outside,
            helper_timeout_s=helper_timeout,
        ),
        processes=jobs,
    )
    if as_json:
        click.echo(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        _print(report)
    if install and (packages := report.install_command()) and install_packages(packages, ask=not yes):
        return check_again()
    return 2 if report.count("error") else 0


def _parse_documents(text: str) -> int | None:
    """Parse `--documents`; None means all."""
    from assay.core.errors import InvalidOption

    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidOption(
            f"`{text}` is not a number of documents", where="--documents", hint="a number from 1 on, or `all`"
        )
    return int(text)


def install_packages(packages: str, *, ask: bool) -> bool:
    """Run a `pip install` line in the environment of Assay, after asking. Return False if the user declines.

    Raises:
        UserError: The user cannot be asked, or the installation failed.
    """
    from assay.core.errors import UserError

    if ask and not sys.stdin.isatty():
        raise UserError(
            "standard input is not a terminal; cannot ask for confirmation",
            where="--install",
            hint="pass --yes to confirm",
        )
    if ask and not click.confirm(f"run `{packages}`?", err=True):
        return False
    done = subprocess.run([sys.executable, "-m", *shlex.split(packages)], check=False)
    if done.returncode:
        raise UserError(f"`{packages}` failed (exit code {done.returncode})", where="--install")
    return True


def check_again() -> int:
    """Repeat the command without --install in a new process, which finds the new packages; return its exit code."""
    words = [word for word in sys.argv[1:] if word not in ("--install", "--yes")]
    return subprocess.run([sys.executable, "-m", "assay", *words], check=False).returncode


def _print(report: Report) -> None:
    """Print findings by task; tasks with identical findings share one block. Missing packages come last."""
    grouped: dict[tuple[tuple[str, str, str], ...], list[tuple[Subject, tuple[Finding, ...]]]] = {}
    packages: dict[str, list[tuple[Subject, Finding]]] = {}
    for subject in report.subjects:
        for finding in subject.findings:
            if finding.kind == "package":
                packages.setdefault(finding.hint, []).append((subject, finding))
        others = tuple(finding for finding in subject.findings if finding.kind != "package")
        if others:
            key = tuple((one.severity, one.what, one.hint) for one in others)
            grouped.setdefault(key, []).append((subject, others))
    for users in grouped.values():
        click.secho(_format_names([subject.name for subject, _ in users]), bold=True)
        for same in zip(*(findings for _, findings in users), strict=True):
            _print_finding(same[0], places=list(dict.fromkeys(one.where for one in same)))
        click.echo("")
    if packages:
        _print_packages(list(packages.values()), report.install_command())
    click.echo(_format_summary(report.counts()))
    looked_at, total = (sum(getattr(one, name) for one in report.subjects) for name in ("looked_at", "total"))
    if total:
        hint = "; --documents all looks at every one" if looked_at < total else ""
        click.echo(f"{looked_at:,} of {total:,} document{'' if total == 1 else 's'} looked at{hint}")


def _print_packages(packages: list[list[tuple[Subject, Finding]]], install: str) -> None:
    """Print each missing package once, with the tasks that need it, and one command for all."""
    click.secho("missing packages", bold=True)
    for users in packages:
        severity = min(finding.severity for _, finding in users)  # an error comes before a warning
        first = next(finding for _, finding in users if finding.severity == severity)
        click.secho(f"  {severity}: ", fg=_COLOURS[severity], bold=True, nl=False)
        click.echo(first.what)
        names = list(dict.fromkeys(subject.name for subject, _ in users))
        click.echo(f"    needed by {_format_names(names)}")
        if first.where:
            click.echo(f"    at {first.where}")
        if not merge_install_commands([first.hint]):
            click.echo(f"    hint: {first.hint}")
    if install:
        click.echo(f"install: {install}")
    click.echo("")


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN_NAMES])
    return shown if len(names) <= _MAX_SHOWN_NAMES else f"{shown} and {len(names) - _MAX_SHOWN_NAMES} more"


def _print_finding(finding: Finding, *, places: Sequence[str]) -> None:
    click.secho(f"  {finding.severity}: ", fg=_COLOURS[finding.severity], bold=True, nl=False)
    click.echo(finding.what)
    if finding.where:
        more = (
            f" and {len(places) - 1} more place{'' if len(places) == 2 else 's'}" if len(places) > 1 else ""
        )
        click.echo(f"    at {finding.where}{more}")
    if finding.hint:
        click.echo(f"    hint: {finding.hint}")


def _format_summary(counts: dict[str, int]) -> str:
    """Return for example `3 tasks, 1 group checked: 1 error, no warnings, 2 notes`."""

    def amount(number: int, noun: str) -> str:
        return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"

    checked = amount(counts["tasks"], "task")
    if counts["groups"]:
        checked = f"{checked}, {amount(counts['groups'], 'group')}"
    found = (amount(counts[f"{noun}s"], noun) for noun in ("error", "warning", "note"))
    return f"{checked} checked: {', '.join(found)}"
