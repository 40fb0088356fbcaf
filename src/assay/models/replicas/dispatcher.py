"""Dispatch windows of requests to replicas. Independent of Ray.

    window -> batches -> a free replica -> outcomes -> the caller of the window

A replica gets its next batch shortly before it finishes the current one. A replica that dies is replaced, and its unanswered
requests are sent to others. While more windows follow, a batch has the size of the model's window, or more if requests are very
fast. Towards the end of the run batches become smaller, so that all replicas finish at about the same time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.core.errors import AssayError
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.models.replicas.request_batches import (
    MAX_DEATHS,
    MAX_NODE_LOSSES,
    PendingWindow,
    RequestBatch,
    compute_batch_size,
    compute_min_batch_size,
    split_batch,
)

__all__ = ["DispatchLimits", "Replica", "ReplicaDied", "ReplicaDispatcher"]

_MAX_OPEN_FAILURES = 3
"""Give up after this many consecutive replicas died while opening the model."""

_REFILL_BELOW_S = 0.25
"""Send the next batch when a replica has less work left than this; answers take a tenth of a second to arrive."""


class ReplicaDied(Exception):
    """A replica died; its unanswered requests have to be sent again."""

    def __init__(self, why: str, *, process_failed: bool = True) -> None:
        super().__init__(why)
        self.process_failed = process_failed
        """False if the replica's node was lost, which no request can cause."""


class Replica(Protocol):
    """An opened copy of the model."""

    busy_s: float
    """Computing time of the last reported batch, without queueing and transfer."""

    def answer(self, requests: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        """Yield groups of outcomes as they arrive.

        Raises:
            ReplicaDied: The replica died.
        """
        ...

    async def release(self) -> None:
        """Release the replica, which may be dead."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """Number of replicas and sizes of batches."""

    replicas: int
    window: int
    """Preferred number of requests per batch."""

    concurrency: int
    """Batches that a replica processes concurrently."""

    min_batch: int = 1
    """Batch size of the model; smaller batches waste computing time."""

    @property
    def in_flight(self) -> int:
        """Windows the engine keeps in flight: those being processed, and one more per replica."""
        return self.replicas * (self.concurrency + 1)


@dataclass(slots=True, eq=False)
class _ReplicaSlot:
    """A replica and its batches."""

    replica: Replica
    batches: list[RequestBatch] = field(default_factory=list)
    """In the order in which they were sent."""

    died: asyncio.Event = field(default_factory=asyncio.Event)
    running_at_death: frozenset[RequestBatch] = frozenset()
    """Batches that were being processed when the replica died; the others were queued."""


class ReplicaDispatcher:
    """Assigns requests to replicas, and replaces replicas that die."""

    def __init__(self, start_replica: Callable[[], Awaitable[Replica]], limits: DispatchLimits) -> None:
        self._start_replica = start_replica
        self._limits = limits
        self._queue: deque[RequestBatch] = deque()
        self._suspects: deque[RequestBatch] = deque()
        """Batches that may have killed a replica; they run in isolation."""

        self._isolated: _ReplicaSlot | None = None
        """The replica reserved for suspect batches while others have work."""

        self._windows: set[PendingWindow] = set()
        self._slots: dict[_ReplicaSlot, None] = {}
        self._replacing = 0
        """Number of dead replicas that are not replaced yet."""

        self._tasks: set[asyncio.Task[None]] = set()
        self._seconds_each: float | None = None
        self._error: Exception | None = None
        self._first_ready = asyncio.Event()
        self._closed = self._held = False
        self.deaths = 0
        """Number of replicas that died while answering."""

    @property
    def ready(self) -> int:
        """Number of opened replicas."""
        return len(self._slots)

    async def open(self) -> None:
        """Start all replicas and wait for the first one; the others join as soon as the cluster has room.

        Raises:
            Exception: The first replica could not be opened.
        """
        for _ in range(self._limits.replicas):
            self._start_task(self._keep_replica_alive())
        await self._first_ready.wait()
        if not self._slots and self._error is not None:
            raise self._error

    def hold(self, held: bool) -> None:
        """Send no batches while `held`; replicas finish those they have."""
        self._held = held
        if not held:
            self._dispatch_all()

    async def close(self) -> None:
        """Stop, and release all replicas."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        slots, self._slots = list(self._slots), {}
        await asyncio.gather(*(slot.replica.release() for slot in slots), return_exceptions=True)

    # --- windows -----------------------------------------------------------------------------------

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Yield one outcome per request; raise an error of the model after all outcomes."""
        pending = PendingWindow(open_batches=1)
        self._windows.add(pending)
        self._queue.append(RequestBatch(pending, {request.id: request for request in window}))
        asyncio.get_running_loop().call_soon(self._dispatch_all)  # after all windows that are submitted now
        try:
            while pending.open_batches or not pending.outcomes.empty():
                for outcome in await pending.outcomes.get():
                    yield outcome
        finally:
            pending.withdrawn = True
            self._windows.discard(pending)
        if pending.error is not None:
            raise pending.error

    def _take_batch(self, slot: _ReplicaSlot) -> RequestBatch | None:
        """Return the next batch for a replica: the oldest one that it may run."""
        for batches in (self._suspects, self._queue):
            while batches and batches[0].window.withdrawn:
                batches.popleft()
        if self._suspects and self._can_isolate(slot):
            return None if slot.batches else self._suspects.popleft()
        return self._limit_size(self._queue.popleft()) if self._queue else None

    def _can_isolate(self, slot: _ReplicaSlot) -> bool:
        """Return whether this replica may run suspect batches: one replica, or all if nothing else is queued."""
        if self._isolated is None or self._isolated.died.is_set():
            self._isolated = slot
        return self._isolated is slot or not self._queue

    def _limit_size(self, batch: RequestBatch) -> RequestBatch:
        """Split a batch that is too large; batches are smaller when the engine has no more windows to submit."""
        limits, each = self._limits, self._seconds_each
        max_size = max(limits.window, compute_min_batch_size(each))
        if len(self._windows) < limits.in_flight:
            waiting = len(batch.requests) + sum(len(other.requests) for other in self._queue)
            final_size = compute_batch_size(waiting, max(1, len(self._slots)), limits.min_batch, each)
            max_size = min(max_size, final_size)
        batch, rest = split_batch(batch, max_size)
        if rest is not None:
            rest.window.open_batches += 1
            self._queue.appendleft(rest)
        return batch

    # --- replicas ----------------------------------------------------------------------------------

    async def _keep_replica_alive(self) -> None:
        """Start one replica, and replace it whenever it dies."""
        replaces = failed_starts = 0
        while True:
            try:
                replica = await self._start_replica()
            except ReplicaDied as death:
                failed_starts += 1
                if failed_starts >= _MAX_OPEN_FAILURES:
                    self._replacing -= replaces
                    self._give_up(_build_open_error(failed_starts, death))
                    return
                continue
            except Exception as error:  # noqa: BLE001 - an error of the model: raised to the caller
                self._replacing -= replaces
                self._give_up(error)
                return
            slot = _ReplicaSlot(replica)
            self._slots[slot] = None
            self._replacing -= replaces
            replaces, failed_starts = 1, 0
            self._first_ready.set()
            self._dispatch(slot)
            await slot.died.wait()
            self._replacing += 1
            self._slots.pop(slot, None)
            await replica.release()

    def _give_up(self, error: Exception) -> None:
        """Record that a replica cannot be started; fail all queued batches if no other replica is left."""
        self._error = error
        self._first_ready.set()
        self._fail_queued()

    def _fail_queued(self) -> None:
        if self._error is None or self._slots or self._replacing:
            return
        for batches in (self._suspects, self._queue):
            while batches:
                self._finish_batch(batches.popleft(), self._error)

    def _dispatch_all(self) -> None:
        for slot in list(self._slots):
            if not self._queue and not self._suspects:
                return
            self._dispatch(slot)
        self._fail_queued()

    def _dispatch(self, slot: _ReplicaSlot) -> None:
        while self._has_capacity(slot) and (batch := self._take_batch(slot)) is not None:
            slot.batches.append(batch)
            self._start_task(self._run_batch(slot, batch))

    def _has_capacity(self, slot: _ReplicaSlot) -> bool:
        """Return whether a replica can take another batch; a sequential one can shortly before it finishes.

        Answers take a while to arrive, so a replica with few missing answers may already be idle.
        """
        if (
            self._closed
            or self._held
            or slot.died.is_set()
            or any(batch.is_suspect for batch in slot.batches)
        ):
            return False
        if len(slot.batches) < self._limits.concurrency:
            return True
        if not len(slot.batches) == self._limits.concurrency == 1:
            return False
        unanswered = len(slot.batches[0].requests)
        soon = self._seconds_each is not None and unanswered * self._seconds_each <= _REFILL_BELOW_S
        return soon or unanswered <= self._limits.window // 4

    async def _run_batch(self, slot: _ReplicaSlot, batch: RequestBatch) -> None:
        count, error = len(batch.requests), None
        try:
            async for outcomes in slot.replica.answer(list(batch.requests.values())):
                batch.window.outcomes.put_nowait(batch.take_outcomes(outcomes))
                self._dispatch(slot)
        except ReplicaDied as death:
            self._mark_dead(slot)
            batch.node_losses += not death.process_failed
            to_blame = death.process_failed or batch.node_losses > MAX_NODE_LOSSES
            self._requeue(batch, death, to_blame=batch in slot.running_at_death and to_blame)
            self._dispatch_all()
            return
        except Exception as caught:  # noqa: BLE001 - an error of the model: raised to the caller
            error = caught
        if error is None:
            self._update_speed(slot, count)
        slot.batches.remove(batch)
        if self._isolated is slot and not self._suspects:
            self._isolated = None
        self._finish_batch(batch, error)
        self._dispatch_all()

    def _mark_dead(self, slot: _ReplicaSlot) -> None:
        """Record the death of a replica once, with the batches it was processing."""
        if not slot.died.is_set():
            self.deaths += 1
            slot.running_at_death = frozenset(slot.batches[: self._limits.concurrency])
            slot.died.set()

    def _requeue(self, batch: RequestBatch, death: ReplicaDied, *, to_blame: bool) -> None:
        if not batch.requests or batch.window.withdrawn:
            self._finish_batch(batch)
        elif not to_blame:
            (self._suspects if batch.is_suspect else self._queue).appendleft(batch)
        elif batch.deaths + 1 >= MAX_DEATHS and len(batch.requests) == 1:
            batch.deaths += 1
            batch.window.outcomes.put_nowait(batch.take_outcomes(batch.build_failures(str(death))))
            self._finish_batch(batch)
        else:
            parts = batch.split_after_death()
            batch.window.open_batches += len(parts) - 1
            self._suspects.extend(parts)

    def _finish_batch(self, batch: RequestBatch, error: Exception | None = None) -> None:
        window = batch.window
        window.open_batches -= 1
        window.error = window.error or error
        window.outcomes.put_nowait(())

    def _update_speed(self, slot: _ReplicaSlot, count: int) -> None:
        """Update the running mean of the time per request."""
        concurrent = max(1, min(len(slot.batches), self._limits.concurrency))
        seconds = slot.replica.busy_s / max(1, count) / concurrent
        previous = self._seconds_each
        self._seconds_each = seconds if previous is None else 0.8 * previous + 0.2 * seconds

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _build_open_error(times: int, death: ReplicaDied) -> AssayError:
    return AssayError(
        f"a replica died {times} times while opening the model: {death}",
        hint="all answers so far are saved; the model may need more memory than the machine has",
    )
