"""A `Model` that distributes requests over N replicas of a local model.

The driver plans, stores and scores; replicas answer. Name, capabilities and identity are those of the model itself, so a run
has the same name and the same answers with any number of replicas.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from assay.core.errors import InvalidOption
from assay.core.ports import (
    Model,
    SupportsPreview,
    SupportsPricing,
    SupportsProbing,
    SupportsPromptedAs,
    SupportsTargets,
    SupportsTokenCounts,
    SupportsTokenLogprobs,
    SupportsTruncationPreview,
    Traits,
    TruncatedPrompt,
)
from assay.core.records.messages import Media
from assay.core.records.requests import Request
from assay.core.records.responses import Outcome
from assay.models.replicas.cluster import Cluster, capture_environment, check_address, require_ray
from assay.models.replicas.dispatcher import DispatchLimits, ReplicaDispatcher
from assay.models.replicas.resources import check_resources, compute_resources, count_cpus, list_missing
from assay.models.replicas.worker import ReplicaSpec

__all__ = ["ReplicaConfig", "ReplicatedModel"]

_MAX_REQUESTS_IN_FLIGHT = 2**18
"""Limits the memory for requests in flight; with very many replicas windows become smaller."""

_MAX_MERGED_WINDOWS, _MAX_MERGED_REQUESTS = 4, 256
"""The engine submits up to this many model windows, or requests, at once, so that a fast model gets them in one message."""

_WAIT_WARNING_S = 20.0
"""Warn after this time if some replicas still wait for resources."""

_JOIN_TIMEOUT_S, _JOIN_POLL_INTERVAL_S = 5.0, 0.5
"""How long a cluster that just started may take until a node can run a replica."""

_LOG = logging.getLogger("assay.replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """Number of replicas, cluster and resources. None of it affects answers."""

    replicas: int = 1
    address: str | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    """Name of the model; with its arguments, it determines the resources of a replica."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    batch_size: int | str = 1
    media_bytes: int = 2**30
    workers: int = 0
    """Number of scoring workers, for which CPUs are reserved."""


class ReplicatedModel:
    """A local model with several replicas."""

    def __init__(self, model: Model, make: Callable[[], Model], config: ReplicaConfig) -> None:
        where = "--replicas" if config.replicas > 1 else "--ray"
        require_ray(where)
        check_address(config.address)
        _check_local(model, where)
        check_resources(config.resources)
        self._model, self._make, self._config = model, make, config
        self._cluster: Cluster | None = None
        self._dispatcher: ReplicaDispatcher | None = None
        self._wait_warning: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def traits(self) -> Traits:
        """The model's traits, with windows and concurrency for all replicas."""
        limits = self._limits
        window = max(
            limits.window, min(_MAX_MERGED_WINDOWS * limits.window, _MAX_MERGED_REQUESTS, _max_window(limits))
        )
        return replace(self._model.traits, window=window, in_flight=limits.in_flight)

    @property
    def _limits(self) -> DispatchLimits:
        traits, config = self._model.traits, self._config
        min_batch = config.batch_size if isinstance(config.batch_size, int) else 1
        limits = DispatchLimits(
            replicas=config.replicas, window=traits.window, concurrency=traits.in_flight, min_batch=min_batch
        )
        return replace(limits, window=min(limits.window, _max_window(limits)))

    async def identify(self) -> Mapping[str, str]:
        return await self._model.identify()

    def preview(self, request: Request) -> str:
        """Return the model's preview, or the text of the prompt."""
        return (
            self._model.preview(request) if isinstance(self._model, SupportsPreview) else request.prompt.text
        )

    def preview_truncation(self, request: Request) -> TruncatedPrompt | None:
        """Return what remains of a prompt that is too long, if the model knows."""
        model = self._model
        return model.preview_truncation(request) if isinstance(model, SupportsTruncationPreview) else None

    def count_input_tokens(self, request: Request) -> int | None:
        """Return the tokens of the prompt that the model will read, if the model knows."""
        model = self._model
        return model.count_input_tokens(request) if isinstance(model, SupportsTokenCounts) else None

    def prepare(self, part: Media) -> None:
        """Put a media part into the object store ahead of its batch; the replica decodes it."""
        if self._dispatcher is not None:
            from assay.models.replicas.actors import put_in_object_store

            put_in_object_store(part)

    def give_tokens(self) -> None:
        """Make replicas return tokens, if the model supports it."""
        self._make = partial(_make_with_tokens, self._make)

    async def open(self) -> None:
        """Start or join Ray, and wait for the first replica.

        Raises:
            AssayError: Ray is unreachable, a replica needs more resources than there are, or the model cannot be opened.
        """
        config = self._config
        cpus = count_cpus(config.replicas, config.resources) + config.workers
        cluster = Cluster(config.address, cpus=cpus, store_bytes=config.media_bytes + 2**28)
        await cluster.join()
        self._cluster = cluster
        try:
            await self._start_replicas(cluster)
        except BaseException:
            await self.close()
            raise

    async def _start_replicas(self, cluster: Cluster) -> None:
        from assay.models.replicas.actors import make_replica_starter

        config, limits = self._config, self._limits
        there = await asyncio.to_thread(cluster.resources)
        wanted = compute_resources(config.resources, config.model, config.arguments, config.device, there)
        await self._check_nodes(cluster, wanted)
        spec = ReplicaSpec(
            make_model=self._make,
            identity=dict(await self._model.identify()),
            environment=capture_environment(),
            concurrency=limits.concurrency,
        )
        self._dispatcher = ReplicaDispatcher(make_replica_starter(spec, wanted), limits)
        self._wait_warning = asyncio.get_running_loop().create_task(
            self._warn_if_waiting(self._dispatcher, wanted)
        )
        await self._dispatcher.open()

    async def _check_nodes(self, cluster: Cluster, wanted: Mapping[str, float]) -> None:
        """Raise `InvalidOption` if no node can run a replica, also after the nodes of a starting cluster have joined."""
        deadline = time.monotonic() + (0.0 if cluster.is_local else _JOIN_TIMEOUT_S)
        while missing := list_missing(await asyncio.to_thread(cluster.node_resources), wanted):
            if time.monotonic() >= deadline:
                place = "this machine" if cluster.is_local else "any node of the cluster"
                raise InvalidOption(
                    f"a replica cannot run on {place}: missing {', '.join(missing)}",
                    where="--replica_resources" if self._config.resources else "--model_args",
                    hint="request less, or use a cluster with --ray"
                    if cluster.is_local
                    else "request less, or add a node with these resources before the run",
                )
            await asyncio.sleep(_JOIN_POLL_INTERVAL_S)

    async def _warn_if_waiting(self, dispatcher: ReplicaDispatcher, wanted: Mapping[str, float]) -> None:
        await asyncio.sleep(_WAIT_WARNING_S)
        if dispatcher.ready < self._config.replicas:
            each = ", ".join(f"{name}={amount:g}" for name, amount in wanted.items())
            _LOG.warning(
                "%d of %d replicas are running; the others wait for resources (%s each)",
                dispatcher.ready, self._config.replicas, each,
            )  # fmt: skip

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        assert self._dispatcher is not None, "answer() was called before open()"
        async for outcome in self._dispatcher.answer(window):
            yield outcome

    def hold_requests(self, held: bool) -> None:
        """Send no batches to replicas while `held`."""
        if self._dispatcher is not None:
            self._dispatcher.hold(held)

    async def close(self) -> None:
        """Release the replicas, and disconnect from Ray."""
        warning, dispatcher, cluster = self._wait_warning, self._dispatcher, self._cluster
        self._wait_warning = self._dispatcher = self._cluster = None
        if warning is not None:
            warning.cancel()
            with suppress(asyncio.CancelledError):
                await warning
        if dispatcher is not None:
            if dispatcher.deaths:
                _LOG.warning("%d replicas died and were replaced", dispatcher.deaths)
            await dispatcher.close()
        if cluster is not None:
            await asyncio.to_thread(cluster.close)


def _make_with_tokens(make: Callable[[], Model]) -> Model:
    model = make()
    if isinstance(model, SupportsTokenLogprobs):
        model.give_tokens()
    return model


def _max_window(limits: DispatchLimits) -> int:
    """Return the largest window that keeps the number of requests in flight within the limit."""
    return max(1, _MAX_REQUESTS_IN_FLIGHT // limits.in_flight)


def _check_local(model: Model, where: str) -> None:
    """Raise `InvalidOption` for a model that cannot have replicas."""
    if isinstance(model, (SupportsPricing, SupportsProbing)):
        reason = "is remote and already answers requests concurrently"
    elif isinstance(model, (SupportsPromptedAs, SupportsTargets)) or model.traits.interactive:
        reason = "cannot have replicas: it depends on data of this process"
    else:
        return
    raise InvalidOption(f"the model `{model.name}` {reason}", where=where, hint=f"remove `{where}`")
