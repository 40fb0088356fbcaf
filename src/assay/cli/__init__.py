"""The `assay` command: one module per subcommand, each imported only when it is called."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["main"]

_THREAD_JOIN_TIMEOUT_S = 3.0


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `assay` command."""
    from assay.cli.app import run_command_line

    sys.excepthook = _print_crash
    code = run_command_line(sys.argv[1:] if arguments is None else arguments)
    _discard_output_without_reader()
    _force_exit_if_threads_hang(code)
    sys.exit(code)


def _discard_output_without_reader() -> None:
    """Write what is left of the output to the null device if its reader has ended, as `head` does after its lines.

    Otherwise Python reports a broken pipe when it writes the rest at exit.
    """
    import os

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            null_device = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_device, stream.fileno())
            os.close(null_device)
        except ValueError:
            pass  # the stream is closed


def _print_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected error with its traceback, redacting secrets that a library may have put into the message."""
    from traceback import format_exception

    from assay.core.secrets import redact

    sys.stderr.write(redact("".join(format_exception(kind, error, trace))))


def _force_exit_if_threads_hang(code: int) -> None:
    """Exit the process although user code left threads that do not end; Python would wait for them forever."""
    import atexit
    import os
    import threading
    import time
    from contextlib import suppress

    deadline = time.monotonic() + _THREAD_JOIN_TIMEOUT_S
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                atexit._run_exitfuncs()
                with suppress(ValueError, OSError):  # a closed stream or a broken pipe
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
