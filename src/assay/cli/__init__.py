"""The `assay` command: one module per subcommand, each imported only when it is called."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `assay` command."""
    from assay.cli.app import call

    sys.exit(call(sys.argv[1:] if arguments is None else arguments))
