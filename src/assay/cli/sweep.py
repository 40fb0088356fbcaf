"""`assay sweep`: several models, several settings, one table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from assay.cli.options import OptionsCommand, add_run_options, given_options
from assay.cli.reporting import start_logging
from assay.core.errors import AssayError, ErrorGroup
from assay.core.runspec import run_options

__all__ = ["command"]

_HELP = """Run several models in several settings on the same tasks; end with one table and one report.

SWEEP is a YAML file: `models` (names, or options with `model`), `tasks`, `settings` (options that differ; one run of each
model for each), `options` (for every run). Flags count for every run and win over the file. Everything that is wrong with
any run is said before the first starts. To go on after a stop, repeat the command: nothing answered is asked again, and
what one run asked serves all others.

\b
Examples:
  assay sweep sweep.yaml --dry_run             what would run, how many requests, what it would cost
  assay sweep sweep.yaml -o results            runs, table and report in one folder
  assay sweep sweep.yaml --jobs 2 --limit 100  two runs at a time, their words kept in files
  assay sweep sweep.yaml --ray auto --replicas 8 --jobs 4
"""
_LEFT_OUT = {"model"}


@click.command("sweep", cls=OptionsCommand, help=_HELP)
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("--dry_run", is_flag=True, help="Say what would run and what it would cost; ask nothing.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="Runs at the same time [default: 1]"
)
@click.option("--no_report", is_flag=True, help="Write no report at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on standard output.")
@click.option("-v", "--verbosity", default="WARNING", metavar="LEVEL", help="How much to log: DEBUG … ERROR.")
def command(
    sweep: Path,
    dry_run: bool,
    jobs: int,
    no_report: bool,
    as_json: bool,
    verbosity: str,
    config: Path | None,
    **values: Any,
) -> None:
    """The command; its help text is above."""
    start_logging(verbosity)

    from assay.cli.sweep_forecast import print_forecast
    from assay.cli.sweep_runs import carry_out
    from assay.engine.planning.sweeps import read_sweep

    read = read_sweep(sweep, given_options(values, config))
    planned = _planned(read.cells)
    if dry_run:
        print_forecast(planned, as_json=as_json)
        return
    if len(read.cells) != len(planned):
        click.echo(
            f"note: {len(read.cells) - len(planned)} of {len(read.cells)} runs are the same as others",
            err=True,
        )
    failed = carry_out(
        {cell.name: cell.options for cell, _ in planned}, jobs=jobs, place=_place(read.name, planned)
    )
    _finish(
        read.name,
        [(cell, plan.folder) for cell, plan in planned],
        failed,
        report=not no_report,
        as_json=as_json,
    )


add_run_options(command, [name for name, _, _ in run_options() if name not in _LEFT_OUT])


def _planned(cells: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The plan of every run, each run once; every problem of all of them at once."""
    from assay import api

    plans: dict[Path, tuple[Any, Any]] = {}
    problems: dict[tuple[str, str], AssayError] = {}
    for cell in cells:
        try:
            plan = api.plan(cell.spec)
        except AssayError as error:
            for problem in error.errors if isinstance(error, ErrorGroup) else [error]:
                told = AssayError(
                    problem.what, where=f"{cell.name}: {problem.where}" if problem.where else cell.name
                )
                told.hint = problem.hint
                problems.setdefault((problem.what, problem.hint), told)
        else:
            plans.setdefault(plan.folder.resolve(), (cell, plan))
    if problems:
        raise ErrorGroup(problems.values())
    return list(plans.values())


def _place(name: str, planned: Sequence[tuple[Any, Any]]) -> Path:
    """Where the words of runs that go on side by side are kept."""
    folder: Path = planned[0][1].folder
    return folder.parent / f"{name}-logs"


def _finish(
    name: str, runs: Sequence[tuple[Any, Path]], failed: Mapping[str, int], *, report: bool, as_json: bool
) -> None:
    """Show what all runs say, and fail when one of them did."""
    from assay import api
    from assay.store.journal import FILE_NAME

    opened = [(cell, api.open_run(folder)) for cell, folder in runs if (folder / FILE_NAME).is_file()]
    try:
        if as_json:
            click.echo(
                json.dumps(
                    {"runs": [_plain(cell, run, failed) for cell, run in opened]}, indent=2, default=str
                )
            )
        else:
            _print_table([(cell, run) for cell, run in opened if run.finished])
        if report:
            _write_report(name, [(cell, run) for cell, run in opened if run.finished])
    finally:
        for _, run in opened:
            run.close()
    if failed:
        raise AssayError(
            f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}",
            where=name,
            hint="repeat the command to go on with them",
        )


def _print_table(runs: Sequence[tuple[Any, Any]]) -> None:
    """One table: tasks in rows, runs in columns."""
    from assay.store.run_sheets import RunSheets
    from assay.viewer.matrix import make_matrix, written

    if runs:
        matrix = make_matrix([RunSheets(run) for _, run in runs], labels=[cell.name for cell, _ in runs])
        click.echo(written(matrix, "text"), nl=False)


def _write_report(name: str, runs: Sequence[tuple[Any, Any]]) -> None:
    """One report beside the runs. Without the package it takes, a word about it: the runs are there."""
    from assay.core.errors import MissingPackage
    from assay.core.installation import assay_version
    from assay.viewer.atomic_files import write_whole
    from assay.viewer.report import ReportOptions, make_report, render_page

    if not runs:
        return
    path = runs[0][1].folder.parent / f"{name}.html"
    options = ReportOptions(title=name, labels=tuple(cell.name for cell, _ in runs))
    try:
        report = make_report([run for _, run in runs], options, version=assay_version())
        write_whole(path, render_page(report))
    except MissingPackage as error:
        click.echo(f"no report: {error.what}; {error.hint}", err=True)
    else:
        click.echo(f"report    {path}", err=True)


def _plain(cell: Any, run: Any, failed: Mapping[str, int]) -> dict[str, Any]:
    from assay.viewer.exports.lm_eval import results_document

    return {
        "model": cell.model,
        "setting": cell.setting,
        "folder": str(run.folder),
        "exit_code": failed.get(cell.name, 0),
        "finished": run.finished,
        "results": results_document(run)["results"] if run.finished else {},
    }
