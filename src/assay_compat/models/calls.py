"""Call a method of another harness's model with many requests, in a thread, and stream its results.

The models of lm-eval report each result to their cache hook as soon as they know it. The stream yields these results at
once, so that an interrupted call loses nothing that the model has reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

from assay.core.records.requests import Request
from assay.core.records.responses import Failure, Outcome

__all__ = ["MAX_CONSECUTIVE_FAILURES", "ModelCall", "PartialResults", "stream_calls"]

MAX_CONSECUTIVE_FAILURES = 3
"""Requests that may fail alone, one after the other, before the model counts as broken."""

Emit = Callable[[Outcome], None]


class PartialResults:
    """A cache hook: maps reported results to requests. Only a request with unique arguments can be recognised."""

    dbdict = None

    def __init__(self) -> None:
        self._method = ""
        self._requests: dict[Any, int | None] = {}
        self._receive: Callable[[int, Any], None] | None = None

    def start(self, method: str, keys: Sequence[Any], receive: Callable[[int, Any], None]) -> None:
        """Receive results of this call: `receive(index, value)`."""
        self._method, self._receive = method, receive
        self._requests = {}
        for index, key in enumerate(keys):
            self._requests[key] = None if key in self._requests else index

    def stop(self) -> None:
        self._receive = None

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        """Receive one result from the model."""
        if self._receive is None or attr != self._method:
            return
        with suppress(TypeError, IndexError, KeyError):  # arguments in a form of the model's own
            index = self._requests[read_key(attr, req)]
            if index is not None:
                self._receive(index, res)


def read_key(method: str, arguments: Sequence[Any]) -> Any:
    """Return what identifies a request among those of a call: the context, and the continuation of a likelihood."""
    return (arguments[0], arguments[1]) if method == "loglikelihood" else arguments[0]


class ModelCall:
    """One call of the model: the requests, how to send them and how to read their results."""

    def __init__(
        self,
        requests: Sequence[Request],
        send: Callable[[Sequence[Request], Callable[[int, Any], None]], Sequence[Any]],
        read: Callable[[Request, Any], Outcome],
    ) -> None:
        self.requests = requests
        self._send = send
        self._read = read

    def run(self, emit: Emit) -> None:
        """Send all requests together. If the call fails, divide it, until the request that fails is alone."""
        self._run(list(self.requests), emit, [0])

    def _run(self, requests: list[Request], emit: Emit, failures: list[int]) -> None:
        answered: set[int] = set()

        def receive(index: int, value: Any) -> None:
            if index not in answered:
                answered.add(index)
                emit(self._read(requests[index], value))

        try:
            values = list(self._send(requests, receive))
            if len(values) != len(requests):
                raise ValueError(f"the model returned {len(values)} answers for {len(requests)} requests")
        except Exception as error:
            left = [request for index, request in enumerate(requests) if index not in answered]
            failures[0] = 0 if answered else failures[0]
            if len(left) > 1:
                middle = len(left) // 2
                for half in (left[:middle], left[middle:]):
                    self._run(half, emit, failures)
            elif left:
                failures[0] += 1
                if failures[0] >= MAX_CONSECUTIVE_FAILURES:
                    raise
                message = f"{type(error).__name__}: {error}"
                emit(Failure(request_id=left[0].id, kind="model error", message=message))
            return
        failures[0] = 0
        for index, value in enumerate(values):
            receive(index, value)


async def stream_calls(calls: Sequence[ModelCall]) -> AsyncIterator[Outcome]:
    """Run calls one after the other in a thread; yield outcomes as the model reports them."""
    loop = asyncio.get_running_loop()
    for call in calls:
        arrived: asyncio.Queue[Outcome | None] = asyncio.Queue()

        def emit(outcome: Outcome | None, arrived: asyncio.Queue[Outcome | None] = arrived) -> None:
            with suppress(RuntimeError):  # the loop was closed: the run was interrupted
                loop.call_soon_threadsafe(arrived.put_nowait, outcome)

        def work(call: ModelCall = call, emit: Callable[[Outcome | None], None] = emit) -> None:
            try:
                call.run(emit)
            finally:
                emit(None)

        running = asyncio.create_task(asyncio.to_thread(work))
        while (outcome := await arrived.get()) is not None:
            yield outcome
        await running
