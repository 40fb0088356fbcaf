"""Batches of requests for replicas: their size, and how they are split after a replica dies.

The engine submits windows; a batch is a window or a contiguous part of one, so requests with the same prefix stay together.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Outcome

__all__ = [
    "MAX_DEATHS",
    "MAX_NODE_LOSSES",
    "PendingWindow",
    "RequestBatch",
    "compute_batch_size",
    "compute_min_batch_size",
    "split_batch",
]

MAX_DEATHS = 3
"""A request fails after it has killed this many replicas."""

MAX_NODE_LOSSES = 20
"""Nodes that may be lost while a request runs on them before the request counts as the cause."""

_MAX_SINGLE_RETRIES = 16
"""After the first death, up to this many requests are retried one by one; more requests in groups."""

_MIN_BATCH_S = 0.1
"""Shorter batches cost more overhead than they save."""


@dataclass(slots=True, eq=False)
class PendingWindow:
    """A window with missing outcomes."""

    open_batches: int
    """Number of its batches that have not ended."""

    outcomes: asyncio.Queue[Sequence[Outcome]] = field(default_factory=asyncio.Queue)
    """Outcomes that arrived; an empty group wakes the reader when a batch ends."""

    error: Exception | None = None
    """The first error of a batch as a whole."""

    withdrawn: bool = False
    """Whether the caller has stopped reading."""


@dataclass(slots=True, eq=False)
class RequestBatch:
    """Requests that are sent to one replica together."""

    window: PendingWindow
    requests: dict[str, Request]
    """Requests without an outcome, by id, in order."""

    deaths: int = 0
    """Number of replicas that died while processing them."""

    node_losses: int = 0
    """Number of nodes that were lost while processing them."""

    @property
    def is_suspect(self) -> bool:
        """Whether a replica died while processing the batch; it then runs alone, to identify the cause of another death."""
        return self.deaths > 0

    def split_after_death(self) -> list[RequestBatch]:
        """Split the batch into smaller ones, so that a request that kills replicas does not fail other requests.

        Such a request is alone in its batch at the latest at the third death.
        """
        self.deaths += 1
        size = (
            1
            if len(self.requests) <= _MAX_SINGLE_RETRIES or self.deaths > 1
            else math.isqrt(len(self.requests) - 1) + 1
        )
        requests = list(self.requests.values())
        return [
            RequestBatch(self.window, {one.id: one for one in requests[start : start + size]}, self.deaths)
            for start in range(0, len(requests), size)
        ]

    def build_failures(self, why: str) -> list[Outcome]:
        """Return the failures of requests that are not retried any more."""
        message = f"{self.deaths} replicas died while answering this request; the last one: {why}"
        return [
            Failure(request_id=key, kind="replica died", message=message, attempts=self.deaths)
            for key in self.requests
        ]

    def take_outcomes(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Remove answered requests; return the outcomes that were missing."""
        return [one for one in outcomes if self.requests.pop(one.request_id, None) is not None]


def split_batch(batch: RequestBatch, size: int) -> tuple[RequestBatch, RequestBatch | None]:
    """Split off the first `size` requests; requests with the same prompt share work and stay together."""
    requests = list(batch.requests.values())
    end = size
    while (
        end < min(len(requests), 2 * size) and requests[end].prompt.digest == requests[end - 1].prompt.digest
    ):
        end += 1
    if end >= len(requests):
        return batch, None
    first = RequestBatch(batch.window, {one.id: one for one in requests[:end]})
    rest = RequestBatch(batch.window, {one.id: one for one in requests[end:]})
    return first, rest


def compute_batch_size(waiting: int, replicas: int, min_size: int, seconds_each: float | None) -> int:
    """Return the batch size for the end of a run: smaller and smaller, so that all replicas finish together.

    >>> compute_batch_size(waiting=512, replicas=4, min_size=1, seconds_each=None)
    64
    >>> compute_batch_size(waiting=20, replicas=4, min_size=1, seconds_each=0.01)
    10
    """
    return max(math.ceil(waiting / (2 * replicas)), min_size, compute_min_batch_size(seconds_each))


def compute_min_batch_size(seconds_each: float | None) -> int:
    """Return how many requests are worth sending at once, given the time per request.

    >>> compute_min_batch_size(0.01), compute_min_batch_size(None)
    (10, 1)
    """
    return math.ceil(_MIN_BATCH_S / seconds_each) if seconds_each else 1
