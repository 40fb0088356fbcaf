"""What is asked of a batch API. Each provider's is one class with these members."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from assay.core.requests import Generate
from assay.models.remote.chat import Reading
from assay.models.remote.endpoint import Endpoint

__all__ = ["BatchService", "Line", "Refused", "Status"]


@dataclass(frozen=True, slots=True)
class Line:
    """One request of a batch."""

    name: str
    """What it is called in the batch: the request's own hash."""

    body: bytes
    """The call, as JSON."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a batch is getting on."""

    state: Literal["running", "ended", "failed"]
    why: str = ""
    """Of one that failed as a whole."""

    done: int = 0
    """Lines that came to an end."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A line of a batch that came to nothing."""

    kind: str
    message: str


class BatchService(Protocol):
    """A provider's batch API."""

    @property
    def most_lines(self) -> int:
        """How many requests a batch may have."""
        ...

    @property
    def most_bytes(self) -> int:
        """How large a batch may be."""
        ...

    def endpoint(self) -> Endpoint: ...

    async def learn(self, endpoint: Endpoint) -> None:
        """Find out which settings the model refuses: a batch of calls it refuses would be a day lost."""
        ...

    def body(self, request: Generate) -> bytes:
        """A request as the service reads it. Called in a thread; media are encoded here."""
        ...

    async def submit(self, endpoint: Endpoint, key: str, lines: Sequence[Line]) -> str:
        """Hand a batch in, once: no second try of its own. Gives the service's name for it."""
        ...

    async def find(
        self, endpoint: Endpoint, key: str, count: int, since: float, known: set[str]
    ) -> str | None:
        """The name of a batch that was handed in as `key`, if it ever arrived; none of the `known` ones."""
        ...

    async def status(self, endpoint: Endpoint, batch: str) -> Status: ...

    def results(self, endpoint: Endpoint, batch: str) -> AsyncIterator[tuple[str, Reading | Refused]]:
        """What became of each line, in any order; lines may be missing."""
        ...
