"""What is handed to a replica at a time, and what becomes of it when the replica dies.

The engine asks windows; a portion is a window or a stretch of one, so requests with the same beginning stay together.
Nothing here knows what a replica is.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay.core.requests import Request
from assay.core.responses import Failure, Outcome

__all__ = [
    "DEATHS_ALLOWED",
    "MOVES_ALLOWED",
    "Asked",
    "Portion",
    "cut",
    "portion_size",
    "worthwhile",
]

DEATHS_ALLOWED = 3
"""Replicas a request may cost before it is given up: that is its document's failure."""

MOVES_ALLOWED = 20
"""Machines that may go while a request is on them before that is put down to the request."""

_FEW = 16
"""So many requests are asked one by one after the first death; more of them in groups first."""

_LEAST_S = 0.1
"""A portion below this is more trouble than it is worth."""


@dataclass(slots=True, eq=False)
class Asked:
    """A window the engine waits for."""

    left: int
    """Portions of it that have not ended."""

    arrived: asyncio.Queue[Sequence[Outcome]] = field(default_factory=asyncio.Queue)
    """What its requests led to; an empty portion says that something ended."""

    error: Exception | None = None
    """Why a portion broke as a whole, if one did."""

    withdrawn: bool = False
    """Nobody waits any more."""


@dataclass(slots=True, eq=False)
class Portion:
    """Requests that go to one replica together."""

    asked: Asked
    requests: dict[str, Request]
    """Those without an outcome, by id, in the order in which they are asked."""

    deaths: int = 0
    """Replicas that died over them."""

    moves: int = 0
    """Machines that went while they were on them."""

    @property
    def suspect(self) -> bool:
        """Whether a replica has died over it: it is asked with nothing beside it, so that the next death is its own."""
        return self.deaths > 0

    def after_death(self) -> list[Portion]:
        """What is asked again: in ever smaller pieces, so that one request takes no other with it.

        A request that kills whatever reads it is alone at the latest when it does so for the third time.
        """
        self.deaths += 1
        size = 1 if len(self.requests) <= _FEW or self.deaths > 1 else math.isqrt(len(self.requests) - 1) + 1
        requests = list(self.requests.values())
        return [
            Portion(self.asked, {one.id: one for one in requests[at : at + size]}, self.deaths)
            for at in range(0, len(requests), size)
        ]

    def failures(self, why: str) -> list[Outcome]:
        """What is said of requests that are given up."""
        message = f"{self.deaths} replicas died over this request; the last: {why}"
        return [
            Failure(request_id=key, kind="replica died", message=message, attempts=self.deaths)
            for key in self.requests
        ]

    def take(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """The outcomes that were still missing."""
        return [one for one in outcomes if self.requests.pop(one.request_id, None) is not None]


def cut(portion: Portion, size: int) -> tuple[Portion, Portion | None]:
    """The first `size` requests and the rest; requests with the same prompt share their work and stay together."""
    requests = list(portion.requests.values())
    end = size
    while (
        end < min(len(requests), 2 * size) and requests[end].prompt.digest == requests[end - 1].prompt.digest
    ):
        end += 1
    if end >= len(requests):
        return portion, None
    first = Portion(portion.asked, {one.id: one for one in requests[:end]})
    rest = Portion(portion.asked, {one.id: one for one in requests[end:]})
    return first, rest


def portion_size(waiting: int, replicas: int, least: int, seconds_each: float | None) -> int:
    """How many requests to hand out when no more are to come: fewer and fewer, so that all replicas end together.

    >>> portion_size(waiting=512, replicas=4, least=1, seconds_each=None)
    64
    >>> portion_size(waiting=20, replicas=4, least=1, seconds_each=0.01)
    10
    """
    return max(math.ceil(waiting / (2 * replicas)), least, worthwhile(seconds_each))


def worthwhile(seconds_each: float | None) -> int:
    """How many requests are worth a message, as far as is known how long they take.

    >>> worthwhile(0.01), worthwhile(None)
    (10, 1)
    """
    return math.ceil(_LEAST_S / seconds_each) if seconds_each else 1
