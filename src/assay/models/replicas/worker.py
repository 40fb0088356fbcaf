"""One replica: what runs in a process of its own, on whatever machine Ray puts it. Opens the real adapter and answers portions.

It knows the adapter and nothing else: no task, no journal, no other replica.
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

from assay.core.errors import BadOption
from assay.core.fingerprints import digest_of
from assay.core.messages import Image, Media
from assay.core.ports import Model, Prepares
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.models.replicas.wire import Payload, Report, sent, shown, unpack

__all__ = ["Recipe", "ReplicaWorker", "Surroundings", "end_with_parent", "enter"]

_LOOK_S = 0.5
_COLLECT_S = 0.1
"""How long outcomes are collected before they are sent together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the driver's process looks like, so that a worker's looks the same."""

    folder: str
    path: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a replica makes its model."""

    make: Callable[[], Model]
    identity: Mapping[str, str]
    """What the driver knows of the model: answers of another one must not be mixed in."""

    surroundings: Surroundings
    at_once: int


def enter(surroundings: Surroundings) -> None:
    """Make this process like the driver's, where that is possible: variables, import path, folder."""
    for name, value in surroundings.variables.items():
        os.environ.setdefault(name, value)
    sys.path += [entry for entry in surroundings.path if entry not in sys.path]
    with suppress(OSError):  # another machine may not have it
        os.chdir(surroundings.folder)


def end_with_parent() -> None:
    """End this process when the one that started it is gone: Ray's own look at that may take half a minute.

    That is what happens where the driver of a Ray of our own is killed, and where a machine's Ray is.
    """
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=look, name="assay-parent", daemon=True).start()


class ReplicaWorker:
    """Holds one copy of the model. Made an actor by whoever starts it."""

    def __init__(self, surroundings: Surroundings, fetch: Callable[[Any], Payload] | None = None) -> None:
        enter(surroundings)
        if fetch is None:
            end_with_parent()
        self._fetch = fetch or _from_store
        self._model: Model | None = None
        self._turn = asyncio.Semaphore(1)
        self._begun: dict[int, AsyncIterator[Report]] = {}
        """Portions of which there is more to say."""

    async def open(self, recipe: bytes) -> bytes | None:
        """Make the model and load it; what it raises comes back in bytes."""
        try:
            import pickle

            whole: Recipe = pickle.loads(recipe)
            model = whole.make()
            _check_same(whole.identity, await model.identify(), model.name)
            await model.open()
        except Exception as error:  # noqa: BLE001 - worker border: the driver says it
            return sent(Report(error=error))
        self._model = model
        self._turn = asyncio.Semaphore(whole.at_once)
        return None

    async def answer(self, number: int, data: bytes, media: Mapping[str, Any]) -> bytes:
        """The first report on a portion, which for a quick model is the only one: one call, one reply.

        Portions take turns in the order in which they came in. Calls that stream would cost the driver several times as
        much, whether there is one report or ten.
        """
        self._begun[number] = self._reports(data, media)
        return await self.more(number)

    async def more(self, number: int) -> bytes:
        """The next report, as soon as there is one."""
        reports = self._begun[number]
        report = await anext(reports)
        if not report.more:
            del self._begun[number]
            await anext(reports, None)  # to its end: the next portion has its turn
        return sent(report)

    async def _reports(self, data: bytes, media: Mapping[str, Any]) -> AsyncIterator[Report]:
        assert self._model is not None
        shelf = _Shelf(media, self._fetch)
        try:
            requests = unpack(data, shelf.show)
            shelf.prepare_ahead(requests, self._model)
            async with self._turn:
                begin = time.monotonic()
                async for outcomes, more in _collected(self._model, requests):
                    yield Report(outcomes=outcomes, busy_s=time.monotonic() - begin, more=more)
        except Exception as error:  # noqa: BLE001 - worker border: the driver says it
            yield Report(error=error)
        finally:
            shelf.clear()

    async def close(self) -> None:
        """Let go of the model in its own way; afterwards the process is ended."""
        if self._model is not None:
            await self._model.close()


def _check_same(wanted: Mapping[str, str], found: Mapping[str, str], name: str) -> None:
    """A machine with another checkpoint would give another model's answers under this one's name."""
    if digest_of(dict(wanted)) == digest_of(dict(found)):
        return
    differing = sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
    raise BadOption(
        f"the model `{name}` is another one on {os.uname().nodename}: {', '.join(differing)} differ",
        where="--replicas",
        hint="every machine needs the same files; `--model_args` may name a folder that all of them see",
    )


async def _collected(model: Model, requests: Sequence[Request]) -> AsyncIterator[tuple[list[Outcome], bool]]:
    """What the model says, collected for a moment, so that a fast model does not send a message for each answer; and
    whether there is more."""
    found: list[Outcome] = []
    some = asyncio.Event()

    async def feed() -> None:
        try:
            async for outcome in model.answer(requests):
                found.append(outcome)
                some.set()
        finally:
            some.set()

    feeding = asyncio.ensure_future(feed())
    try:
        done = False
        while not done:
            await some.wait()
            some.clear()
            if not feeding.done():
                await asyncio.wait({feeding}, timeout=_COLLECT_S)
            taken, found[:], done = list(found), [], feeding.done()
            broken = done and feeding.exception() is not None
            if taken or (done and not broken):
                yield taken, broken or not done
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    if not feeding.cancelled() and (error := feeding.exception()) is not None:
        raise error


class _Shelf:
    """The media of one portion: fetched from the machine's object store, decoded once."""

    def __init__(self, references: Mapping[str, Any], fetch: Callable[[Any], Payload]) -> None:
        self._references, self._fetch = references, fetch
        self._made: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()

    def show(self, part: Media, key: str) -> Media:
        return shown(part, partial(self._get, key), partial(self._keep, key))

    def prepare_ahead(self, requests: Sequence[Request], model: Model) -> None:
        """Decode in a thread what will be looked at, while the portion before is being answered."""
        parts = [part for request in requests for part in request.prompt.media]
        if not parts:
            return
        prepare = model.prepare if isinstance(model, Prepares) else _load_picture

        def work() -> None:
            for part in parts:
                with suppress(Exception):  # the model meets the same error, where it can be told
                    prepare(part)

        threading.Thread(target=work, name="assay-media", daemon=True).start()

    def clear(self) -> None:
        """Let go of everything: the portion is answered."""
        with self._lock:
            self._made.clear()

    def _get(self, key: str) -> Payload:
        payload: Payload = self._keep(key, "payload", partial(self._fetch, self._references[key]))
        return payload

    def _keep(self, key: str, how: str, make: Callable[[], Any]) -> Any:
        name = f"{key}:{how}"
        with self._lock:
            future = self._made.get(name)
            first = future is None
            if future is None:
                future = self._made[name] = Future()
        if first:
            try:
                future.set_result(make())
            except Exception as error:  # noqa: BLE001 - handed on, to each who looks at the medium
                future.set_exception(error)
        return future.result()


def _from_store(reference: Any) -> Payload:
    import ray

    payload: Payload = ray.get(reference)
    return payload


def _load_picture(part: Media) -> object:
    return part.load() if isinstance(part, Image) else None
