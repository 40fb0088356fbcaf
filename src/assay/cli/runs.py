"""`assay runs`: list, show, repair and remove stored runs."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import FOLDERS_KEY, find_run_folder, in_option, json_option, print_json
from assay.core.errors import AssayError, InvalidOption
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.api import Run
    from assay.store.runs.lookup import RunSummary
    from assay.store.runs.run import Run as StoredRun

__all__ = ["command"]

_HELP = """List stored runs; show, repair or remove a run.

Searches `./assay-runs` and the current folder, or the folders of `--in`. RUN is a run id, the start of one, a path, or
`latest`.

\b
Examples:
  assay runs
  assay runs --in results --json
  assay runs show latest
  assay runs rm embedded-quickstart-4f --yes
  cd $(assay runs path latest)
"""


@click.group("runs", help=_HELP, invoke_without_command=True)
@in_option
@json_option
@click.pass_context
def command(context: click.Context, folders: tuple[str, ...], as_json: bool) -> None:
    """Run the command; its help text is above."""
    context.meta[FOLDERS_KEY] = folders  # for `assay runs --in DIR show RUN`
    if context.invoked_subcommand is None:
        _print_runs(folders, as_json)


@command.command("list")
@in_option
@json_option
def list_command(folders: tuple[str, ...], as_json: bool) -> None:
    """List runs, newest first."""
    _print_runs(folders or click.get_current_context().meta[FOLDERS_KEY], as_json)


def _print_runs(folders: tuple[str, ...], as_json: bool) -> None:
    from assay.store.runs.lookup import DEFAULT_FOLDER, list_runs

    for folder in folders:
        if not Path(folder).is_dir():
            raise InvalidOption(f"folder not found: `{folder}`", where="--in")
    summaries = list_runs(folders)
    if as_json:
        click.echo(json.dumps([_to_json(summary) for summary in summaries], ensure_ascii=False, indent=2))
        return
    if summaries:
        _print_table(summaries)
    place = ", ".join(folders) or f"./{DEFAULT_FOLDER}"
    click.echo(f"{len(summaries)} run{'' if len(summaries) == 1 else 's'} in {place}", err=True)


def _print_table(summaries: list[RunSummary]) -> None:
    from assay.cli.tables import print_table
    from assay.viewer.terminal.runs_table import build_runs_table

    print_table(build_runs_table(summaries))


def _to_json(summary: RunSummary) -> dict[str, Any]:
    from assay.core.records.codec import to_plain

    scores = [{"task": task, "metric": metric, "value": value} for task, metric, value in summary.scores]
    plain: dict[str, Any] = to_plain({**asdict(summary), "folder": str(summary.folder), "scores": scores})
    return plain


@command.command("show")
@click.argument("run")
@in_option
@json_option
def show_command(run: str, folders: tuple[str, ...], as_json: bool) -> None:
    """Show a run: options, environment, results and later scorings."""
    from assay import api
    from assay.engine.planning.manifests.recorded_plan import get_manifest
    from assay.store.runs.latest import record_latest
    from assay.store.runs.lookup import summarise_run

    folder = find_run_folder(run, folders)
    summary, opened = summarise_run(folder), api.Run(folder)
    if summary.state in ("finished", "with failures"):
        record_latest(folder)
    try:
        manifest: dict[str, Any] | None = get_manifest(opened)
    except AssayError:
        manifest = None
    if as_json:
        results = opened.results if summary.state != "damaged" else {}
        repeats = opened.facts.get("repeats") if summary.state != "damaged" else None
        variants = opened.facts.get("variants") if summary.state != "damaged" else None
        usage = opened.usage if summary.state != "damaged" else {}
        scorings = [] if summary.state == "damaged" else [_describe_scoring(one) for one in opened.scorings()]
        shown = {
            **_to_json(summary),
            "manifest": manifest,
            "results": results,
            **({"repeats": repeats} if repeats else {}),
            **({"variants": variants} if variants else {}),
            "usage": usage,
            "scorings": scorings,
        }
        print_json(shown)
        return
    _print_run(summary, opened, manifest)


def _print_run(summary: RunSummary, opened: Run, manifest: dict[str, Any] | None) -> None:
    from assay.cli.tables import echo_wrapped, get_terminal_width, print_table
    from assay.viewer.results.notes import format_notes
    from assay.viewer.terminal.results_table import build_results_table
    from assay.viewer.terminal.runs_table import describe_run

    for line in describe_run(summary, manifest):
        click.echo(escape_control_characters(line))
    if summary.state == "damaged":
        click.echo(f"\n`assay runs repair {summary.folder}` saves the intact part", err=True)
        return
    width = get_terminal_width()
    if opened.estimates:
        print_table(build_results_table(opened))
        for line in format_notes(opened, width=width):
            echo_wrapped(escape_control_characters(line))
    for one in opened.scorings():
        about = _describe_scoring(one)
        tasks = [f"{task}: {', '.join(what)}" for task, what in about["changed"].items()]
        changed = "; ".join([*tasks, *about["notes"]])
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["at"]))
        click.echo(
            escape_control_characters(f"scoring {about['number']}  {when}, changed: {changed or 'nothing'}")
        )
        print_table(build_results_table(one))
        for line in format_notes(one, width=width):
            echo_wrapped(escape_control_characters(line))
        one.close()


def _describe_scoring(one: StoredRun) -> dict[str, Any]:
    """Return the number, date, changes and results of a later scoring of a run."""
    about = one.facts.get("scoring", {})
    return {
        "number": int(one.folder.name),
        "at": about.get("at", 0.0),
        "changed": about.get("changed", {}),
        "notes": about.get("notes", []),
        "results": one.results,
    }


@command.command("path")
@click.argument("run")
@in_option
def path_command(run: str, folders: tuple[str, ...]) -> None:
    """Print the path of a run."""
    click.echo(find_run_folder(run, folders))


@command.command("rm")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@in_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def rm_command(runs: tuple[str, ...], folders: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove runs. Keeps files that Assay did not write; refuses a run that is in progress."""
    from assay.store.runs.maintenance import remove_run

    selected = list(dict.fromkeys(find_run_folder(run, folders) for run in runs))
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidOption(
                "standard input is not a terminal; cannot ask for confirmation",
                where="--yes",
                hint="pass --yes to confirm",
            )
        names = ", ".join(folder.name for folder in selected)
        click.confirm(escape_control_characters(f"remove {names}?"), abort=True, err=True)
    removed = []
    for folder in selected:
        left = remove_run(folder)
        removed.append({"run": folder.name, "folder": str(folder), "left": [str(path) for path in left]})
        kept = (
            f"; kept files that Assay did not write: {', '.join(path.name for path in left)}" if left else ""
        )
        click.echo(escape_control_characters(f"removed {folder}{kept}"), err=True)
    if as_json:
        click.echo(json.dumps(removed, ensure_ascii=False, indent=2))


@command.command("repair")
@click.argument("run")
@in_option
@json_option
def repair_command(run: str, folders: tuple[str, ...], as_json: bool) -> None:
    """Save the intact part of a damaged run and keep a copy of the damaged file.

    Verifies the checksum of every page. Intact responses are kept; `assay resume` requests the others again and
    recomputes the scores.
    """
    from assay.store.runs.maintenance import repair_run

    folder = find_run_folder(run, folders)
    salvaged = repair_run(folder)
    if as_json:
        about = {"damaged": salvaged is not None, "folder": str(folder)}
        if salvaged is not None:
            about |= {"responses": salvaged.responses, "aside": str(salvaged.damaged_file)}
        click.echo(json.dumps(about, ensure_ascii=False, indent=2))
    elif salvaged is None:
        click.echo(f"no damage found in {folder}")
    else:
        click.echo(str(salvaged))
        click.echo(f"next: `assay resume {folder}` requests the missing responses")
