"""`assay check`: find problems in task files without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from assay.checks.findings import Finding, Report, Subject

__all__ = ["command"]

_HELP = """Check task files and list every problem before a run.

TASKS are names, groups, tags, globs, YAML files or folders. Checks YAML keys, functions, metrics, filters and
templates, and renders the first documents of each available dataset. Exits with code 2 if there are errors.

\b
Examples:
  assay check my_task.yaml
  assay check my_tasks/ --json
  assay check 'mmlu_*' --no_data
  assay check gsm8k arc_easy --data_root ~/datasets
"""
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_MAX_SHOWN_NAMES = 4


@click.command("check", help=_HELP)
@click.argument("task_names", nargs=-1, required=True, metavar="TASKS...")
@click.option(
    "--include_path", multiple=True, metavar="DIR", help="Additional folder with task files; repeatable."
)
@click.option(
    "--data_root", metavar="DIR", help="Local folder with datasets, in the layout of the Hugging Face hub."
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
def command(
    task_names: tuple[str, ...],
    include_path: tuple[str, ...],
    data_root: str | None,
    no_data: bool,
    helper_timeout: float,
    jobs: int,
    as_json: bool,
) -> int:
    """Run the command; its help text is above."""
    from assay.checks.checker import CheckOptions, check_tasks
    from assay.tasks.files.index import TaskIndex, find_task_roots

    words = [name for word in task_names for name in word.split(",") if name]
    index = TaskIndex.build(find_task_roots(include_path))
    report = check_tasks(
        words,
        index,
        CheckOptions(data=not no_data, data_root=data_root, helper_timeout_s=helper_timeout),
        processes=jobs,
    )
    if as_json:
        click.echo(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        _print(report)
    return 2 if report.count("error") else 0


def _print(report: Report) -> None:
    """Print findings by task; tasks with identical findings share one block."""
    grouped: dict[tuple[Finding, ...], list[Subject]] = {}
    for subject in report.subjects:
        if subject.findings:
            grouped.setdefault(subject.findings, []).append(subject)
    for findings, subjects in grouped.items():
        click.secho(_format_names([subject.name for subject in subjects]), bold=True)
        for finding in findings:
            _print_finding(finding)
        click.echo("")
    click.echo(_format_summary(report.counts()))


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN_NAMES])
    return shown if len(names) <= _MAX_SHOWN_NAMES else f"{shown} and {len(names) - _MAX_SHOWN_NAMES} more"


def _print_finding(finding: Finding) -> None:
    click.secho(f"  {finding.severity}: ", fg=_COLOURS[finding.severity], bold=True, nl=False)
    click.echo(finding.what)
    if finding.where:
        click.echo(f"    at {finding.where}")
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
