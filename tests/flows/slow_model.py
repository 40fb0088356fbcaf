"""A plugin model for whole runs: slow, forgetful of nothing, and it writes down every request it answers.

Tests copy this file into a folder of its own with an entry point, so that a subprocess finds it as an installed
package. What it says depends on the request alone, so every process says the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from assay.core.ports import Traits
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Usage


class SlowModel:
    """Answers from a hash of the request. `broken` names a file: while it exists, some requests fail.

    `hold` names another: while it exists, a process waits after it has answered `free` requests. `blocking` models wait without
    giving the event loop a turn.
    """

    def __init__(
        self,
        log: str,
        delay_ms: float = 3.0,
        window: int = 4,
        in_flight: int = 1,
        broken: str = "",
        share: float = 0.2,
        likelihood: bool = True,
        hold: str = "",
        free: int = 1,
        blocking: bool = False,
    ) -> None:
        self._log = Path(log)
        self._delay_s = delay_ms / 1000
        self._window = window
        self._in_flight = in_flight
        self._broken = Path(broken) if broken else None
        self._share = share
        self._likelihood = likelihood
        self._hold = Path(hold) if hold else None
        self._free = free
        self._blocking = blocking

    @property
    def name(self) -> str:
        return "slow"

    @property
    def traits(self) -> Traits:
        kinds = {"generate", "chat", "image"} | ({"likelihood", "rolling"} if self._likelihood else set())
        return Traits(
            abilities=frozenset(kinds),  # type: ignore[arg-type]
            window=self._window,
            in_flight=self._in_flight,
        )

    async def identify(self) -> Mapping[str, str]:
        return {"name": "slow", "revision": "1"}

    async def open(self) -> None:
        self._note("open")

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        for request in window:
            if self._blocking:
                time.sleep(self._delay_s)
            else:
                await asyncio.sleep(self._delay_s)
            for part in request.prompt.media:
                part.load()
            self._note(request.id)
            yield self._outcome(request)
            self._free -= 1
            while self._hold is not None and self._free <= 0 and self._hold.exists():
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        self._note("close")

    def _outcome(self, request: Request) -> Outcome:
        number = int(sha256(request.id.encode()).hexdigest()[:12], 16)
        if self._broken and self._broken.exists() and number % 1000 < 1000 * self._share:
            return Failure(request_id=request.id, kind="server error", message="503: try again later")
        if isinstance(request, Generate):
            text = f" {number % 4}"
            return Response(request_id=request.id, value=text, finish="stop", usage=Usage(7, 1))
        return Response(
            request_id=request.id, value=LogProbability(-(number % 10_007) / 731, bool(number % 2))
        )

    def _note(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(line + "\n")
