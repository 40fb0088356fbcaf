"""A model for tests of replicas: logs which process answered what, and can kill its process."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.flows.slow_model import SlowModel

from assay.core.records.requests import Request
from assay.core.records.responses import Outcome


class MortalModel(SlowModel):
    """A `SlowModel` that kills its process when a prompt contains `poison`."""

    def __init__(self, log: str | Path, poison: str = "", **details: Any) -> None:
        super().__init__(str(log), **details)
        self._poison = poison
        self._log_file = Path(log)

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            if self._poison and self._poison in request.prompt.text:
                self._write(f"{request.id} poisoned")
                os.kill(os.getpid(), signal.SIGKILL)
            async for outcome in super().answer([request]):
                yield outcome

    def _note(self, line: str) -> None:
        self._write(f"{line} {'note' if line in ('open', 'close') else 'answered'}")

    def _write(self, line: str) -> None:
        with self._log_file.open("a") as file:
            file.write(f"{os.getpid()} {line}\n")


def read_log(log: Path, event: str = "answered") -> list[tuple[int, str]]:
    """Return (process id, request id) of the events of one kind: `answered`, `poisoned` or `note`."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [(int(words[0]), words[1]) for words in lines if len(words) == 3 and words[2] == event]
