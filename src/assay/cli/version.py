"""`assay version`: the version of Assay."""

from __future__ import annotations

import click

__all__ = ["command"]


_HELP = """Show the version of Assay.

\b
Examples:
  assay version
"""


@click.command("version", help=_HELP)
def command() -> None:
    """Run the command; its help text is above."""
    from assay.core.installation import assay_version

    click.echo(f"assay {assay_version()}")
