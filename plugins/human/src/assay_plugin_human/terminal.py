"""The controlling terminal: show text, read lines, and stop waiting from another thread.

It is `/dev/tty`, not standard input, so that results can be piped.
"""

from __future__ import annotations

import os
import select
from typing import Protocol

from assay.core.errors import InvalidOption

__all__ = ["TerminalClosed", "Terminal", "ControllingTerminal"]

_DEVICE = "/dev/tty"


class TerminalClosed(Exception):
    """The terminal was closed while a question was open."""


class Terminal(Protocol):
    """Shows text and reads lines."""

    def show(self, text: str) -> None: ...

    def ask(self, question: str) -> str | None:
        """Show a question and return the typed line; None at the end of input (Ctrl-D)."""
        ...

    def close(self) -> None:
        """Stop waiting. May be called from another thread and several times."""
        ...


class ControllingTerminal:
    """The terminal from which the process was started."""

    def __init__(self) -> None:
        """Open the terminal.

        Raises:
            InvalidOption: The process has no terminal.
        """
        try:
            self._device = os.open(_DEVICE, os.O_RDWR | os.O_NOCTTY)
        except OSError:
            raise InvalidOption(
                "the model `human` needs a terminal",
                where="--model",
                hint="run the command in a terminal, in the foreground",
            ) from None
        self._input = b""
        self._wake, self._waker = os.pipe()
        self._closed = False

    def show(self, text: str) -> None:
        if self._closed:
            raise TerminalClosed
        data = (text + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(self._device, data) :]

    def ask(self, question: str) -> str | None:
        self.show(question)
        while b"\n" not in self._input:
            ready, _, _ = select.select([self._device, self._wake], [], [])
            if self._wake in ready or self._closed:
                raise TerminalClosed
            more = os.read(self._device, 65_536)
            if not more:
                return None
            self._input += more
        line, _, self._input = self._input.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.write(self._waker, b"x")

    def __del__(self) -> None:
        for name in ("_device", "_wake", "_waker"):
            if (descriptor := self.__dict__.pop(name, None)) is not None:
                os.close(descriptor)
