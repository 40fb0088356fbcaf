"""`assay sweep`: run several models with several settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.options import OptionsCommand, add_run_options, collect_options
from assay.cli.run_output import start_logging
from assay.core.errors import AssayError, ErrorGroup
from assay.core.options.run_spec import list_options

if TYPE_CHECKING:
    from assay.api import Run
    from assay.engine.planning.records import Plan
    from assay.engine.planning.sweeps import SweepRun

__all__ = ["command", "print_forecast"]

_HELP = """Run several models with several settings on the same tasks; print one table and write one report.

SWEEP is a YAML file with the keys `models` (names, or options with `model`), `tasks`, `settings` (options that differ;
one run per model and setting) and `options` (for every run). Flags apply to every run and override the file. Problems of
all runs are reported before the first run starts. To continue after an interruption, repeat the command. Runs share the
response cache.

\b
Examples:
  assay sweep sweep.yaml --dry_run             show the runs, the number of requests and the cost
  assay sweep sweep.yaml -o results            write runs, table and report to one folder
  assay sweep sweep.yaml --jobs 2 --limit 100  execute two runs at a time, with log files
  assay sweep sweep.yaml --ray auto --replicas 8 --jobs 4
"""
_EXCLUDED_OPTIONS = {"model"}


@click.command("sweep", cls=OptionsCommand, help=_HELP)
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("--dry_run", is_flag=True, help="Show the runs and their cost without sending requests.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of concurrent runs. [default: 1]",
)
@click.option("--no_report", is_flag=True, help="Do not write a report.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on standard output.")
@click.option(
    "-v", "--verbosity", default="WARNING", metavar="LEVEL", help="Log level: DEBUG, INFO, WARNING or ERROR."
)
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
    """Run the command; its help text is above."""
    start_logging(verbosity)

    from assay.cli.sweep import print_forecast
    from assay.cli.sweep_processes import run_all
    from assay.engine.planning.sweeps import read_sweep

    definition = read_sweep(sweep, collect_options(values, config))
    planned = _plan_cells(definition.runs)
    if dry_run:
        print_forecast(planned, as_json=as_json)
        return
    if len(definition.runs) != len(planned):
        click.echo(
            f"note: {len(definition.runs) - len(planned)} of {len(definition.runs)} runs are duplicates of others",
            err=True,
        )
    failed = run_all(
        {cell.name: cell.options for cell, _ in planned},
        jobs=jobs,
        log_folder=_get_log_folder(definition.name, planned),
    )
    _finish(
        definition.name,
        [(cell, plan.folder) for cell, plan in planned],
        failed,
        report=not no_report,
        as_json=as_json,
    )


add_run_options(command, [name for name, _, _ in list_options() if name not in _EXCLUDED_OPTIONS])


def _plan_cells(cells: Sequence[SweepRun]) -> list[tuple[SweepRun, Plan]]:
    """Plan every run once and report the problems of all runs together."""
    from assay import api

    plans: dict[Path, tuple[SweepRun, Plan]] = {}
    problems: dict[tuple[str, str], AssayError] = {}
    for cell in cells:
        try:
            plan = api.plan(cell.spec)
        except AssayError as error:
            for problem in error.errors if isinstance(error, ErrorGroup) else [error]:
                located = AssayError(
                    problem.what, where=f"{cell.name}: {problem.where}" if problem.where else cell.name
                )
                located.hint = problem.hint
                problems.setdefault((problem.what, problem.hint), located)
        else:
            plans.setdefault(plan.folder.resolve(), (cell, plan))
    if problems:
        raise ErrorGroup(problems.values())
    return list(plans.values())


def _get_log_folder(name: str, planned: Sequence[tuple[SweepRun, Plan]]) -> Path:
    """Return the folder for the log files of concurrent runs."""
    folder: Path = planned[0][1].folder
    return folder.parent / f"{name}-logs"


def _finish(
    name: str,
    runs: Sequence[tuple[SweepRun, Path]],
    failed: Mapping[str, int],
    *,
    report: bool,
    as_json: bool,
) -> None:
    """Print the results of all runs and raise an error if a run failed."""
    from assay import api
    from assay.store.journal.journal import JOURNAL_FILE

    opened = [(cell, api.open_run(folder)) for cell, folder in runs if (folder / JOURNAL_FILE).is_file()]
    try:
        if as_json:
            cells = [_to_json(cell, run, failed) for cell, run in opened]
            total = {"runs": cells, "cost_usd": _sum_cost([run for _, run in opened])[0]}
            click.echo(json.dumps(total, indent=2, default=str))
        else:
            try:
                _print_table([(cell, run) for cell, run in opened if run.finished])
            finally:  # runs without a score cost something, too
                _print_total_cost([run for _, run in opened])
        if report:
            _write_report(name, [(cell, run) for cell, run in opened if run.finished])
    finally:
        for _, run in opened:
            run.close()
    if failed:
        raise AssayError(
            f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}",
            where=name,
            hint="repeat the command to continue them",
        )


def _print_table(runs: Sequence[tuple[SweepRun, Run]]) -> None:
    """Print one table with tasks in rows and runs in columns."""
    from assay.cli.tables import print_matrix
    from assay.store.documents.run_score_tables import RunScoreTables
    from assay.viewer.matrix import build_matrix

    if runs:
        matrix = build_matrix(
            [RunScoreTables(run) for _, run in runs], labels=[cell.name for cell, _ in runs]
        )
        print_matrix(matrix)


def _print_total_cost(runs: Sequence[Run]) -> None:
    """Print what the models and judges of all runs cost; nothing if no service charges for them."""
    from assay.viewer.number_format import format_dollars

    cost, unpriced = _sum_cost(runs)
    if cost is None and not any(run.facts.get("billing") for run in runs):
        return
    missing = f"{unpriced} request{'s' if unpriced != 1 else ''} of unknown cost"
    if cost is None:
        click.echo(f"total cost of {len(runs)} runs: {missing}")
    else:
        more = f" plus {missing}" if unpriced else ""
        click.echo(f"total cost of {len(runs)} runs, judges included: {format_dollars(cost)}{more}")


def _sum_cost(runs: Sequence[Run]) -> tuple[float | None, int]:
    """Return the known cost of models and judges, and the number of billed requests without a known cost."""
    used = [
        (totals, name in run.facts.get("billing", {}))
        for run in runs
        for name, totals in {"": run.spent, **run.spent_by_judge}.items()
    ]
    costs = [totals.cost_usd for totals, _ in used if totals.cost_usd is not None]
    unpriced = sum(totals.requests - totals.priced for totals, billed in used if billed)
    return (sum(costs) if costs else None), unpriced


def _write_report(name: str, runs: Sequence[tuple[SweepRun, Run]]) -> None:
    """Write one report next to the runs; print a note if a required package is missing."""
    from assay.core.errors import MissingPackage
    from assay.core.installation import assay_version
    from assay.viewer.atomic_files import write_atomically
    from assay.viewer.report import ReportOptions, build_report, render_page

    if not runs:
        return
    path = runs[0][1].folder.parent / f"{name}.html"
    options = ReportOptions(title=name, labels=tuple(cell.name for cell, _ in runs))
    try:
        report = build_report([run for _, run in runs], options, version=assay_version())
        write_atomically(path, render_page(report))
    except MissingPackage as error:
        click.echo(f"no report written: {error.what}; {error.hint}", err=True)
    else:
        click.echo(f"report    {path}", err=True)


def _to_json(cell: SweepRun, run: Run, failed: Mapping[str, int]) -> dict[str, Any]:
    from assay.viewer.exports.lm_eval import build_results

    return {
        "model": cell.model,
        "setting": cell.setting,
        "folder": str(run.folder),
        "exit_code": failed.get(cell.name, 0),
        "finished": run.finished,
        "usage": {name: totals.to_json() for name, totals in {"": run.spent, **run.spent_by_judge}.items()},
        "results": build_results(run)["results"] if run.finished else {},
    }


def print_forecast(planned: Sequence[tuple[SweepRun, Plan]], *, as_json: bool) -> None:
    """Print one line per (cell, plan) and the total of the remaining work."""
    rows = [_build_forecast_row(cell, plan) for cell, plan in planned]
    if as_json:
        click.echo(json.dumps({"runs": rows}, ensure_ascii=False, indent=2))
        return
    _print_forecast_table(rows)
    left = [row for row in rows if row["state"] != "finished"]
    documents, requests = (sum(row[key] for row in left) for key in ("documents", "requests"))
    click.echo(
        f"{len(left)} of {len(rows)} runs remaining: {documents} documents, at most {requests} requests"
    )
    _print_cost([row["estimate"] for row in left])
    for note in dict.fromkeys(note for row in rows for note in row["notes"]):
        click.echo(f"note: {note}")


def _build_forecast_row(cell: SweepRun, plan: Plan) -> dict[str, Any]:
    from assay.engine.planning.cost_forecast import forecast_cost
    from assay.engine.planning.setup.journal_setup import find_finished_run

    expected = forecast_cost(plan)
    started = (plan.folder / "journal.sqlite").exists()
    return {
        "model": cell.model,
        "setting": cell.setting,
        "run": plan.run_id,
        "state": "finished" if find_finished_run(plan) is not None else "started" if started else "new",
        "tasks": list(plan.tasks),
        "documents": plan.documents,
        "requests": sum(sum(kinds.values()) for kinds in expected.counts.values()),
        "estimate": expected.to_json(),
        "notes": list(plan.notes),
    }


def _print_forecast_table(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.markup import escape

    from assay.cli.tables import print_table
    from assay.viewer.number_format import format_count
    from assay.viewer.text_tables import Column, TextTable

    table = TextTable(
        columns=[
            Column(title="model", wrap=True),
            Column(title="setting", wrap=True),
            Column(title="state"),
            Column(title="tasks", justify="right", fold=3, folded="{} tasks"),
            Column(title="documents", justify="right", fold=2, folded="{} documents"),
            Column(title="requests", justify="right"),
            Column(title="tokens", justify="right", fold=1, folded="{} tokens"),
            Column(title="cost", justify="right"),
        ]
    )
    for row in rows:
        estimate = row["estimate"]
        tokens = [
            read + written
            for read, written in zip(estimate["input_tokens"], estimate["output_tokens"], strict=True)
        ]
        table.add_row(
            escape(row["model"]),
            escape(row["setting"]),
            row["state"],
            str(len(row["tasks"])),
            str(row["documents"]),
            str(row["requests"]),
            f"{format_count(tokens[0])} – {format_count(tokens[1])}",
            _format_cost(estimate),
        )
    print_table(table)


def _format_cost(estimate: Mapping[str, Any]) -> str:
    from assay.viewer.number_format import format_dollars

    if estimate["cost_usd"] is None:
        return "?" if estimate["billed_as"] else ""
    return " – ".join(format_dollars(end) for end in estimate["cost_usd"])


def _print_cost(estimates: Sequence[Mapping[str, Any]]) -> None:
    from assay.viewer.number_format import format_dollars

    known = [estimate["cost_usd"] for estimate in estimates if estimate["cost_usd"] is not None]
    if known:
        low, high = (sum(bounds[index] for bounds in known) for index in (0, 1))
        click.echo(
            f"cost: {format_dollars(low)} to {format_dollars(high)}, without judges and cached responses"
        )
    if unknown := {estimate["billed_as"] for estimate in estimates if estimate["cost_usd"] is None} - {""}:
        click.echo(f"cost unknown: no price for {', '.join(sorted(unknown))} (--prices FILE)")
