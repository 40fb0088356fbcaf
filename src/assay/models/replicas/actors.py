"""Replicas as Ray actors: hired, asked, let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from assay.core.messages import Media
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.models.replicas.fleet import ReplicaDied
from assay.models.replicas.resources import actor_options
from assay.models.replicas.wire import arrived, media_key, pack, payload_of
from assay.models.replicas.worker import Recipe, ReplicaWorker

__all__ = ["ActorReplica", "hirer", "stored"]

_FAREWELL_S = 10.0
"""How long a replica may take to let go of its model; its children may need an end, too."""

Reference = Any
"""Ray's reference to something in its object store."""


class _Stored:
    """A medium in the object store, which it leaves when this is let go of."""

    def __init__(self, part: Media) -> None:
        import ray

        kind, thing = payload_of(part)
        self.nbytes = len(thing) if kind == "file" else part.held_bytes
        """What the engine counts against its budget for media."""

        self.reference: Reference = ray.put((kind, thing))


def stored(part: Media) -> _Stored:
    """A medium in the object store: put there once, however many requests on their way name it."""
    found: _Stored = part.keep("replicas", lambda: _Stored(part))
    return found


def hirer(recipe: Recipe, resources: Mapping[str, float]) -> Callable[[], Awaitable[ActorReplica]]:
    """A function that gives one more replica: placed where there is room, opened."""
    import ray
    from ray import cloudpickle

    worker = ray.remote(ReplicaWorker).options(
        **actor_options(resources), max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
    )
    whole = cloudpickle.dumps(recipe)

    async def hire() -> ActorReplica:
        handle = worker.remote(recipe.surroundings)
        replica = ActorReplica(handle)
        try:
            await replica.open(whole)
        except BaseException:
            replica.kill()
            raise
        return replica

    return hire


class ActorReplica:
    """One actor, seen from the driver."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._numbers = count()
        self.busy_s = 0.0

    async def open(self, recipe: bytes) -> None:
        from ray.exceptions import RayError

        try:
            said = await self._handle.open.remote(recipe)
        except RayError as error:
            raise self._death(error) from None
        if said is not None:
            trouble = arrived(said).error
            assert trouble is not None
            raise trouble

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        """Outcomes as they are reported; what the model raised is raised here, under its own name."""
        from ray.exceptions import RayError

        if any(request.prompt.has_media for request in requests):
            data, media = await asyncio.to_thread(_packed, requests)
        else:
            data, media = pack(requests)[0], {}
        number, more = next(self._numbers), True
        try:
            said = self._handle.answer.remote(number, data, media)
            while more:
                report = arrived(await said)
                more = report.more
                if more:  # asked for at once: it is on its way while this one is dealt with
                    said = self._handle.more.remote(number)
                self.busy_s = report.busy_s
                if report.outcomes:
                    yield report.outcomes
                if report.error is not None:
                    raise report.error
        except RayError as error:
            raise self._death(error) from None

    async def release(self) -> None:
        """Let the model end in its own way, then end the process."""
        with suppress(Exception):
            await asyncio.wait_for(asyncio.wrap_future(self._handle.close.remote().future()), _FAREWELL_S)
        self.kill()

    def kill(self) -> None:
        """End the process."""
        import ray

        with suppress(Exception):
            ray.kill(self._handle, no_restart=True)

    def _death(self, error: Exception) -> ReplicaDied:
        text = " ".join(str(error).split())
        return ReplicaDied(_cause(text), by_itself=not any(words in text for words in _NODE_GONE))


_NODE_GONE = ("node has died", "node died", "node is dead", "node was terminated", "node was drained")


def _cause(text: str) -> str:
    """What Ray knows of a death, without its advice."""
    _, _, detail = text.partition("Worker exit detail: ")
    return (detail or text).partition(" Some common causes")[0][:300]


def _packed(requests: Sequence[Request]) -> tuple[bytes, dict[str, Reference]]:
    data, media = pack(requests)
    return data, {media_key(part): stored(part).reference for part in media}
