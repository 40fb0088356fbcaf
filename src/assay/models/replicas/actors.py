"""Replicas as Ray actors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from assay.core.records.messages import Media
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.models.replicas.dispatcher import ReplicaDied
from assay.models.replicas.resources import build_actor_options
from assay.models.replicas.serialization import build_media_key, load_payload, pack_requests, unpack_report
from assay.models.replicas.worker import ReplicaSpec, ReplicaWorker

__all__ = ["ActorReplica", "make_replica_starter", "put_in_object_store"]

_CLOSE_TIMEOUT_S = 10.0
"""How long a replica may take to close its model and its child processes."""

Reference = Any
"""A reference to an object in Ray's object store."""


class StoredMedia:
    """A media part in the object store; Ray deletes it when this object is garbage-collected."""

    def __init__(self, part: Media) -> None:
        import ray

        kind, thing = load_payload(part)
        self.nbytes = len(thing) if kind == "file" else part.held_bytes
        """Size that the engine counts in its memory budget for media."""

        self.reference: Reference = ray.put((kind, thing))


def put_in_object_store(part: Media) -> StoredMedia:
    """Put a media part into the object store, once for all requests that contain it."""
    found: StoredMedia = part.keep("replicas", lambda: StoredMedia(part))
    return found


def make_replica_starter(
    spec: ReplicaSpec, resources: Mapping[str, float]
) -> Callable[[], Awaitable[ActorReplica]]:
    """Return a function that starts a replica on a node with free resources and opens it."""
    import ray
    from ray import cloudpickle

    worker = ray.remote(ReplicaWorker).options(
        **build_actor_options(resources), max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
    )
    data = cloudpickle.dumps(spec)

    async def hire() -> ActorReplica:
        handle = worker.remote(spec.environment)
        replica = ActorReplica(handle)
        try:
            await replica.open(data)
        except BaseException:
            replica.kill()
            raise
        return replica

    return hire


class ActorReplica:
    """The driver's handle of one actor."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._numbers = count()
        self.busy_s = 0.0

    async def open(self, spec: bytes) -> None:
        from ray.exceptions import RayError

        try:
            failure = await self._handle.open.remote(spec)
        except RayError as error:
            raise self._convert_error(error) from None
        if failure is not None:
            cause = unpack_report(failure).error
            assert cause is not None
            raise cause

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Sequence[Outcome]]:
        """Yield outcomes as they are reported; raise the model's error under its own name."""
        from ray.exceptions import RayError

        if any(request.prompt.has_media for request in requests):
            data, media = await asyncio.to_thread(_pack_with_media, requests)
        else:
            data, media = pack_requests(requests)[0], {}
        number, more = next(self._numbers), True
        try:
            reply = self._handle.answer.remote(number, data, media)
            while more:
                report = unpack_report(await reply)
                more = report.more
                if more:  # request the next report before processing this one
                    reply = self._handle.more.remote(number)
                self.busy_s = report.busy_s
                if report.outcomes:
                    yield report.outcomes
                if report.error is not None:
                    raise report.error
        except RayError as error:
            raise self._convert_error(error) from None

    async def release(self) -> None:
        """Close the model, then kill the process."""
        with suppress(Exception):
            await asyncio.wait_for(
                asyncio.wrap_future(self._handle.close.remote().future()), _CLOSE_TIMEOUT_S
            )
        self.kill()

    def kill(self) -> None:
        """Kill the process."""
        import ray

        with suppress(Exception):
            ray.kill(self._handle, no_restart=True)

    def _convert_error(self, error: Exception) -> ReplicaDied:
        text = " ".join(str(error).split())
        return ReplicaDied(
            _extract_cause(text), process_failed=not any(words in text for words in _NODE_LOST_WORDS)
        )


_NODE_LOST_WORDS = ("node has died", "node died", "node is dead", "node was terminated", "node was drained")


def _extract_cause(text: str) -> str:
    """Return Ray's reason for the death of an actor, without its advice."""
    _, _, detail = text.partition("Worker exit detail: ")
    return (detail or text).partition(" Some common causes")[0][:300]


def _pack_with_media(requests: Sequence[Request]) -> tuple[bytes, dict[str, Reference]]:
    data, media = pack_requests(requests)
    return data, {build_media_key(part): put_in_object_store(part).reference for part in media}
