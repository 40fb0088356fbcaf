"""`assay run`: evaluate a model. Results go to standard output, progress and messages to standard error."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.arguments import split_names
from assay.cli.options import OptionsCommand, add_run_options, build_run_spec, collect_options
from assay.cli.run_output import announce_run, get_command_line, report_run, start_logging
from assay.core.errors import InvalidOption, LockDrift
from assay.core.options.run_spec import RunSpec
from assay.core.terminal_text import escape_control_characters

if TYPE_CHECKING:
    from assay.engine.planning.records import Plan

__all__ = ["command"]

_HELP = """Evaluate a model on tasks.

Without arguments, evaluates the embedded model on the embedded tasks. Repeating a command continues its run: responses
are never requested twice, and a finished run is shown immediately.

\b
Examples:
  assay run
  assay run --tasks quickstart_addition,quickstart_facts --limit 20
  assay run my_task.yaml --output_path results --log_samples
  assay run --config run.yaml --json
  assay run --from results/my-run/manifest.json --output_path again
  assay run --locked eval.lock --output_path results
"""


@click.command("run", cls=OptionsCommand, help=_HELP)
@click.argument("task_names", nargs=-1, metavar="[TASKS]...")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on standard output.")
@click.option(
    "--from",
    "repeated",
    metavar="MANIFEST|RUN",
    help="Repeat a run with its options; other flags override them.",
)
@click.option(
    "--locked",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Take tasks, model and settings from a lockfile of `assay lock`; stop if anything differs from it.",
)
@click.option(
    "--allow_drift",
    multiple=True,
    metavar="KINDS",
    help="With --locked: accept and record differences of these kinds (versions, code, …, all).",
)
@click.option(
    "-v", "--verbosity", default="WARNING", metavar="LEVEL", help="Log level: DEBUG, INFO, WARNING or ERROR."
)
def command(
    task_names: tuple[str, ...],
    as_json: bool,
    repeated: str | None,
    locked: Path | None,
    allow_drift: tuple[str, ...],
    verbosity: str,
    config: Path | None,
    **values: Any,
) -> None:
    """Run the command; its help text is above."""
    start_logging(verbosity)
    if task_names:
        given = [name for word in task_names for name in word.split(",") if name]
        values["tasks"] = (*(values.get("tasks") or ()), given)
    if locked is not None or allow_drift:
        _run_locked(locked, split_names(allow_drift), repeated, collect_options(values, config), as_json)
        return
    spec = (
        build_run_spec(values, config) if repeated is None else _load_repeated_spec(repeated, values, config)
    )

    from assay import api

    announced = announce_run if repeated is None else partial(_announce_repeated, repeated)
    run = api.run(spec, progress=True, on_plan=announced, command=get_command_line())
    report_run(run, as_json=as_json, max_failures=spec.max_failures)


add_run_options(command)


def _run_locked(
    locked: Path | None, allowed: list[str], repeated: str | None, options: dict[str, Any], as_json: bool
) -> None:
    """Run what a lockfile says; print each difference before the error."""
    from assay import api
    from assay.cli.verify import print_changes

    if locked is None:
        raise InvalidOption("--allow_drift needs --locked FILE", where="--allow_drift")
    if repeated is not None:
        raise InvalidOption("--locked and --from cannot be used together", hint="remove one of them")
    try:
        run = api.run(
            locked=locked,
            allow_drift=allowed,
            progress=True,
            on_plan=announce_run,
            command=get_command_line(),
            **options,
        )
    except LockDrift as error:
        print_changes(error.changes, err=True)  # type: ignore[arg-type]
        raise
    report_run(run, as_json=as_json, max_failures=options.get("max_failures"))


def _load_repeated_spec(word: str, values: dict[str, Any], config: Path | None) -> RunSpec:
    """Return the options of an earlier run, overridden by flags; print the overrides."""
    from assay.engine.planning.manifests.recorded_plan import load_options

    recalled = load_options(_read_manifest(word), collect_options(values, config))
    if recalled.given:
        names = ", ".join(f"--{name}" for name in recalled.given)
        click.echo(f"overrides options of {word}: {names}", err=True)
    for name in recalled.missing:
        click.echo(
            f"not stored because it is a secret: {name}; pass it again if the model needs it", err=True
        )
    return recalled.spec


def _read_manifest(word: str) -> dict[str, Any]:
    from assay.engine.planning.manifests.recorded_plan import read_manifest
    from assay.store.runs.lookup import find_run

    path = Path(word).expanduser()
    return read_manifest(path if path.is_file() and path.suffix == ".json" else find_run(word))


def _announce_repeated(word: str, plan: Plan) -> None:
    """Announce the run and print what changed since the earlier run, apart from options."""
    from assay.engine.planning.manifests.manifest import make_manifest
    from assay.engine.planning.manifests.manifest_diff import compare_manifests

    for change in compare_manifests(_read_manifest(word), make_manifest(plan)):
        if not (change.kind == "settings" and change.what.startswith("--")):
            click.echo(
                escape_control_characters(f"changed since {word}: {change.kind}: {change.what}"), err=True
            )
    announce_run(plan)
