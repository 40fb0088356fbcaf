"""`ask`: send requests to the model in windows, with as many calls in flight as it accepts.

A slow window delays no other one; if a window fails, its requests become failures.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from assay.core.errors import AssayError, DatasetError
from assay.core.ports import Model, SupportsHolding, SupportsQueueing
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import (
    Failure,
    LogProbability,
    Outcome,
    Response,
    describe_invalid_log_probability,
)
from assay.core.secrets import REGISTERED_SECRETS, redact
from assay.scoring.tool_calls.text_calls import parse_text_calls

__all__ = ["Admit", "Backlog", "UnsavedAnswerLimiter", "ask", "sort_window"]

_PREFIX_LENGTH = 256
"""Characters that are compared to group prompts with the same prefix."""

MIN_UNSAVED = 32
"""Answers that may always wait for the disk: fewer would delay calls on a fast disk, too."""

MAX_UNSAVED_CALLS = 512
"""Answers that may wait for the disk, however many calls a model can have in flight."""

CHEAP_ANSWER_S = 0.0005
CHEAP_FACTOR = 16
"""Of a model that needs less than this per answer, this many times as many answers may wait: asking again is cheaper than
waiting for the disk."""

FIRST_WINDOWS = 4
"""Windows in flight at first, of a model that can ask for more."""

MAX_BLOCKED_S = 0.05
"""How long a model that blocks the event loop may keep answers from being written."""

MAX_CONSECUTIVE_FAILURES = 3
"""Windows that may fail one after the other before the run stops."""


class Backlog:
    """The queue of requests for a model, bounded so that prompts are not all in memory."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[Request] = deque()
        self._closed = False
        self._releases_partial = False
        self._changed = asyncio.Condition()

    async def put(self, requests: Sequence[Request]) -> None:
        """Add requests; wait while the queue is full."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._waiting) < self._capacity or self._closed)
            self._waiting.extend(requests)
            self._changed.notify_all()

    async def put_first(self, requests: Sequence[Request]) -> None:
        """Add requests before all others, even to a full queue: dialogues under way come before new documents."""
        async with self._changed:
            self._waiting.extendleft(reversed(requests))
            self._changed.notify_all()

    async def release_partial_windows(self, *, enabled: bool = True) -> None:
        """Hand out windows that are not full: no more requests come until some are answered."""
        async with self._changed:
            self._releases_partial = enabled
            self._changed.notify_all()

    async def take(self, count: int) -> list[Request]:
        """Take up to `count` requests; wait for a full window if more can come; none at the end."""

        def ready() -> bool:
            full = len(self._waiting) >= min(count, self._capacity)
            return full or self._closed or (self._releases_partial and bool(self._waiting))

        async with self._changed:
            await self._changed.wait_for(ready)
            window = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
            self._changed.notify_all()
            return window

    async def peek(self) -> bool:
        """Wait for the first request; False if none will come."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
            return bool(self._waiting)

    async def close(self) -> None:
        """Accept no more requests."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def stop(self) -> None:
        """Drop all requests, those in the queue and those still to come."""
        async with self._changed:
            self._closed = True
            self._capacity = 0
            self._waiting = deque(maxlen=0)
            self._changed.notify_all()


class UnsavedAnswerLimiter:
    """Stops sending requests to a model while too many of its answers wait for the disk.

    An answer is lost if the process is killed before its commit. On a slow disk answers arrive much faster than they are
    committed; the limiter bounds the loss to the calls in flight and one batch of answers.
    """

    def __init__(self, model: Model) -> None:
        self._model = model if isinstance(model, SupportsHolding) else None
        self._max_unsaved = max(
            MIN_UNSAVED, model.traits.window, min(2 * model.traits.in_flight, MAX_UNSAVED_CALLS)
        )
        self.max_unsaved = self._max_unsaved
        """Answers that may wait for the disk while requests are sent: about those that arrive during a fast commit.

        Replies that an adapter has received and not parsed yet come on top, at most about one per call in flight."""

        self.count = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        return self.count > self.max_unsaved

    def record_speed(self, seconds_per_answer: float) -> None:
        """Adapt the limit to the model; called after every window."""
        is_cheap = seconds_per_answer < CHEAP_ANSWER_S
        self.max_unsaved = self._max_unsaved * (CHEAP_FACTOR if is_cheap else 1)

    def add(self, count: int = 1) -> None:
        """Count answers that arrived. Hold further calls if too many wait for the disk."""
        self.count += count
        if self.count > self.max_unsaved and self._room.is_set():
            self._room.clear()
            if self._model is not None:
                self._model.hold_requests(True)

    def remove(self, count: int) -> None:
        """Count answers that were committed."""
        self.count -= count
        if self.count <= self.max_unsaved and not self._room.is_set():
            self._room.set()
            if self._model is not None:
                self._model.hold_requests(False)

    async def wait(self) -> None:
        """Wait until requests may be sent."""
        await self._room.wait()


Admit = Callable[[Sequence[Request]], Awaitable[list[Request]]]
"""Returns the first requests that the budget admits now; none if it is exhausted."""


async def ask(
    model: Model,
    backlog: Backlog,
    receive: Callable[[Outcome], None],
    unsaved: UnsavedAnswerLimiter,
    admit: Admit | None = None,
) -> None:
    """Send all requests of the backlog to the model; pass on each outcome at once.

    Sends nothing while `unsaved` reports that too many answers wait for the disk.
    """
    async with asyncio.TaskGroup() as group:
        workers = _WorkerPool(model, backlog, receive, unsaved, admit, group)
        workers.start(FIRST_WINDOWS if workers.queue is not None else model.traits.in_flight)


class _WorkerPool:
    """The workers of one `ask`. Grows while the model's own queue is short, up to `traits.in_flight` workers."""

    def __init__(
        self,
        model: Model,
        backlog: Backlog,
        receive: Callable[[Outcome], None],
        unsaved: UnsavedAnswerLimiter,
        admit: Admit | None,
        group: asyncio.TaskGroup,
    ) -> None:
        self.model, self.backlog, self.unsaved, self.admit = model, backlog, unsaved, admit
        self.queue = model if isinstance(model, SupportsQueueing) else None
        self.failures_in_a_row = 0
        """Windows that failed one after the other."""

        self._receive, self._group = receive, group
        self._started = self._waiting = 0

    def start(self, count: int) -> None:
        """Start more workers."""
        for _ in range(min(count, self.model.traits.in_flight - self._started)):
            self._started += 1
            self._group.create_task(_work(self))

    async def take(self) -> list[Request]:
        """Take the next window of requests; none at the end."""
        self._waiting += 1
        try:
            return await self.backlog.take(self.model.traits.window)
        finally:
            self._waiting -= 1

    def receive(self, outcome: Outcome) -> None:
        """Pass on an outcome. Start another worker if the model's queue is short and no worker waits for requests."""
        self._receive(outcome)
        if (
            self.queue is not None
            and not self._waiting
            and self.queue.count_queued() < self.model.traits.window
        ):
            self.start(1)


def sort_window(window: list[Request]) -> list[Request]:
    """Sort a window for local models: same media and prefix together, long prompts first."""
    return sorted(window, key=_similarity_key) if len(window) > 1 else window


def _similarity_key(request: Request) -> tuple[tuple[str, ...], str, int]:
    prompt = request.prompt
    text = prompt.plain
    if text is not None:
        return (), text[:_PREFIX_LENGTH], -len(text)
    text = prompt.text
    media = tuple([part.digest for part in prompt.media]) if prompt.has_media else ()
    return media, text[:_PREFIX_LENGTH], -len(text)


async def _work(workers: _WorkerPool) -> None:
    model, backlog, unsaved, receive = workers.model, workers.backlog, workers.unsaved, workers.receive
    while taken := await workers.take():
        if workers.admit is not None:
            taken = await _admit_within_budget(backlog, taken, workers.admit)
        if unsaved.is_full:
            await unsaved.wait()
        window = taken if model.traits.keeps_order else sort_window(taken)
        began = last_pause = time.monotonic()
        unanswered = {request.id: request for request in window}
        try:
            async for outcome in model.answer(window):
                request = unanswered.get(outcome.request_id)
                if request is not None:
                    validated = _validate_outcome(request, outcome)
                    del unanswered[outcome.request_id]  # after the validation, whose errors are failures
                    workers.failures_in_a_row = 0
                    receive(validated)
                    if time.monotonic() - last_pause > MAX_BLOCKED_S:
                        await asyncio.sleep(0)  # a model may answer a whole window without awaiting anything
                        last_pause = time.monotonic()
        except DatasetError as error:  # a medium that cannot be read fails its requests
            _report_failures(unanswered, "bad media", str(error), receive)
        except AssayError:
            raise
        except Exception as error:
            workers.failures_in_a_row += 1
            if workers.failures_in_a_row >= MAX_CONSECUTIVE_FAILURES:
                raise AssayError(
                    redact(
                        f"the model `{model.name}` failed {workers.failures_in_a_row} times in a row: {type(error).__name__}: {error}"
                    ),
                    hint="all responses so far are saved; repeat the command to resume",
                ) from error
            message = f"{type(error).__name__}: {error}"
            _report_failures(unanswered, "model error", message, receive)
        else:
            message = "the model returned no response"
            _report_failures(unanswered, "model error", message, receive)
            if window:
                unsaved.record_speed((time.monotonic() - began) / len(window))


async def _admit_within_budget(backlog: Backlog, taken: list[Request], admit: Admit) -> list[Request]:
    """Return what the budget admits; put the rest back, or drop it if the budget is exhausted."""
    admitted = await admit(taken)
    if not admitted:
        await backlog.stop()
    elif rest := taken[len(admitted) :]:
        await backlog.put_first(rest)
    return admitted


def _report_failures(
    unanswered: Iterable[str], kind: str, message: str, receive: Callable[[Outcome], None]
) -> None:
    for key in sorted(unanswered):
        receive(Failure(request_id=key, kind=kind, message=redact(message)))


def _validate_outcome(request: Request, outcome: Outcome) -> Outcome:
    """Turn a value of the wrong type or an impossible log probability into a failure."""
    if isinstance(outcome, Failure):  # a server may echo the key it was sent
        return replace(outcome, message=redact(outcome.message))
    if type(request) is Generate and request.tools is not None:
        outcome = _read_text_calls(request, outcome)
    value = outcome.value
    said = value if type(value) is str else ""
    for secret in REGISTERED_SECRETS:
        told = (
            said,
            outcome.served,
            outcome.reasoning or "",
            *[call.arguments for call in outcome.tool_calls],
        )
        if any(secret in text for text in told):
            outcome = _redact_response(outcome)
            value = outcome.value
            break
    if type(request) is Generate:  # the most frequent cases first
        if type(value) is str and value.isascii():
            return outcome
    elif (
        type(value) is LogProbability
        and type(value.total) is float
        and -1e4 < value.total <= 0.0
        and type(value.greedy) is bool
    ):
        return outcome
    match request, value:
        case Generate(), str() as text:
            return outcome if _is_unicode(text) else replace(outcome, value=_replace_surrogates(text))
        case Likelihood() | RollingLikelihood(), LogProbability(total=total, greedy=greedy):
            text = request.continuation if isinstance(request, Likelihood) else request.prompt.text
            message = describe_invalid_log_probability(float(total), text)
            if not message:
                plain = type(total) is float and type(greedy) is bool
                return (
                    outcome if plain else replace(outcome, value=LogProbability(float(total), bool(greedy)))
                )
        case _:
            message = f"unexpected value for a {type(request).__name__} request: {type(value).__name__}"
    return Failure(request_id=outcome.request_id, kind="model error", message=message)


def _read_text_calls(request: Generate, response: Response) -> Response:
    """Parse the calls of a response to a prompt that describes the tools. Lone surrogates are replaced."""
    calls = response.tool_calls
    if request.tools is not None and request.tools.syntax and not calls and isinstance(response.value, str):
        calls = parse_text_calls(response.value, request.tools)
    if not all(_is_unicode(call.name + call.arguments) for call in calls):
        calls = tuple(
            replace(call, name=_replace_surrogates(call.name), arguments=_replace_surrogates(call.arguments))
            for call in calls
        )
    return response if calls == response.tool_calls else replace(response, tool_calls=calls)


def _redact_response(response: Response) -> Response:
    """Redact secrets that a server echoes in its answer. The tokens are dropped: they are pieces of the secret."""
    value = response.value
    return replace(
        response,
        value=redact(value) if isinstance(value, str) else value,
        reasoning=redact(response.reasoning) if response.reasoning else response.reasoning,
        served=redact(response.served),
        tool_calls=tuple(replace(call, arguments=redact(call.arguments)) for call in response.tool_calls),
        tokens=None,
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which some servers send at a cut: they cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
