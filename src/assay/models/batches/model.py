"""A `Model` that answers a window by handing it in as a batch and waiting for it, for hours if need be.

    window -> (in a batch already?) -> submit -> poll -> results -> outcomes

Which requests are in which batch is in the book before anything is sent. A run that was killed, or stopped with Ctrl-C,
finds its batches there when it is continued; what the journal has is not asked for again by the engine anyway.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Protocol

from assay.core.errors import AssayError, BadMedia, BadOption
from assay.core.fingerprints import digest_of
from assay.core.messages import Media
from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Outcome, Response
from assay.models.batches.book import BatchBook, Entry
from assay.models.batches.service import BatchService, Line, Refused, Status
from assay.models.remote.chat import Reading
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import NotAnswered

__all__ = ["BatchModel", "Batched"]

_WINDOW = 10_000
_IN_FLIGHT = 4
_POLLS_S = (2.0, 60.0)
"""How long to wait between two looks, at first and at most."""

_SUBMITS = 5
_LOG = logging.getLogger(__name__)


class Batched(BatchService, Protocol):
    """A batch API together with the model it asks."""

    @property
    def name(self) -> str: ...

    @property
    def billed_as(self) -> str: ...

    def identity(self) -> dict[str, str]: ...

    def preview(self, request: Request) -> str: ...

    def prepare(self, part: Media) -> None: ...

    def response(self, request: Generate, reading: Reading) -> Response: ...


class BatchModel:
    """Answers through a batch API."""

    batched = True
    """For whoever estimates the cost."""

    def __init__(self, service: Batched, *, poll_s: Any = None, book: BatchBook | None = None) -> None:
        self._service = service
        self._polls_s = _POLLS_S if poll_s is None else (_seconds(poll_s),) * 2
        self._book = book or BatchBook(digest_of(service.identity()))
        self._endpoint: Endpoint | None = None
        self._learning = asyncio.Lock()
        self._learnt = False
        self._answered: set[str] = set()
        """Requests whose answers were handed on: the run keeps them before the model is closed."""

    @property
    def name(self) -> str:
        return self._service.name

    @property
    def billed_as(self) -> str:
        return self._service.billed_as

    @property
    def traits(self) -> Traits:
        """Large windows, a few at a time: each is a batch."""
        abilities: frozenset[Ability] = frozenset({"generate", "chat", "image", "video"})
        return Traits(abilities=abilities, window=_WINDOW, in_flight=_IN_FLIGHT)

    async def identify(self) -> Mapping[str, str]:
        return self._service.identity()

    def preview(self, request: Request) -> str:
        return self._service.preview(request)

    def prepare(self, part: Media) -> None:
        self._service.prepare(part)

    async def probe(self) -> Sequence[str]:
        """See that there is a key, before anything is asked."""
        await self._service.endpoint().close()
        return ()

    @property
    def seen(self) -> Mapping[str, Any]:
        """Nothing: what the service can do is known."""
        return {}

    async def open(self) -> None:
        """Read the key, look into the book."""
        self._endpoint = self._service.endpoint()
        await asyncio.to_thread(self._book.tidy)

    async def close(self) -> None:
        """Close the connections. What was answered is kept by the run now, and leaves the book."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()
        if self._answered:
            await asyncio.to_thread(self._book.forget, self._answered)
            self._answered = set()

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Find what is in a batch already, hand the rest in, wait for all of it."""
        if self._endpoint is None:
            raise RuntimeError("answer() was called before open()")
        wanted: dict[str, Generate] = {}
        for request in window:
            if isinstance(request, Generate):
                wanted[request.id] = request
            else:
                yield Failure(
                    request_id=request.id, kind="bad request", message="a batch gives no probabilities"
                )
        waiting = [entry async for entry in self._found(self._endpoint, list(wanted))]
        held = {name for entry in waiting for name in entry.requests}
        async for outcome, entry in self._submitted(
            self._endpoint, [wanted[n] for n in wanted if n not in held]
        ):
            if entry is not None:
                waiting.append(entry)
            if outcome is not None:
                yield outcome
        tasks = [asyncio.ensure_future(self._outcomes(self._endpoint, entry, wanted)) for entry in waiting]
        try:
            for task in asyncio.as_completed(tasks):
                for outcome in await task:
                    yield outcome
        finally:
            for pending in tasks:
                pending.cancel()

    # --- handing in --------------------------------------------------------------------------------

    async def _found(self, endpoint: Endpoint, names: Sequence[str]) -> AsyncIterator[Entry]:
        """Batches that hold some of the requests; one whose name nobody wrote down is looked for, or forgotten."""
        for entry in await asyncio.to_thread(self._book.find, names):
            batch = entry.batch
            if batch is None:
                batch = await self._look_for(endpoint, entry)
                if batch is None:
                    await asyncio.to_thread(self._book.forget, entry.requests)
                    continue
            _LOG.info("batch %s has %d of the requests", batch, len(entry.requests))
            yield Entry(entry.key, batch, entry.count, entry.at, entry.requests)

    async def _look_for(self, endpoint: Endpoint, entry: Entry) -> str | None:
        known = await asyncio.to_thread(self._book.known)
        batch = await self._service.find(endpoint, entry.key, entry.count, entry.at, known)
        if batch is not None:
            await asyncio.to_thread(self._book.submitted, entry.key, batch)
        return batch

    async def _submitted(
        self, endpoint: Endpoint, requests: Sequence[Generate]
    ) -> AsyncIterator[tuple[Outcome | None, Entry | None]]:
        """Hand requests in, in as many batches as their size needs; what cannot be handed in is a failure."""
        lines: list[Line] = []
        async with self._learning:
            if requests and not self._learnt:
                await self._service.learn(endpoint)
                self._learnt = True
        for request in requests:
            try:
                lines.append(Line(request.id, await asyncio.to_thread(self._service.body, request)))
            except BadMedia as error:
                yield Failure(request_id=request.id, kind="bad media", message=str(error)), None
        for chunk in self._chunks(lines):
            names = tuple(line.name for line in chunk)
            try:
                yield None, await self._submit(endpoint, chunk, names)
            except NotAnswered as error:
                await asyncio.to_thread(self._book.forget, names)
                for name in names:
                    yield error.failure(name), None

    async def _submit(self, endpoint: Endpoint, lines: Sequence[Line], names: tuple[str, ...]) -> Entry:
        """Hand one batch in. Where it is not clear whether it arrived, it is looked for before it is sent again."""
        key = uuid.uuid4().hex
        await asyncio.to_thread(self._book.begin, key, names)
        (entry,) = await asyncio.to_thread(self._book.find, names[:1])
        for attempt in range(1, _SUBMITS + 1):
            batch: str | None
            try:
                batch = await self._service.submit(endpoint, key, lines)
            except NotAnswered as error:
                batch = await self._look_for(endpoint, entry) if error.fault.heals else None
                if batch is None and (not error.fault.heals or attempt == _SUBMITS):
                    raise
            if batch is not None:
                await asyncio.to_thread(self._book.submitted, key, batch)
                _LOG.info("batch %s: %d requests", batch, len(lines))
                return Entry(key, batch, len(names), entry.at, names)
            await asyncio.sleep(min(60.0, endpoint.patience.first_wait_s * 2**attempt))
        raise AssertionError("the last attempt raises or returns")

    def _chunks(self, lines: Sequence[Line]) -> Iterator[list[Line]]:
        chunk: list[Line] = []
        size = 0
        for line in lines:
            if chunk and (
                len(chunk) >= self._service.most_lines or size + len(line.body) > self._service.most_bytes
            ):
                yield chunk
                chunk, size = [], 0
            chunk.append(line)
            size += len(line.body)
        if chunk:
            yield chunk

    # --- waiting -----------------------------------------------------------------------------------

    async def _outcomes(
        self, endpoint: Endpoint, entry: Entry, wanted: Mapping[str, Generate]
    ) -> list[Outcome]:
        """What became of the wanted requests of a batch, once it has ended."""
        assert entry.batch is not None
        left = dict.fromkeys(entry.requests)
        outcomes: list[Outcome] = []
        why = Refused("expired", "the batch ended without it")
        try:
            status = await self._ended(endpoint, entry.batch)
            if status.state == "failed":
                why = Refused("batch failed", status.why)
            else:
                async for name, result in self._service.results(endpoint, entry.batch):
                    if name in left:
                        del left[name]
                        outcomes.append(self._outcome(wanted[name], result))
        except NotAnswered as error:
            if error.fault.heals:  # the batch is still there: whoever goes on with the run looks again
                raise AssayError(
                    f"the batch {entry.batch} cannot be looked at: {error.fault.message}",
                    hint="it goes on without us; repeat the command to go on",
                ) from None
            why = Refused(error.fault.kind, error.fault.message)
        outcomes += [self._outcome(wanted[name], why) for name in left]
        failed = [one.request_id for one in outcomes if isinstance(one, Failure)]
        if failed:
            await asyncio.to_thread(self._book.forget, failed)
        self._answered |= {one.request_id for one in outcomes if isinstance(one, Response)}
        return outcomes

    async def _ended(self, endpoint: Endpoint, batch: str) -> Status:
        pause_s, longest_s = self._polls_s
        done = -1
        while True:
            status = await self._service.status(endpoint, batch)
            if status.state != "running":
                return status
            if status.done != done:
                done = status.done
                _LOG.info("batch %s: %d done", batch, done)
            await asyncio.sleep(pause_s)
            pause_s = min(longest_s, pause_s * 1.5)

    def _outcome(self, request: Generate, result: Reading | Refused) -> Outcome:
        if isinstance(result, Refused):
            return Failure(request_id=request.id, kind=result.kind, message=result.message)
        return self._service.response(request, result)


def _seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise BadOption(f"`poll_s` must be a number of seconds, not {value!r}", where="--model_args")
    return seconds
