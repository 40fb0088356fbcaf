"""One `Model` in front of N: what the engine sees of data parallelism.

The driver plans, journals and judges; replicas answer. Name, abilities and identity are those of the model itself, so a
run has the same name and the same answers however many replicas it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from assay.core.errors import BadOption
from assay.core.messages import Media
from assay.core.ports import Billed, GivesTokens, Model, Previews, Probes, StandsIn, ToldTargets, Traits
from assay.core.requests import Request
from assay.core.responses import Outcome
from assay.models.replicas.cluster import Cluster, check_address, require_ray, surroundings
from assay.models.replicas.fleet import Fleet, Sizes
from assay.models.replicas.resources import check_resources, missing_from, processors_for, wanted_resources
from assay.models.replicas.worker import Recipe

__all__ = ["ReplicatedModel", "Wishes"]

_MOST_IN_FLIGHT = 2**18
"""Requests on their way at the same time: with very many replicas windows become smaller, not memory larger."""

_WINDOWS, _ENOUGH = 4, 256
"""Windows of the model that are asked for together, up to so many requests: a quick model is handed them in one message."""

_PATIENCE_S = 20.0
"""After this long it is said that replicas wait for room."""

_LOG = logging.getLogger("assay.replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How many replicas, where, with what. None of it changes an answer."""

    replicas: int = 1
    address: str | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    """What the model was asked for as, and with which arguments: what it needs is known from that."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    batch_size: int | str = 1
    media_bytes: int = 2**30
    workers: int = 0
    """Processes that judge, for which room is left."""


class ReplicatedModel:
    """A local model, copied."""

    def __init__(self, model: Model, make: Callable[[], Model], wishes: Wishes) -> None:
        where = "--replicas" if wishes.replicas > 1 else "--ray"
        require_ray(where)
        check_address(wishes.address)
        _check_local(model, where)
        check_resources(wishes.resources)
        self._model, self._make, self._wishes = model, make, wishes
        self._cluster: Cluster | None = None
        self._fleet: Fleet | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def traits(self) -> Traits:
        """Those of the model, fed for all replicas at once."""
        sizes = self._sizes
        window = max(sizes.window, min(_WINDOWS * sizes.window, _ENOUGH, _most(sizes)))
        return replace(self._model.traits, window=window, in_flight=sizes.in_flight)

    @property
    def _sizes(self) -> Sizes:
        traits, wishes = self._model.traits, self._wishes
        least = wishes.batch_size if isinstance(wishes.batch_size, int) else 1
        sizes = Sizes(replicas=wishes.replicas, window=traits.window, at_once=traits.in_flight, least=least)
        return replace(sizes, window=min(sizes.window, _most(sizes)))

    async def identify(self) -> Mapping[str, str]:
        return await self._model.identify()

    def preview(self, request: Request) -> str:
        """What a replica will read, where its model can say that."""
        return self._model.preview(request) if isinstance(self._model, Previews) else request.prompt.text

    def prepare(self, part: Media) -> None:
        """Bring a medium into the object store ahead of its portion; it is decoded where it is looked at."""
        if self._fleet is not None:
            from assay.models.replicas.actors import stored

            stored(part)

    def give_tokens(self) -> None:
        """Replicas tell their tokens, where their model can."""
        self._make = partial(_telling, self._make)

    async def open(self) -> None:
        """Start or join Ray, and wait for the first replica.

        Raises:
            AssayError: There is no Ray, no room for a replica, or the model cannot be opened.
        """
        wishes = self._wishes
        cpus = processors_for(wishes.replicas, wishes.resources) + wishes.workers
        cluster = Cluster(wishes.address, cpus=cpus, store_bytes=wishes.media_bytes + 2**28)
        await cluster.join()
        self._cluster = cluster
        try:
            await self._hire(cluster)
        except BaseException:
            await self.close()
            raise

    async def _hire(self, cluster: Cluster) -> None:
        from assay.models.replicas.actors import hirer

        wishes, sizes = self._wishes, self._sizes
        there = await asyncio.to_thread(cluster.resources)
        wanted = wanted_resources(wishes.resources, wishes.model, wishes.arguments, wishes.device, there)
        missing = missing_from(there, wanted)
        if missing and cluster.own:
            raise BadOption(
                f"this machine has no room for a replica: {', '.join(missing)}",
                where="--replica_resources",
                hint="ask for less, or join a cluster with --ray",
            )
        recipe = Recipe(
            make=self._make,
            identity=dict(await self._model.identify()),
            surroundings=surroundings(),
            at_once=sizes.at_once,
        )
        self._fleet = Fleet(hirer(recipe, wanted), sizes)
        self._watching = asyncio.get_running_loop().create_task(self._say_who_waits(self._fleet, wanted))
        await self._fleet.open()

    async def _say_who_waits(self, fleet: Fleet, wanted: Mapping[str, float]) -> None:
        await asyncio.sleep(_PATIENCE_S)
        if fleet.ready < self._wishes.replicas:
            each = ", ".join(f"{name}={amount:g}" for name, amount in wanted.items())
            _LOG.warning(
                "%d of %d replicas are open; the others begin as soon as the cluster has room (%s each)",
                fleet.ready, self._wishes.replicas, each,
            )  # fmt: skip

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        assert self._fleet is not None, "answer() was called before open()"
        async for outcome in self._fleet.answer(window):
            yield outcome

    async def close(self) -> None:
        """Let go of the replicas, and of Ray."""
        watching, fleet, cluster = self._watching, self._fleet, self._cluster
        self._watching = self._fleet = self._cluster = None
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        if fleet is not None:
            if fleet.deaths:
                _LOG.warning("%d replicas died and were replaced", fleet.deaths)
            await fleet.close()
        if cluster is not None:
            await asyncio.to_thread(cluster.close)


def _telling(make: Callable[[], Model]) -> Model:
    model = make()
    if isinstance(model, GivesTokens):
        model.give_tokens()
    return model


def _most(sizes: Sizes) -> int:
    """The largest windows there may be."""
    return max(1, _MOST_IN_FLIGHT // sizes.in_flight)


def _check_local(model: Model, where: str) -> None:
    """Raises `BadOption` for a model of which copies make no sense."""
    if isinstance(model, (Billed, Probes)):
        why = "answers over a network, and several requests at once as it is"
    elif isinstance(model, (StandsIn, ToldTargets)) or model.traits.interactive:
        why = "has no copies: what it answers with is in this process"
    else:
        return
    raise BadOption(f"the model `{model.name}` {why}", where=where, hint=f"leave out `{where}`")
