"""`assay help`: the help text of a command."""

from __future__ import annotations

import click

__all__ = ["command"]


_HELP = """Show the help of a command; without a command, list all commands.

\b
Examples:
  assay help run
  assay help runs rm
"""


@click.command("help", help=_HELP)
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
def command(words: tuple[str, ...]) -> int:
    """Run the command; its help text is above."""
    from assay.cli.app import run_command_line

    return run_command_line([*words, "--help"])
