"""`assay runs`: which runs are kept, what is in one, and what to do with it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from assay.core.errors import AssayError, BadOption
from assay.core.printable import printable

__all__ = ["command", "found", "in_option"]

_HELP = """List the runs that are kept; show, repair, remove them.

Runs are looked for in `./assay-runs` and in this folder, or where `--in` says. RUN is an id, the start of one, a
path, or `latest`.

\b
Examples:
  assay runs
  assay runs --in results --json
  assay runs show latest
  assay runs rm embedded-quickstart-4f --yes
  cd $(assay runs path latest)
"""
_WIDE = 100
_IN = "assay.runs.in"


def in_option(function: Any) -> Any:
    """`--in DIR`: where to look for runs."""
    return click.option(
        "--in", "folders", multiple=True, metavar="DIR", help="Look for runs in this folder."
    )(function)


def json_option(function: Any) -> Any:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def found(word: str, folders: tuple[str, ...]) -> Path:
    """The folder of the run that is meant."""
    from assay.store.finding import find_run

    return find_run(word, folders or click.get_current_context().meta.get(_IN, ()))


@click.group("runs", help=_HELP, invoke_without_command=True)
@in_option
@json_option
@click.pass_context
def command(context: click.Context, folders: tuple[str, ...], as_json: bool) -> None:
    """The command; its help text is above."""
    context.meta[_IN] = folders  # `assay runs --in DIR show RUN` looks there, too
    if context.invoked_subcommand is None:
        _list(folders, as_json)


@command.command("list")
@in_option
@json_option
def list_command(folders: tuple[str, ...], as_json: bool) -> None:
    """List runs, the newest first."""
    _list(folders or click.get_current_context().meta[_IN], as_json)


def _list(folders: tuple[str, ...], as_json: bool) -> None:
    from assay.store.finding import DEFAULT_FOLDER, list_runs

    for folder in folders:
        if not Path(folder).is_dir():
            raise BadOption(f"the folder `{folder}` is not there", where="--in")
    summaries = list_runs(folders)
    if as_json:
        click.echo(json.dumps([_plain(summary) for summary in summaries], ensure_ascii=False, indent=2))
        return
    if summaries:
        _print_table(summaries)
    place = ", ".join(folders) or f"./{DEFAULT_FOLDER}"
    click.echo(f"{len(summaries)} run{'' if len(summaries) == 1 else 's'} in {place}", err=True)


def _print_table(summaries: list[Any]) -> None:
    from rich.console import Console

    from assay.viewer.run_tables import runs_table, table_text

    console = Console()
    if console.is_terminal:
        console.print(runs_table(summaries, narrow=console.width < _WIDE))
    else:
        click.echo(table_text(runs_table(summaries)))


def _plain(summary: Any) -> dict[str, Any]:
    from assay.core.codec import to_plain

    scores = [{"task": task, "metric": metric, "value": value} for task, metric, value in summary.scores]
    plain: dict[str, Any] = to_plain({**asdict(summary), "folder": str(summary.folder), "scores": scores})
    return plain


@command.command("show")
@click.argument("run")
@in_option
@json_option
def show_command(run: str, folders: tuple[str, ...], as_json: bool) -> None:
    """Show everything about a run: what it was asked, where, with what, and its results."""
    from assay import api
    from assay.engine.planning.recorded_plan import manifest_of
    from assay.store.finding import summary_of

    folder = found(run, folders)
    summary, opened = summary_of(folder), api.Run(folder)
    try:
        manifest: dict[str, Any] | None = manifest_of(opened)
    except AssayError:
        manifest = None
    if as_json:
        results = opened.results if summary.state != "damaged" else {}
        repeats = opened.facts.get("repeats") if summary.state != "damaged" else None
        usage = opened.usage if summary.state != "damaged" else {}
        scorings = [] if summary.state == "damaged" else [_scoring(one) for one in opened.scorings()]
        shown = {
            **_plain(summary),
            "manifest": manifest,
            "results": results,
            **({"repeats": repeats} if repeats else {}),
            "usage": usage,
            "scorings": scorings,
        }
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2, default=str))
        return
    _print_run(summary, opened, manifest)


def _print_run(summary: Any, opened: Any, manifest: dict[str, Any] | None) -> None:
    from rich.console import Console

    from assay.viewer.run_tables import run_lines
    from assay.viewer.tables import remarks, results_table, results_text

    for line in run_lines(summary, manifest):
        click.echo(printable(line))
    if summary.state == "damaged":
        click.echo(f"\n`assay runs repair {summary.folder}` keeps what is sound", err=True)
        return
    console = Console()
    if opened.estimates:
        if console.is_terminal:
            console.print(results_table(opened, width=console.width))
            for line in remarks(opened):
                click.echo(printable(line))
        else:
            click.echo(results_text(opened))
    for one in opened.scorings():
        about = _scoring(one)
        changed = "; ".join(f"{task}: {', '.join(what)}" for task, what in about["changed"].items())
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["at"]))
        click.echo(printable(f"scoring {about['number']}  {when}, changed: {changed or 'nothing'}"))
        click.echo(results_text(one))
        one.close()


def _scoring(one: Any) -> dict[str, Any]:
    """What a later scoring of a run says of itself."""
    about = one.facts.get("scoring", {})
    return {
        "number": int(one.folder.name),
        "at": about.get("at", 0.0),
        "changed": about.get("changed", {}),
        "results": one.results,
    }


@command.command("path")
@click.argument("run")
@in_option
def path_command(run: str, folders: tuple[str, ...]) -> None:
    """Print the folder of a run."""
    click.echo(found(run, folders))


@command.command("rm")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@in_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def rm_command(runs: tuple[str, ...], folders: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove runs. Files that are not Assay's stay; a run that is being written is refused."""
    from assay.store.care import remove_run

    wanted = list(dict.fromkeys(found(run, folders) for run in runs))
    if not yes:
        if not sys.stdin.isatty():
            raise BadOption(
                "nobody is there to ask", where="--yes", hint="add --yes to remove without asking"
            )
        names = ", ".join(folder.name for folder in wanted)
        click.confirm(printable(f"remove {names}?"), abort=True, err=True)
    removed = []
    for folder in wanted:
        left = remove_run(folder)
        removed.append({"run": folder.name, "folder": str(folder), "left": [str(path) for path in left]})
        kept = f"; not Assay's, and left: {', '.join(path.name for path in left)}" if left else ""
        click.echo(printable(f"removed {folder}{kept}"), err=True)
    if as_json:
        click.echo(json.dumps(removed, ensure_ascii=False, indent=2))


@command.command("repair")
@click.argument("run")
@in_option
@json_option
def repair_command(run: str, folders: tuple[str, ...], as_json: bool) -> None:
    """Save what is sound in a damaged run; the damaged file is kept aside.

    Every page is read and compared with what was written. Answers that are whole are kept; `assay resume` asks for
    the others again and computes the scores anew.
    """
    from assay.store.care import repair_run

    folder = found(run, folders)
    salvaged = repair_run(folder)
    if as_json:
        about = {"damaged": salvaged is not None, "folder": str(folder)}
        if salvaged is not None:
            about |= {"responses": salvaged.responses, "aside": str(salvaged.aside)}
        click.echo(json.dumps(about, ensure_ascii=False, indent=2))
    elif salvaged is None:
        click.echo(f"nothing is damaged in {folder}")
    else:
        click.echo(str(salvaged))
        click.echo(f"next: `assay resume {folder}` asks for what is missing")
