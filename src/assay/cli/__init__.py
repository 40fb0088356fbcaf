"""The `assay` command: one module per subcommand, each imported only when it is called."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["main"]

_PATIENCE_S = 3.0


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `assay` command."""
    from assay.cli.app import call

    sys.excepthook = _print_crash
    code = call(sys.argv[1:] if arguments is None else arguments)
    _let_go_of_threads(code)
    sys.exit(code)


def _print_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An error nobody expected, as Python prints it; without keys, which a library may have put into its message."""
    from traceback import format_exception

    from assay.core.secrets import redacted

    sys.stderr.write(redacted("".join(format_exception(kind, error, trace))))


def _let_go_of_threads(code: int) -> None:
    """End the program although foreign code left threads that do not end: Python itself would wait for them for ever."""
    import atexit
    import os
    import threading
    import time
    from contextlib import suppress

    until = time.monotonic() + _PATIENCE_S
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                atexit._run_exitfuncs()
                with suppress(ValueError, OSError):  # closed, or nobody listens
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
