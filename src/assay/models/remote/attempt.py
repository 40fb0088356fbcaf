"""One try of a call: it waits for its turn, goes out in that very moment, and gives its place on when the reply is there.

Nothing of this waits for the event loop to come round: with many calls open, replies come in flocks, and a call that is
sent only when a whole flock has been read and judged leaves the server idle meanwhile.
"""

from __future__ import annotations

import asyncio
import time

from assay.models.remote.connection import Connection, Reply, TooSlow
from assay.models.remote.faults import BUSY, wait_of
from assay.models.remote.http import Call, HttpClient
from assay.models.remote.traffic import Ended, Gate, Turn

__all__ = ["Attempt"]

_LONGEST_REST_S = 60.0
_TOLD = ("x-ratelimit-remaining-requests", "anthropic-ratelimit-requests-remaining")
"""Headers of services that say how much of a limit is left."""


class Attempt(Turn):
    """One try; await `reply`, and call `give_up` when nobody wants it any more."""

    __slots__ = (
        "_began", "_call", "_connecting", "_connection", "_gate", "_http", "_ticket", "_timeout_s", "reply", "seconds",
    )  # fmt: skip

    def __init__(self, gate: Gate, http: HttpClient, call: Call, timeout_s: float, tokens: int) -> None:
        super().__init__(tokens)
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.seconds = 0.0
        """What it took, from its turn to its end."""

        self._gate, self._http = gate, http
        self._call, self._timeout_s = call, timeout_s
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._ticket = 0
        self._began = 0.0
        gate.queue(self)

    def go(self, ticket: int) -> None:
        """It is its turn: it goes out over a kept connection, or over a new one."""
        self._ticket, self._began = ticket, time.monotonic()
        self._connection = self._http.send(self._call, self._timeout_s, self.reply, self._ended)
        if self._connection is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def given_up(self) -> bool:
        """Whether whoever waited was cancelled."""
        return self.reply.done()

    def give_up(self) -> None:
        """Nobody wants the reply any more."""
        if not self.called:
            self._gate.withdraw(self)
        elif self._connecting is not None:
            self._connecting.cancel()
        elif self._connection is not None:
            self._connection.give_up(self.reply)

    async def _connect(self) -> None:
        try:
            connection = await self._http.connect()
        except BaseException as error:
            self._connecting = None
            self._gate.leave(self._ticket, "failed")
            if not isinstance(error, Exception):
                raise
            if not self.reply.done():
                self.reply.set_exception(error)
            return
        self._connecting, self._connection = None, connection
        self._http.send_over(connection, self._call, self._timeout_s, self.reply, self._ended)

    def _ended(self, outcome: Reply | Exception) -> None:
        """Called by the connection: make room for the next call at once; what the reply says can be read later."""
        self.seconds = time.monotonic() - self._began
        self._gate.leave(self._ticket, self._learnt(outcome), self.seconds)

    def _learnt(self, outcome: Reply | Exception) -> Ended:
        """What it says about how many calls the server can take; a rest it wants is kept from this moment on."""
        if isinstance(outcome, Exception):
            return "late" if isinstance(outcome, TooSlow) else "failed"
        headers, status = outcome.headers, outcome.status
        if status in BUSY:
            if (wait_s := wait_of(headers)) is not None:
                self._gate.lane.quiet(wait_s)
            return "busy"
        if (_TOLD[0] in headers or _TOLD[1] in headers) and (wait_s := wait_of(headers)):
            self._gate.lane.quiet(min(wait_s, _LONGEST_REST_S))
        return "ok" if 200 <= status < 300 else "failed"
