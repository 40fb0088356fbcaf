"""One replica: a process on any node of the cluster that opens the model and answers batches of requests.

It depends on the adapter only, not on tasks, the journal or other replicas.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.fingerprints import digest_json
from assay.core.ports import Model, SupportsMediaPreparation
from assay.core.records.messages import Image, Media
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.models.replicas.serialization import (
    Payload,
    Report,
    pack_report,
    restore_media_part,
    unpack_requests,
)

__all__ = ["ProcessEnvironment", "ReplicaSpec", "ReplicaWorker", "apply_environment", "exit_with_parent"]

_POLL_INTERVAL_S = 0.5
_COLLECT_INTERVAL_S = 0.1
"""Outcomes are collected for this long and sent together."""

_PAUSE_S = 0.002
"""A pause of a model that blocks the event loop. Sending a report and receiving the next call takes several turns of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnvironment:
    """Working folder, import path and environment variables of the driver, for its workers."""

    folder: str
    path: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """How a replica creates its model."""

    make_model: Callable[[], Model]
    identity: Mapping[str, str]
    """Identity of the model in the driver; a replica with another identity is an error."""

    environment: ProcessEnvironment
    concurrency: int


def apply_environment(environment: ProcessEnvironment) -> None:
    """Apply the driver's variables, import path and working folder to this process, where possible."""
    for name, value in environment.variables.items():
        os.environ.setdefault(name, value)
    sys.path += [entry for entry in environment.path if entry not in sys.path]
    with suppress(OSError):  # another node may not have it
        os.chdir(environment.folder)


def exit_with_parent() -> None:
    """Exit when the parent process is gone; Ray's own check may take half a minute.

    The parent is gone after the driver of a local cluster, or Ray on this node, was killed.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_INTERVAL_S)
        os._exit(1)

    threading.Thread(target=watch, name="assay-parent", daemon=True).start()


class ReplicaWorker:
    """Holds one copy of the model; runs as a Ray actor."""

    def __init__(
        self, environment: ProcessEnvironment, fetch: Callable[[Any], Payload] | None = None
    ) -> None:
        apply_environment(environment)
        if fetch is None:
            exit_with_parent()
        self._fetch = fetch or _fetch_from_store
        self._model: Model | None = None
        self._slots = asyncio.Semaphore(1)
        self._reports_by_batch: dict[int, AsyncIterator[Report]] = {}
        """Batches with further reports."""

    async def open(self, data: bytes) -> bytes | None:
        """Create and open the model; return an exception as a packed report."""
        try:
            import pickle

            spec: ReplicaSpec = pickle.loads(data)
            model = spec.make_model()
            _check_identity(spec.identity, await model.identify(), model.name)
            await model.open()
        except Exception as error:  # noqa: BLE001 - reported to the driver
            return pack_report(Report(error=error))
        self._model = model
        self._slots = asyncio.Semaphore(spec.concurrency)
        return None

    async def answer(self, number: int, data: bytes, media: Mapping[str, Any]) -> bytes:
        """Start a batch and return its first report, which is the only one for a fast model.

        Batches run in order of arrival. Streaming calls of Ray would cost the driver several times as much.
        """
        self._reports_by_batch[number] = self._run_batch(data, media)
        return await self.more(number)

    async def more(self, number: int) -> bytes:
        """Wait for the next report of a batch."""
        reports = self._reports_by_batch[number]
        report = await anext(reports)
        if not report.more:
            del self._reports_by_batch[number]
            await anext(reports, None)  # run to the end, so that the next batch can start
        return pack_report(report)

    async def _run_batch(self, data: bytes, media: Mapping[str, Any]) -> AsyncIterator[Report]:
        assert self._model is not None
        cache = _MediaCache(media, self._fetch)
        try:
            requests = unpack_requests(data, cache.restore)
            cache.prepare_ahead(requests, self._model)
            async with self._slots:
                begin = time.monotonic()
                async for outcomes, more in _collect_outcomes(self._model, requests):
                    yield Report(outcomes=outcomes, busy_s=time.monotonic() - begin, more=more)
        except Exception as error:  # noqa: BLE001 - reported to the driver
            yield Report(error=error)
        finally:
            cache.clear()

    async def close(self) -> None:
        """Close the model; afterwards the driver kills the process."""
        if self._model is not None:
            await self._model.close()


def _check_identity(wanted: Mapping[str, str], found: Mapping[str, str], name: str) -> None:
    """Raise `InvalidOption` if this node has another checkpoint than the driver."""
    if digest_json(dict(wanted)) == digest_json(dict(found)):
        return
    differing = sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
    raise InvalidOption(
        f"the model `{name}` differs on {os.uname().nodename}: {', '.join(differing)}",
        where="--replicas",
        hint="all nodes need the same files; put them in a folder that all nodes share",
    )


async def _collect_outcomes(
    model: Model, requests: Sequence[Request]
) -> AsyncIterator[tuple[list[Outcome], bool]]:
    """Yield groups of outcomes, and whether more follow; grouping avoids one message per answer of a fast model."""
    found: list[Outcome] = []
    some = asyncio.Event()

    async def feed() -> None:
        try:
            last_pause = time.monotonic()
            async for outcome in model.answer(requests):
                found.append(outcome)
                some.set()
                if time.monotonic() - last_pause > _COLLECT_INTERVAL_S / 2:
                    await asyncio.sleep(_PAUSE_S)  # the model may block the event loop while it computes
                    last_pause = time.monotonic()
        finally:
            some.set()

    feeding = asyncio.ensure_future(feed())
    try:
        done = False
        while not done:
            await some.wait()
            some.clear()
            if not feeding.done():
                await asyncio.wait({feeding}, timeout=_COLLECT_INTERVAL_S)
            taken, found[:], done = list(found), [], feeding.done()
            broken = done and feeding.exception() is not None
            if taken or (done and not broken):
                yield taken, broken or not done
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    if not feeding.cancelled() and (error := feeding.exception()) is not None:
        raise error


class _MediaCache:
    """The media of one batch, fetched from the object store and decoded once."""

    def __init__(self, references: Mapping[str, Any], fetch: Callable[[Any], Payload]) -> None:
        self._references, self._fetch = references, fetch
        self._cache: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()

    def restore(self, part: Media, key: str) -> Media:
        return restore_media_part(part, partial(self._get, key), partial(self._keep, key))

    def prepare_ahead(self, requests: Sequence[Request], model: Model) -> None:
        """Decode media in a thread while the previous batch is being answered."""
        parts = [part for request in requests for part in request.prompt.media]
        if not parts:
            return
        prepare = model.prepare if isinstance(model, SupportsMediaPreparation) else _load_picture

        def work() -> None:
            for part in parts:
                with suppress(Exception):  # the model raises the same error later
                    prepare(part)

        threading.Thread(target=work, name="assay-media", daemon=True).start()

    def clear(self) -> None:
        """Release all media after the batch."""
        with self._lock:
            self._cache.clear()

    def _get(self, key: str) -> Payload:
        payload: Payload = self._keep(key, "payload", partial(self._fetch, self._references[key]))
        return payload

    def _keep(self, key: str, how: str, make: Callable[[], Any]) -> Any:
        name = f"{key}:{how}"
        with self._lock:
            future = self._cache.get(name)
            first = future is None
            if future is None:
                future = self._cache[name] = Future()
        if first:
            try:
                future.set_result(make())
            except Exception as error:  # noqa: BLE001 - raised for each reader of the part
                future.set_exception(error)
        return future.result()


def _fetch_from_store(reference: Any) -> Payload:
    import ray

    payload: Payload = ray.get(reference)
    return payload


def _load_picture(part: Media) -> object:
    return part.load() if isinstance(part, Image) else None
