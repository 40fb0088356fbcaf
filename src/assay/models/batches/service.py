"""The interface of a batch API. Each provider implements it with one class."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from assay.core.records.requests import Generate
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.protocol.chat import ParsedReply

__all__ = ["BatchLine", "BatchService", "BatchStatus", "LineError", "parse_result_line"]


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request of a batch."""

    request_id: str
    """Identifies the line in the batch."""

    body: bytes
    """The payload of the call, as JSON."""


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """Progress of a batch."""

    state: Literal["running", "ended", "failed"]
    reason: str = ""
    """Why the batch failed as a whole."""

    done: int = 0
    """Number of processed lines."""


@dataclass(frozen=True, slots=True)
class LineError:
    """Why a line of a batch failed."""

    kind: str
    message: str


def parse_result_line(line: str) -> dict[str, Any] | None:
    """Parse a line of a result file; None if it is damaged, so that its request counts as unanswered."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "custom_id" in found else None


class BatchService(Protocol):
    """A provider's batch API."""

    @property
    def max_lines(self) -> int:
        """Maximum number of requests per batch."""
        ...

    @property
    def max_bytes(self) -> int:
        """Maximum size of a batch."""
        ...

    def open_endpoint(self) -> Endpoint: ...

    async def probe_settings(self, endpoint: Endpoint) -> None:
        """Find out which settings the model rejects, because a rejected batch can cost a day."""
        ...

    def write_body(self, request: Generate) -> bytes:
        """Return the payload of a request. Called in a thread; encodes media."""
        ...

    async def submit(self, endpoint: Endpoint, key: str, lines: Sequence[BatchLine]) -> str:
        """Submit a batch without retries. Return the service's id of the batch."""
        ...

    async def find_batch(
        self, endpoint: Endpoint, key: str, count: int, since: float, known: set[str]
    ) -> str | None:
        """Return the id of the batch that was submitted as `key`, if it arrived; never one of `known`."""
        ...

    async def get_status(self, endpoint: Endpoint, batch: str) -> BatchStatus: ...

    def read_results(
        self, endpoint: Endpoint, batch: str
    ) -> AsyncIterator[tuple[str, ParsedReply | LineError]]:
        """Yield the result of each line, in any order; lines may be missing."""
        ...
