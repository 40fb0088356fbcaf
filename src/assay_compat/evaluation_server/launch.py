"""The command line of the evaluation server: `lmms-eval serve` and `python -m lmms_eval.launch_server`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from assay.core.errors import AssayError, InvalidOption
from assay_compat.evaluation_server.http_server import launch_server
from assay_compat.evaluation_server.server_args import ServerArgs

__all__ = ["main", "prepare_server_args", "run_server"]


class _Parser(argparse.ArgumentParser):
    """Raises Assay's error instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise InvalidOption(message, where=self.prog)


def prepare_server_args(argv: Sequence[str]) -> ServerArgs:
    """Parse a command line.

    Raises:
        InvalidOption: A flag is unknown, or the port is no port.
    """
    parser = _Parser(
        prog="lmms_eval serve",
        description="Start the evaluation server. Assay runs the jobs.",
        allow_abbrev=False,
    )
    parser.add_argument("--host", default="localhost", help="Address to listen on (default: localhost).")
    parser.add_argument("--port", type=int, default=8000, help="Port to listen on (default: 8000).")
    given = parser.parse_args(list(argv))
    try:
        return ServerArgs(host=given.host, port=given.port)
    except ValueError as error:
        raise InvalidOption(str(error), where="--port") from None


def run_server(server_args: ServerArgs) -> None:
    """Serve until interrupted."""
    launch_server(server_args)


def main(argv: Sequence[str]) -> NoReturn:
    """Start a server for a command line, and exit."""
    from assay.cli.app import print_error

    try:
        run_server(prepare_server_args(argv))
    except AssayError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\nserver stopped\n")
    sys.exit(0)
