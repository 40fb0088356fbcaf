"""`assay check`: everything that is wrong with task files, found without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

__all__ = ["command"]

_HELP = """Find everything that is wrong with tasks, before anybody runs them.

TASKS are names, groups, tags, globs, YAML files or folders. Files, functions, metrics, filters and templates are
checked, and the first documents of each dataset that is here. Exits 2 when there are errors.

\b
Examples:
  assay check my_task.yaml
  assay check my_tasks/ --json
  assay check 'mmlu_*' --no_data
  assay check gsm8k arc_easy --data_root ~/datasets
"""
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_SHOWN_NAMES = 4


@click.command("check", help=_HELP)
@click.argument("task_names", nargs=-1, required=True, metavar="TASKS...")
@click.option("--include_path", multiple=True, metavar="DIR", help="Further folders with task files.")
@click.option(
    "--data_root", metavar="DIR", help="Folder that serves datasets offline, laid out as on the hub."
)
@click.option("--no_data", is_flag=True, help="Leave out everything that needs the dataset.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="Processes. [default: 1]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    task_names: tuple[str, ...],
    include_path: tuple[str, ...],
    data_root: str | None,
    no_data: bool,
    jobs: int,
    as_json: bool,
) -> int:
    """The command; its help text is above."""
    from assay.checks.checking import CheckOptions, check
    from assay.tasks.index import TaskIndex, default_roots

    words = [name for word in task_names for name in word.split(",") if name]
    index = TaskIndex.build(default_roots(include_path))
    report = check(words, index, CheckOptions(data=not no_data, data_root=data_root), processes=jobs)
    if as_json:
        click.echo(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        _print(report)
    return 2 if report.count("error") else 0


def _print(report: Any) -> None:
    """Findings by task; tasks with the very same findings together."""
    together: dict[Any, list[Any]] = {}
    for subject in report.subjects:
        if subject.findings:
            together.setdefault(subject.findings, []).append(subject)
    for findings, subjects in together.items():
        click.secho(_names([subject.name for subject in subjects]), bold=True)
        for finding in findings:
            _print_finding(finding)
        click.echo("")
    click.echo(_summary(report.counts()))


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"


def _print_finding(finding: Any) -> None:
    click.secho(f"  {finding.severity}: ", fg=_COLOURS[finding.severity], bold=True, nl=False)
    click.echo(finding.what)
    if finding.where:
        click.echo(f"    at {finding.where}")
    if finding.hint:
        click.echo(f"    hint: {finding.hint}")


def _summary(counts: dict[str, int]) -> str:
    """`3 tasks, 1 group checked: 1 error, no warnings, 2 notes`."""

    def amount(number: int, noun: str) -> str:
        return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"

    looked = amount(counts["tasks"], "task")
    if counts["groups"]:
        looked = f"{looked}, {amount(counts['groups'], 'group')}"
    found = (amount(counts[f"{noun}s"], noun) for noun in ("error", "warning", "note"))
    return f"{looked} checked: {', '.join(found)}"
