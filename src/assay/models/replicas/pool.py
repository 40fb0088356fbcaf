"""Processes for pieces of work that are not answers: one piece at a time each, on whatever machine Ray puts them.

They know nothing of what they do: a function by its name, bytes in, bytes out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Any

from assay.models.replicas.cluster import Cluster, surroundings
from assay.models.replicas.worker import Surroundings, end_with_parent, enter

__all__ = ["Pool", "WorkerDied"]


class WorkerDied(Exception):
    """A process went down over a piece of work."""


class Hand:
    """One process. Ray calls it in its main thread, which helper code may insist on."""

    def __init__(self, surroundings: Surroundings) -> None:
        enter(surroundings)
        end_with_parent()

    def do(self, function: str, order: bytes) -> bytes:
        """Call `module:name` with the order."""
        module, _, name = function.partition(":")
        found: bytes = getattr(import_module(module), name)(order)
        return found


class Pool:
    """A number of processes and who is free."""

    def __init__(self, workers: int, cluster: Cluster) -> None:
        self._workers, self._cluster = workers, cluster
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._handles: set[Any] = set()
        self._opening: asyncio.Task[None] | None = None

    async def do(self, function: str, order: bytes) -> bytes:
        """Have a piece of work done by whoever is free first.

        Raises:
            WorkerDied: Its process went down.
            Exception: What the function raised, as Ray tells it.
        """
        from ray.exceptions import RayError, RayTaskError

        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        await asyncio.shield(self._opening)
        handle = await self._free.get()
        try:
            done: bytes = await handle.do.remote(function, order)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except RayError as error:
            self._dismiss(handle)
            handle = self._hire()
            raise WorkerDied(" ".join(str(error).split())[:300]) from None
        finally:
            self._free.put_nowait(handle)
        return done

    async def close(self) -> None:
        """End all processes."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        for handle in list(self._handles):
            self._dismiss(handle)
        await asyncio.to_thread(self._cluster.close)

    async def _open(self) -> None:
        await self._cluster.join()
        for _ in range(self._workers):
            self._free.put_nowait(self._hire())

    def _hire(self) -> Any:
        import ray

        hand = ray.remote(Hand).options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")
        handle = hand.remote(surroundings())
        self._handles.add(handle)
        return handle

    def _dismiss(self, handle: Any) -> None:
        import ray

        self._handles.discard(handle)
        with suppress(Exception):
            ray.kill(handle, no_restart=True)
