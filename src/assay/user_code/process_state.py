"""Keep what user code does to the process from reaching anything else: streams and working directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["ProcessState"]


class ProcessState:
    """The streams and the working directory as user code finds them.

    Standard output is for results only, so what user code prints goes to standard error.
    """

    def __init__(self) -> None:
        self._output, self._errors = sys.stdout, sys.stderr
        self._folder: Path | None = None
        with suppress(OSError):  # the folder was removed
            self._folder = Path.cwd()

    @contextmanager
    def redirect_output(self) -> Iterator[None]:
        """Send standard output to standard error while the block runs; restore everything afterwards."""
        sys.stdout = self._errors
        try:
            yield
        finally:
            self.restore()
            sys.stdout = self._output

    def restore(self) -> None:
        """Undo what user code changed: swapped streams, another working directory."""
        if sys.stdout is not self._errors or sys.stderr is not self._errors:
            sys.stdout = sys.stderr = self._errors
        with suppress(OSError):
            if self._folder is not None and Path.cwd() != self._folder:
                os.chdir(self._folder)
