"""The terminal of this process: text out, lines in, and a way to stop waiting for one.

It is the controlling terminal (`/dev/tty`), not standard input: results may be piped while somebody is asked.
"""

from __future__ import annotations

import os
import select
from typing import Protocol

from assay.core.errors import BadOption

__all__ = ["Stopped", "Terminal", "Tty"]

_DEVICE = "/dev/tty"


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class Terminal(Protocol):
    """Where somebody can be asked."""

    def say(self, text: str) -> None: ...

    def ask(self, question: str) -> str | None:
        """The line that is typed; None for the end of input (Ctrl-D)."""
        ...

    def close(self) -> None:
        """Stop waiting. Safe from another thread, and again."""
        ...


class Tty:
    """The terminal this process was started from."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            BadOption: There is none.
        """
        try:
            self._device = os.open(_DEVICE, os.O_RDWR | os.O_NOCTTY)
        except OSError:
            raise BadOption(
                "the model `human` asks in the terminal, and there is none",
                where="--model",
                hint="run it from a terminal, in the foreground",
            ) from None
        self._heard = b""
        self._wake, self._waker = os.pipe()
        self._closed = False

    def say(self, text: str) -> None:
        if self._closed:
            raise Stopped
        data = (text + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(self._device, data) :]

    def ask(self, question: str) -> str | None:
        self.say(question)
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._device, self._wake], [], [])
            if self._wake in ready or self._closed:
                raise Stopped
            more = os.read(self._device, 65_536)
            if not more:
                return None
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.write(self._waker, b"x")

    def __del__(self) -> None:
        for name in ("_device", "_wake", "_waker"):
            if (descriptor := self.__dict__.pop(name, None)) is not None:
                os.close(descriptor)
