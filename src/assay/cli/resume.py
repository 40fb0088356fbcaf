"""`assay resume`: the stored options of a run, once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.options import OptionsCommand, add_run_options, given_options
from assay.cli.reporting import announce, command_line, report, start_logging
from assay.core.runspec import run_options

__all__ = ["command"]

_HELP = """Go on with a run where it stopped, with the options it was started with.

Nothing that was answered is asked again; failed requests are. RUN is an id, the start of one, a path, or `latest`.
Options that cannot change the result may be given anew, and secrets, which are not kept.

\b
Examples:
  assay resume latest
  assay resume results/embedded-quickstart-4f2a9c31
  assay resume latest --batch_size 8
"""
_OPTIONS = [name for name, _, option in run_options() if not option.shapes_result] + ["model_args"]
_LEFT_OUT = {"include_path", "output_path", "refresh"}


@click.command("resume", cls=OptionsCommand, help=_HELP)
@click.argument("run")
@click.option("--in", "folders", multiple=True, metavar="DIR", help="Look for runs in this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on standard output.")
@click.option("-v", "--verbosity", default="WARNING", metavar="LEVEL", help="How much to log: DEBUG … ERROR.")
def command(
    run: str,
    folders: tuple[str, ...],
    as_json: bool,
    verbosity: str,
    config: Path | None,
    **values: Any,
) -> None:
    """The command; its help text is above."""
    start_logging(verbosity)

    from assay import api
    from assay.store.finding import find_run

    finished = api.resume(
        find_run(run, folders),
        progress=True,
        on_plan=announce,
        command=command_line(),
        **given_options(values, config),
    )
    report(finished, as_json=as_json, max_failures=values.get("max_failures"))


add_run_options(command, [name for name in _OPTIONS if name not in _LEFT_OUT])
