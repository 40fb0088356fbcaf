"""A pool of worker processes on Ray for work other than answering requests, one call at a time each.

A call names a function and passes bytes; the result is bytes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Any

from assay.models.replicas.cluster import Cluster, capture_environment
from assay.models.replicas.worker import ProcessEnvironment, apply_environment, exit_with_parent

__all__ = ["WorkerDied", "WorkerPool"]


class WorkerDied(Exception):
    """A worker process died during a call."""


class PoolWorker:
    """One worker process. Ray calls it in its main thread, which some task code requires."""

    def __init__(self, environment: ProcessEnvironment) -> None:
        apply_environment(environment)
        exit_with_parent()

    def run(self, function: str, payload: bytes) -> bytes:
        """Call `module:name` with the payload."""
        module, _, name = function.partition(":")
        result: bytes = getattr(import_module(module), name)(payload)
        return result


class WorkerPool:
    """Worker processes and a queue of the free ones."""

    def __init__(self, workers: int, cluster: Cluster) -> None:
        self._workers, self._cluster = workers, cluster
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._handles: set[Any] = set()
        self._opening: asyncio.Task[None] | None = None

    async def run(self, function: str, payload: bytes) -> bytes:
        """Call a function in the first free worker.

        Raises:
            WorkerDied: The worker process died.
            Exception: The function raised it.
        """
        from ray.exceptions import RayError, RayTaskError

        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        await asyncio.shield(self._opening)
        handle = await self._free.get()
        try:
            done: bytes = await handle.run.remote(function, payload)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except RayError as error:
            self._kill(handle)
            handle = self._start_worker()
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
            self._kill(handle)
        await asyncio.to_thread(self._cluster.close)

    async def _open(self) -> None:
        await self._cluster.join()
        for _ in range(self._workers):
            self._free.put_nowait(self._start_worker())

    def _start_worker(self) -> Any:
        import ray

        worker = ray.remote(PoolWorker).options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")
        handle = worker.remote(capture_environment())
        self._handles.add(handle)
        return handle

    def _kill(self, handle: Any) -> None:
        import ray

        self._handles.discard(handle)
        with suppress(Exception):
            ray.kill(handle, no_restart=True)
