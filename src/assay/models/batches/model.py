"""A `Model` that submits a window as a batch and waits for it, for hours if necessary.

    window -> (already in a batch?) -> submit -> poll -> results -> outcomes

The submission log records which requests are in which batch before anything is sent. A run that was killed or stopped with
Ctrl-C finds its batches there when it resumes.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Protocol

from assay.core.errors import AssayError, InvalidOption, MediaError
from assay.core.fingerprints import digest_json
from assay.core.ports import Ability, Traits
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response
from assay.models.batches.service import BatchLine, BatchService, BatchStatus, LineError
from assay.models.remote.endpoint import Endpoint, count_probe_posts
from assay.models.remote.errors import CallFailed
from assay.models.remote.protocol.chat import ParsedReply
from assay.store.batch_submissions import Submission, SubmissionLog

__all__ = ["BatchModel", "BatchedModel"]

_WINDOW = 10_000
_IN_FLIGHT = 4
_POLL_INTERVALS_S = (2.0, 60.0)
"""Initial and maximum interval between two status checks."""

_MAX_SUBMIT_ATTEMPTS = 5
_LOG = logging.getLogger(__name__)


class BatchedModel(BatchService, Protocol):
    """A batch API together with its model."""

    @property
    def name(self) -> str: ...

    @property
    def billed_as(self) -> str: ...

    def build_identity(self) -> dict[str, str]: ...

    def preview(self, request: Request) -> str: ...

    def find_output_limit(self, request: Generate) -> int | None: ...

    def prepare(self, part: Media) -> None: ...

    def build_response(self, request: Generate, reply: ParsedReply) -> Response: ...


class BatchModel:
    """Answers requests through a batch API."""

    batched = True
    """Tells the cost forecast to use batch prices."""

    def __init__(
        self, service: BatchedModel, *, poll_s: Any = None, submissions: SubmissionLog | None = None
    ) -> None:
        self.service = service
        self._poll_intervals_s = _POLL_INTERVALS_S if poll_s is None else (_parse_seconds(poll_s),) * 2
        self.submissions = submissions or SubmissionLog(digest_json(service.build_identity()))
        self._endpoint: Endpoint | None = None
        self._probe_lock = asyncio.Lock()
        self._probed = False
        self._probe_calls: Counter[str] = Counter()
        self._answered: set[str] = set()
        """Requests whose answers were returned; the run stores them before it closes the model."""

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def billed_as(self) -> str:
        return self.service.billed_as

    def find_output_limit(self, request: Generate) -> int | None:
        return self.service.find_output_limit(request)

    @property
    def traits(self) -> Traits:
        """Large windows, a few at a time: each window is a batch."""
        abilities: frozenset[Ability] = frozenset({"generate", "chat", "image", "video", "tools"})
        return Traits(abilities=abilities, window=_WINDOW, in_flight=_IN_FLIGHT)

    async def identify(self) -> Mapping[str, str]:
        return self.service.build_identity()

    def preview(self, request: Request) -> str:
        return self.service.preview(request)

    def prepare(self, part: Media) -> None:
        self.service.prepare(part)

    async def probe(self) -> Sequence[str]:
        """Check that there is a key."""
        await self.service.open_endpoint().close()
        return ()

    @property
    def seen(self) -> Mapping[str, Any]:
        """The number of calls that found out which settings the service rejects, before the first batch."""
        return count_probe_posts(self._probe_calls)

    async def open(self) -> None:
        """Read the key and clean up the submission log."""
        self._endpoint = self.service.open_endpoint()
        await asyncio.to_thread(self.submissions.delete_expired)

    async def close(self) -> None:
        """Close the connections, and remove answered requests from the submission log."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()
        if self._answered:
            await asyncio.to_thread(self.submissions.forget, self._answered)
            self._answered = set()

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Find requests that are already in a batch, submit the others, wait for all of them."""
        if self._endpoint is None:
            raise RuntimeError("answer() was called before open()")
        wanted: dict[str, Generate] = {}
        for request in window:
            if isinstance(request, Generate):
                wanted[request.id] = request
            else:
                yield Failure(
                    request_id=request.id,
                    kind="bad request",
                    message="the batch API returns no log-probabilities of prompts",
                )
        waiting = [entry async for entry in self._find_submitted(self._endpoint, list(wanted))]
        held = {name for entry in waiting for name in entry.requests}
        async for outcome, entry in self._submit_all(
            self._endpoint, [wanted[n] for n in wanted if n not in held]
        ):
            if entry is not None:
                waiting.append(entry)
            if outcome is not None:
                yield outcome
        tasks = [
            asyncio.ensure_future(self._collect_outcomes(self._endpoint, entry, wanted)) for entry in waiting
        ]
        try:
            for task in asyncio.as_completed(tasks):
                for outcome in await task:
                    yield outcome
        finally:
            for pending in tasks:
                pending.cancel()

    # --- submitting --------------------------------------------------------------------------------

    async def _find_submitted(self, endpoint: Endpoint, names: Sequence[str]) -> AsyncIterator[Submission]:
        """Yield batches that contain some of the requests; search for a batch without an id, or forget it."""
        for entry in await asyncio.to_thread(self.submissions.find, names):
            batch = entry.batch
            if batch is None:
                batch = await self._find_batch(endpoint, entry)
                if batch is None:
                    await asyncio.to_thread(self.submissions.forget, entry.requests)
                    continue
            _LOG.info("batch %s has %d of the requests", batch, len(entry.requests))
            yield Submission(entry.key, batch, entry.count, entry.submitted_at, entry.requests)

    async def _find_batch(self, endpoint: Endpoint, entry: Submission) -> str | None:
        known = await asyncio.to_thread(self.submissions.list_batches)
        batch = await self.service.find_batch(endpoint, entry.key, entry.count, entry.submitted_at, known)
        if batch is not None:
            await asyncio.to_thread(self.submissions.record_batch, entry.key, batch)
        return batch

    async def _submit_all(
        self, endpoint: Endpoint, requests: Sequence[Generate]
    ) -> AsyncIterator[tuple[Outcome | None, Submission | None]]:
        """Submit requests in as many batches as the size limits require; requests that cannot be submitted fail."""
        lines: list[BatchLine] = []
        async with self._probe_lock:
            if requests and not self._probed:
                before = endpoint.posts.copy()
                await self.service.probe_settings(endpoint)
                self._probe_calls += endpoint.posts - before
                self._probed = True
        for request in requests:
            try:
                lines.append(BatchLine(request.id, await asyncio.to_thread(self.service.write_body, request)))
            except MediaError as error:
                yield Failure(request_id=request.id, kind="bad media", message=str(error)), None
        for chunk in self._split(lines):
            names = tuple(line.request_id for line in chunk)
            try:
                yield None, await self._submit(endpoint, chunk, names)
            except CallFailed as error:
                await asyncio.to_thread(self.submissions.forget, names)
                for name in names:
                    yield error.to_failure(name), None

    async def _submit(
        self, endpoint: Endpoint, lines: Sequence[BatchLine], names: tuple[str, ...]
    ) -> Submission:
        """Submit one batch. If it is unclear whether the batch arrived, search for it before submitting it again."""
        key = uuid.uuid4().hex
        await asyncio.to_thread(self.submissions.record_intent, key, names)
        (entry,) = await asyncio.to_thread(self.submissions.find, names[:1])
        for attempt in range(1, _MAX_SUBMIT_ATTEMPTS + 1):
            batch: str | None
            try:
                batch = await self.service.submit(endpoint, key, lines)
            except CallFailed as error:
                batch = await self._find_batch(endpoint, entry) if error.cause.transient else None
                if batch is None and (not error.cause.transient or attempt == _MAX_SUBMIT_ATTEMPTS):
                    raise
            if batch is not None:
                await asyncio.to_thread(self.submissions.record_batch, key, batch)
                _LOG.info("batch %s: %d requests", batch, len(lines))
                return Submission(key, batch, len(names), entry.submitted_at, names)
            await asyncio.sleep(min(60.0, endpoint.retry_policy.initial_delay_s * 2**attempt))
        raise AssertionError("the last attempt raises or returns")

    def _split(self, lines: Sequence[BatchLine]) -> Iterator[list[BatchLine]]:
        chunk: list[BatchLine] = []
        size = 0
        for line in lines:
            if chunk and (
                len(chunk) >= self.service.max_lines or size + len(line.body) > self.service.max_bytes
            ):
                yield chunk
                chunk, size = [], 0
            chunk.append(line)
            size += len(line.body)
        if chunk:
            yield chunk

    # --- waiting -----------------------------------------------------------------------------------

    async def _collect_outcomes(
        self, endpoint: Endpoint, entry: Submission, wanted: Mapping[str, Generate]
    ) -> list[Outcome]:
        """Wait for the end of a batch and return the outcomes of its requests."""
        assert entry.batch is not None
        left = dict.fromkeys(entry.requests)
        outcomes: list[Outcome] = []
        reason = LineError("expired", "the batch ended without a result for this request")
        try:
            status = await self._wait_until_ended(endpoint, entry.batch)
            if status.state == "failed":
                reason = LineError("batch failed", status.reason)
            else:
                async for name, result in self.service.read_results(endpoint, entry.batch):
                    if name in left:
                        del left[name]
                        outcomes.append(self._build_outcome(wanted[name], result))
        except CallFailed as error:
            if error.cause.transient:  # the batch still exists: a resumed run checks it again
                raise AssayError(
                    f"cannot read the status of batch {entry.batch}: {error.cause.message}",
                    hint="the service continues to process it; repeat the command to resume",
                ) from None
            reason = LineError(error.cause.kind, error.cause.message)
        outcomes += [self._build_outcome(wanted[name], reason) for name in left]
        failed = [one.request_id for one in outcomes if isinstance(one, Failure)]
        if failed:
            await asyncio.to_thread(self.submissions.forget, failed)
        self._answered |= {one.request_id for one in outcomes if isinstance(one, Response)}
        return outcomes

    async def _wait_until_ended(self, endpoint: Endpoint, batch: str) -> BatchStatus:
        pause_s, longest_s = self._poll_intervals_s
        done = -1
        while True:
            status = await self.service.get_status(endpoint, batch)
            if status.state != "running":
                return status
            if status.done != done:
                done = status.done
                _LOG.info("batch %s: %d done", batch, done)
            await asyncio.sleep(pause_s)
            pause_s = min(longest_s, pause_s * 1.5)

    def _build_outcome(self, request: Generate, result: ParsedReply | LineError) -> Outcome:
        if isinstance(result, LineError):
            return Failure(request_id=request.id, kind=result.kind, message=result.message)
        return self.service.build_response(request, result)


def _parse_seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InvalidOption(f"`poll_s` must be a number of seconds, not {value!r}", where="--model_args")
    return seconds
