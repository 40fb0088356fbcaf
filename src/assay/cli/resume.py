"""`assay resume`: continue a run with its stored options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.options import OptionsCommand, add_run_options, collect_options
from assay.cli.run_output import announce_run, get_command_line, report_run, start_logging
from assay.core.options.run_spec import list_options

__all__ = ["command"]

_HELP = """Continue an interrupted run with its original options.

Sends only requests without a response, and failed requests. RUN is a run id, the start of one, a path, or `latest`. You
can change options that do not affect results, and you must pass secrets again, because they are not stored.

\b
Examples:
  assay resume latest
  assay resume results/embedded-quickstart-4f2a9c31
  assay resume latest --batch_size 8
"""
_OPTIONS = [name for name, _, option in list_options() if not option.affects_results] + ["model_args"]
_EXCLUDED_OPTIONS = {"include_path", "output_path", "refresh"}


@click.command("resume", cls=OptionsCommand, help=_HELP)
@click.argument("run")
@click.option("--in", "folders", multiple=True, metavar="DIR", help="Folder to search for runs; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on standard output.")
@click.option(
    "-v", "--verbosity", default="WARNING", metavar="LEVEL", help="Log level: DEBUG, INFO, WARNING or ERROR."
)
def command(
    run: str,
    folders: tuple[str, ...],
    as_json: bool,
    verbosity: str,
    config: Path | None,
    **values: Any,
) -> None:
    """Run the command; its help text is above."""
    start_logging(verbosity)

    from assay import api
    from assay.store.runs.lookup import find_run

    finished = api.resume(
        find_run(run, folders, unfinished=True),
        progress=True,
        on_plan=announce_run,
        command=get_command_line(),
        **collect_options(values, config),
    )
    report_run(finished, as_json=as_json, max_failures=values.get("max_failures"))


add_run_options(command, [name for name in _OPTIONS if name not in _EXCLUDED_OPTIONS])
