"""Who answers what: windows to replicas, whoever is free. Knows nothing of Ray.

    window -> portions -> a free replica -> outcomes -> whoever asked the window

A replica is given its next portion shortly before it is through with the last. One that dies is replaced, and what it had
not answered goes elsewhere. While more windows are to come a portion is as much as the model likes at a time, or more where that
takes it no time; towards the end portions become small, so that no replica is left with a large one while the others have
nothing to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.core.errors import AssayError
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.models.replicas.portions import (
    DEATHS_ALLOWED,
    MOVES_ALLOWED,
    Asked,
    Portion,
    cut,
    portion_size,
    worthwhile,
)

__all__ = ["Fleet", "Replica", "ReplicaDied", "Sizes"]

_STILLBIRTHS_ALLOWED = 3
"""Replicas in a row that may die while they are opened before the model is given up."""


_SOON_S = 0.25
"""A replica that has less than this left to do is given more: answers are on their way for a tenth of a second."""


class ReplicaDied(Exception):
    """A replica is gone; whatever it was asked has to be asked again."""

    def __init__(self, why: str, *, by_itself: bool = True) -> None:
        super().__init__(why)
        self.by_itself = by_itself
        """False where its machine went: no request is to blame."""


class Replica(Protocol):
    """One copy of the model, opened."""

    busy_s: float
    """How long it worked on the portion it reported last: waiting and the way there and back are not work."""

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        """Outcomes, as many at a time as there are.

        Raises:
            ReplicaDied: It is gone.
        """
        ...

    async def release(self) -> None:
        """Let go of it; it may be gone already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much goes where."""

    replicas: int
    window: int
    """Requests the model likes at a time."""

    at_once: int
    """Portions a replica works on at the same time."""

    least: int = 1
    """Requests it computes together: portions are not smaller without need."""

    @property
    def in_flight(self) -> int:
        """Windows the engine keeps open: those being answered, and one more for each replica."""
        return self.replicas * (self.at_once + 1)


@dataclass(slots=True, eq=False)
class _Seat:
    """A replica at work."""

    replica: Replica
    open: list[Portion] = field(default_factory=list)
    """In the order in which they were handed over."""

    gone: asyncio.Event = field(default_factory=asyncio.Event)
    guilty: frozenset[Portion] = frozenset()
    """What it was working on when it died; other portions were only waiting."""


class Fleet:
    """Replicas, and the windows that wait for them."""

    def __init__(self, hire: Callable[[], Awaitable[Replica]], sizes: Sizes) -> None:
        self._hire = hire
        self._sizes = sizes
        self._waiting: deque[Portion] = deque()
        self._suspects: deque[Portion] = deque()
        """What replicas died over: asked apart from everything else."""

        self._isolated: _Seat | None = None
        """The replica that is kept free for suspects while others have enough to do."""

        self._asked: set[Asked] = set()
        self._seats: dict[_Seat, None] = {}
        self._replacing = 0
        """Replicas that were there, died, and have not been replaced yet."""

        self._tasks: set[asyncio.Task[None]] = set()
        self._seconds_each: float | None = None
        self._error: Exception | None = None
        self._joined = asyncio.Event()
        self._closed = False
        self.deaths = 0
        """Replicas that died at work."""

    @property
    def ready(self) -> int:
        """Replicas that are opened."""
        return len(self._seats)

    async def open(self) -> None:
        """Begin to fill all seats, and wait for the first; the others come when there is room for them.

        Raises:
            Exception: Why the first could not be opened.
        """
        for _ in range(self._sizes.replicas):
            self._start(self._keep_filled())
        await self._joined.wait()
        if not self._seats and self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Stop, and let go of every replica."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        seats, self._seats = list(self._seats), {}
        await asyncio.gather(*(seat.replica.release() for seat in seats), return_exceptions=True)

    # --- windows -----------------------------------------------------------------------------------

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """One outcome per request; what broke is raised when everything else has come."""
        asked = Asked(left=1)
        self._asked.add(asked)
        self._waiting.append(Portion(asked, {request.id: request for request in window}))
        asyncio.get_running_loop().call_soon(self._feed_all)  # after all who ask at the same moment
        try:
            while asked.left or not asked.arrived.empty():
                for outcome in await asked.arrived.get():
                    yield outcome
        finally:
            asked.withdrawn = True
            self._asked.discard(asked)
        if asked.error is not None:
            raise asked.error

    def _next(self, seat: _Seat) -> Portion | None:
        """What a replica is to do next: the oldest it may be given."""
        for line in (self._suspects, self._waiting):
            while line and line[0].asked.withdrawn:
                line.popleft()
        if self._suspects and self._may_isolate(seat):
            return None if seat.open else self._suspects.popleft()
        return self._sized(self._waiting.popleft()) if self._waiting else None

    def _may_isolate(self, seat: _Seat) -> bool:
        """Whether this is the replica for suspects: one at a time, unless there is nothing else to do."""
        if self._isolated is None or self._isolated.gone.is_set():
            self._isolated = seat
        return self._isolated is seat or not self._waiting

    def _sized(self, portion: Portion) -> Portion:
        """As much as the model likes while the engine has more windows than fit; else fewer, and the rest waits on."""
        sizes, each = self._sizes, self._seconds_each
        most = max(sizes.window, worthwhile(each))
        if len(self._asked) < sizes.in_flight:
            waiting = len(portion.requests) + sum(len(other.requests) for other in self._waiting)
            most = min(most, portion_size(waiting, max(1, len(self._seats)), sizes.least, each))
        portion, rest = cut(portion, most)
        if rest is not None:
            rest.asked.left += 1
            self._waiting.appendleft(rest)
        return portion

    # --- replicas ----------------------------------------------------------------------------------

    async def _keep_filled(self) -> None:
        """Keep one replica alive: whenever it is gone, another takes its place."""
        proven = stillborn = 0
        while True:
            try:
                replica = await self._hire()
            except ReplicaDied as death:
                stillborn += 1
                if stillborn >= _STILLBIRTHS_ALLOWED:
                    self._replacing -= proven
                    self._give_up(_stillborn(stillborn, death))
                    return
                continue
            except Exception as error:  # noqa: BLE001 - the model said why: whoever asks hears it
                self._replacing -= proven
                self._give_up(error)
                return
            seat = _Seat(replica)
            self._seats[seat] = None
            self._replacing -= proven
            proven, stillborn = 1, 0
            self._joined.set()
            self._feed(seat)
            await seat.gone.wait()
            self._replacing += 1
            self._seats.pop(seat, None)
            await replica.release()

    def _give_up(self, error: Exception) -> None:
        """A replica cannot be had. Others go on; without any, nobody waits in vain."""
        self._error = error
        self._joined.set()
        self._strand()

    def _strand(self) -> None:
        if self._error is None or self._seats or self._replacing:
            return
        for line in (self._suspects, self._waiting):
            while line:
                self._end(line.popleft(), self._error)

    def _feed_all(self) -> None:
        for seat in list(self._seats):
            if not self._waiting and not self._suspects:
                return
            self._feed(seat)
        self._strand()

    def _feed(self, seat: _Seat) -> None:
        while self._wants(seat) and (portion := self._next(seat)) is not None:
            seat.open.append(portion)
            self._start(self._serve(seat, portion))

    def _wants(self, seat: _Seat) -> bool:
        """Whether it has room; a replica that answers one portion at a time has it shortly before the end of that.

        Its last answers are on their way for a while, so that a replica of which few answers are missing may have nothing to do.
        """
        if self._closed or seat.gone.is_set() or any(portion.suspect for portion in seat.open):
            return False
        if len(seat.open) < self._sizes.at_once:
            return True
        if not len(seat.open) == self._sizes.at_once == 1:
            return False
        unanswered = len(seat.open[0].requests)
        soon = self._seconds_each is not None and unanswered * self._seconds_each <= _SOON_S
        return soon or unanswered <= self._sizes.window // 4

    async def _serve(self, seat: _Seat, portion: Portion) -> None:
        count, error = len(portion.requests), None
        try:
            async for outcomes in seat.replica.answer(list(portion.requests.values())):
                portion.asked.arrived.put_nowait(portion.take(outcomes))
                self._feed(seat)
        except ReplicaDied as death:
            self._mark_dead(seat)
            portion.moves += not death.by_itself
            to_blame = death.by_itself or portion.moves > MOVES_ALLOWED
            self._ask_again(portion, death, guilty=portion in seat.guilty and to_blame)
            self._feed_all()
            return
        except Exception as caught:  # noqa: BLE001 - the model broke: the engine says what becomes of that
            error = caught
        if error is None:
            self._learn(seat, count)
        seat.open.remove(portion)
        if self._isolated is seat and not self._suspects:
            self._isolated = None
        self._end(portion, error)
        self._feed_all()

    def _mark_dead(self, seat: _Seat) -> None:
        """The first who notices says what it was doing."""
        if not seat.gone.is_set():
            self.deaths += 1
            seat.guilty = frozenset(seat.open[: self._sizes.at_once])
            seat.gone.set()

    def _ask_again(self, portion: Portion, death: ReplicaDied, *, guilty: bool) -> None:
        if not portion.requests or portion.asked.withdrawn:
            self._end(portion)
        elif not guilty:
            (self._suspects if portion.suspect else self._waiting).appendleft(portion)
        elif portion.deaths + 1 >= DEATHS_ALLOWED and len(portion.requests) == 1:
            portion.deaths += 1
            portion.asked.arrived.put_nowait(portion.take(portion.failures(str(death))))
            self._end(portion)
        else:
            pieces = portion.after_death()
            portion.asked.left += len(pieces) - 1
            self._suspects.extend(pieces)

    def _end(self, portion: Portion, error: Exception | None = None) -> None:
        asked = portion.asked
        asked.left -= 1
        asked.error = asked.error or error
        asked.arrived.put_nowait(())

    def _learn(self, seat: _Seat, count: int) -> None:
        """How long a request takes here, as a running mean."""
        together = max(1, min(len(seat.open), self._sizes.at_once))
        took = seat.replica.busy_s / max(1, count) / together
        before = self._seconds_each
        self._seconds_each = took if before is None else 0.8 * before + 0.2 * took

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _stillborn(times: int, death: ReplicaDied) -> AssayError:
    return AssayError(
        f"a replica died {times} times while it was opened: {death}",
        hint="everything answered so far is saved; it may need more memory than its machine has",
    )
