"""How many calls are open at once: grows while the server keeps up, shrinks when it says it does not.

    gate = Gate(ceiling=32)
    gate.queue(turn)                           # calls turn.go(ticket) when it is its turn
    gate.leave(ticket, "ok", seconds=0.4)      # or "busy", "late", "failed"; calls the next one

Calls to the same server share its pauses and budgets, whichever model makes them; each model has its own gate.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Literal

__all__ = ["START", "Budget", "Ended", "Gate", "Lane", "Turn", "lane_of"]

Ended = Literal["ok", "busy", "late", "failed"]

START = 8
"""Calls open at once to begin with, where nobody knows the server."""

_SHRINK = {"busy": 0.5, "late": 0.7}
_LEAST = {"busy": 1.0, "late": 2.0}
_TOLERANCE = 2.0
"""A server that answers so many times slower than it did, and no more per second, has enough to do."""

_WORTH = 1.05
"""More calls at once must bring at least so much more answers per second."""


class Budget:
    """So much per minute: of calls, or of tokens. May be used ahead for a second or so, then evenly."""

    def __init__(self, per_minute: float) -> None:
        self.rate = per_minute / 60.0
        self._room = max(self.rate, 1.0)
        self._left = self._room
        self._at = time.monotonic()

    def wait_s(self, amount: float) -> float:
        """Seconds until so much may be used."""
        self._refill()
        return max(0.0, (min(amount, self._room) - self._left) / self.rate)

    def take(self, amount: float) -> None:
        """Use it; what turns out to be more than was thought is paid back later."""
        self._refill()
        self._left -= amount

    def _refill(self) -> None:
        now = time.monotonic()
        self._left = min(self._room, self._left + (now - self._at) * self.rate)
        self._at = now


class Lane:
    """What all who call one server share: its pauses, and the budgets the user gave for it."""

    def __init__(self) -> None:
        self.requests: Budget | None = None
        self.tokens: Budget | None = None
        self._quiet_until = 0.0

    def limit(self, rpm: float | None, tpm: float | None) -> None:
        """Set budgets per minute; of several, the smaller ones count."""
        if rpm is not None and (self.requests is None or rpm / 60 < self.requests.rate):
            self.requests = Budget(rpm)
        if tpm is not None and (self.tokens is None or tpm / 60 < self.tokens.rate):
            self.tokens = Budget(tpm)

    def quiet(self, seconds: float) -> None:
        """The server wants to be left alone for so long."""
        self._quiet_until = max(self._quiet_until, time.monotonic() + seconds)

    def wait_s(self, tokens: int) -> float:
        """Seconds until a call may go out; 0 for now."""
        if not self._quiet_until and self.requests is None and self.tokens is None:
            return 0.0
        wait = self._quiet_until - time.monotonic()
        if wait <= 0:
            self._quiet_until = wait = 0.0
        if self.requests is not None:
            wait = max(wait, self.requests.wait_s(1))
        if self.tokens is not None:
            wait = max(wait, self.tokens.wait_s(tokens))
        return wait

    def take(self, tokens: int) -> None:
        """A call goes out."""
        if self.requests is not None:
            self.requests.take(1)
        if self.tokens is not None:
            self.tokens.take(tokens)

    def settle(self, thought: int, used: int) -> None:
        """A call used other tokens than was thought."""
        if self.tokens is not None:
            self.tokens.take(used - thought)


_lanes: dict[str, Lane] = {}


def lane_of(origin: str) -> Lane:
    """The lane of a server, one per process."""
    return _lanes.setdefault(origin, Lane())


class Turn:
    """Somebody who waits for a place at a gate; `go` is called, once, when it is given."""

    __slots__ = ("called", "timer", "tokens")

    def __init__(self, tokens: int = 0) -> None:
        self.tokens = tokens
        self.called = False
        self.timer: asyncio.TimerHandle | None = None
        """Runs while the place is given and the server wants to be left alone."""

    def go(self, ticket: int) -> None:
        """It is your turn; the ticket has to be handed back with `leave`."""
        raise NotImplementedError

    def given_up(self) -> bool:
        """Whether nobody waits for it any more, though nobody has said so yet."""
        raise NotImplementedError


class _Patient(Turn):
    """One who is woken when the turn comes."""

    __slots__ = ("given",)

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.given: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def go(self, ticket: int) -> None:
        self.given.set_result(ticket)

    def given_up(self) -> bool:
        return self.given.done()


class Gate:
    """Lets calls out, as many at once as the server can take, first come first served."""

    def __init__(self, ceiling: int, lane: Lane | None = None, *, start: int = START) -> None:
        self.ceiling = max(1, ceiling)
        self.limit = float(min(self.ceiling, start))
        self.active = 0
        self.lane = lane or Lane()
        self._waiting: deque[Turn] = deque()
        self._troubled = False
        """Whether the server ever had too much to do: from then on growth is slow."""

        self._epoch = 0
        """Counts shrinkings: what was sent before one says nothing about what came of it."""

        self._ended = 0
        self._seconds = 0.0
        self._since = 0.0
        self._best_latency = 0.0
        self._last_rate = 0.0

    async def enter(self, tokens: int = 0) -> int:
        """Wait for a turn; the ticket has to be handed back with `leave`."""
        turn = _Patient(tokens)
        self.queue(turn)
        try:
            return await turn.given
        except asyncio.CancelledError:
            if turn.called:  # the place was given in the same moment
                self._free()
            else:
                self.withdraw(turn)
            raise

    def queue(self, turn: Turn) -> None:
        """Call `turn.go` as soon as there is a place: now, or from within the `leave` of another call."""
        if self._waiting or self.active >= int(self.limit):
            self._waiting.append(turn)
        else:
            self.active += 1
            self._let(turn)

    def withdraw(self, turn: Turn) -> None:
        """Somebody whose turn has not come wants it no more."""
        if turn.timer is not None:
            turn.timer.cancel()
            turn.timer = None
            self._free()
        elif turn in self._waiting:
            self._waiting.remove(turn)

    def _let(self, turn: Turn) -> None:
        """Let one who has a place out, when the server may be called."""
        wait_s = self.lane.wait_s(turn.tokens)
        if wait_s > 0:
            turn.timer = asyncio.get_running_loop().call_later(wait_s, self._rested, turn)
            return
        self.lane.take(turn.tokens)
        turn.called = True
        turn.go(self._epoch)

    def _rested(self, turn: Turn) -> None:
        turn.timer = None
        if turn.given_up():
            self._free()
        else:
            self._let(turn)

    def _free(self) -> None:
        self.active -= 1
        self._call_next()

    def leave(self, ticket: int, ended: Ended, seconds: float = 0.0) -> None:
        """A call is over: make room, and learn from it."""
        self.active -= 1
        if ended == "ok":
            self._grow(seconds)
        elif ended in _SHRINK and ticket == self._epoch:
            self.limit = max(min(_LEAST[ended], self.limit), self.limit * _SHRINK[ended])
            self._troubled = True
            self._epoch += 1
            self._restart()
        self._call_next()

    def _grow(self, seconds: float) -> None:
        """After each full round of answers, see whether more at once brought more per second."""
        if self.limit >= self.ceiling:
            return
        now = time.monotonic()
        if not self._ended:
            self._since = self._since or now - seconds
        self._ended += 1
        self._seconds += seconds
        if self._ended < self.limit:
            return
        rate = self._ended / max(now - self._since, 1e-6)
        latency = self._seconds / self._ended
        self._best_latency = min(self._best_latency or latency, latency)
        slower = latency > _TOLERANCE * self._best_latency
        if slower and rate < _WORTH * self._last_rate:
            self.limit = max(1.0, self.limit * 0.9)
            self._troubled = True
        elif self._troubled:
            self.limit = min(self.ceiling, self.limit + max(1.0, 0.05 * self.limit))
        else:
            self.limit = min(self.ceiling, self.limit * 2)
        self._last_rate = rate
        self._restart()

    def _restart(self) -> None:
        self._ended, self._seconds, self._since = 0, 0.0, time.monotonic()

    def _call_next(self) -> None:
        while self._waiting and self.active < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.given_up():
                self.active += 1
                self._let(turn)
