"""`assay new`: create the files of a new task, model, metric or filter."""

from __future__ import annotations

import click

from assay.cli.new.plugins import filter_command, metric_command, model_command
from assay.cli.new.task import task_command

__all__ = ["command"]

_HELP = """Create the files of a new task, model, metric or filter.

\b
Examples:
  assay new task capitals --from capitals.csv
  assay new task my_arc --from allenai/ai2_arc --config ARC-Easy --split test
  assay new model my_server
  assay new metric letters_right
"""

command = click.Group(
    "new", help=_HELP, context_settings={"token_normalize_func": lambda token: token.replace("-", "_")}
)
for subcommand in (task_command, model_command, metric_command, filter_command):
    command.add_command(subcommand)
