"""`assay run`: parse, call, print. Data to standard output, talk to standard error."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from assay.cli.options import OptionsCommand, add_run_options, given_options, spec_from
from assay.cli.reporting import announce, command_line, report, start_logging
from assay.core.printable import printable
from assay.core.runspec import RunSpec

__all__ = ["command"]

_HELP = """Evaluate a model on tasks.

Without arguments: the embedded model on the embedded tasks. Re-issuing a command continues its run: nothing that
was answered is asked again, and a finished run is shown at once.

\b
Examples:
  assay run
  assay run --tasks quickstart_addition,quickstart_facts --limit 20
  assay run my_task.yaml --output_path results --log_samples
  assay run --config run.yaml --json
  assay run --from results/my-run/manifest.json --output_path again
"""


@click.command("run", cls=OptionsCommand, help=_HELP)
@click.argument("task_names", nargs=-1, metavar="[TASKS]...")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on standard output.")
@click.option(
    "--from",
    "repeated",
    metavar="MANIFEST|RUN",
    help="Repeat a run with the options it had; flags beside it count, and are said.",
)
@click.option("-v", "--verbosity", default="WARNING", metavar="LEVEL", help="How much to log: DEBUG … ERROR.")
def command(
    task_names: tuple[str, ...],
    as_json: bool,
    repeated: str | None,
    verbosity: str,
    config: Path | None,
    **values: Any,
) -> None:
    """The command; its help text is above."""
    start_logging(verbosity)
    if task_names:
        given = [name for word in task_names for name in word.split(",") if name]
        values["tasks"] = (*(values.get("tasks") or ()), given)
    spec = spec_from(values, config) if repeated is None else _repeated(repeated, values, config)

    from assay import api

    announced = announce if repeated is None else partial(_announce_repeated, repeated)
    run = api.run(spec, progress=True, on_plan=announced, command=command_line())
    report(run, as_json=as_json, max_failures=spec.max_failures)


add_run_options(command)


def _repeated(word: str, values: dict[str, Any], config: Path | None) -> RunSpec:
    """The options of a run that was; what is given beside it counts, and is said."""
    from assay.engine.planning.recorded_plan import recall

    recalled = recall(_manifest(word), given_options(values, config))
    if recalled.given:
        names = ", ".join(f"--{name}" for name in recalled.given)
        click.echo(f"not as in {word}: {names}", err=True)
    for name in recalled.missing:
        click.echo(f"not kept, because it is a secret: {name}; give it again if the model needs it", err=True)
    return recalled.spec


def _manifest(word: str) -> dict[str, Any]:
    from assay.engine.planning.recorded_plan import read_manifest
    from assay.store.finding import find_run

    path = Path(word).expanduser()
    return read_manifest(path if path.is_file() and path.suffix == ".json" else find_run(word))


def _announce_repeated(word: str, plan: Any) -> None:
    """Also say what is different from then although the options are the same."""
    from assay.engine.planning.manifest import make_manifest
    from assay.engine.planning.manifest_diff import compare_manifests

    for change in compare_manifests(_manifest(word), make_manifest(plan)):
        if not (change.kind == "settings" and change.what.startswith("--")):
            click.echo(printable(f"not as in {word}: {change.kind}: {change.what}"), err=True)
    announce(plan)
