"""`ask`: requests to outcomes. Feeds the model windows as large as it likes, many at once if it likes.

One slow window holds no other; what goes wrong with a window becomes its requests' failures.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from assay.core.errors import AssayError, BadData
from assay.core.ports import Model
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, LogProbability, Outcome
from assay.core.secrets import redacted

__all__ = ["Admit", "Backlog", "arranged", "ask"]

_BEGINNING = 256
"""Characters by which prompts are told to begin alike."""

_BREAKS_ALLOWED = 3
"""Windows in a row that may break as a whole before the model is given up."""


class Backlog:
    """Requests waiting for the model: bounded, so that prompts are not all held in memory."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[Request] = deque()
        self._closed = False
        self._hurried = False
        self._changed = asyncio.Condition()

    async def put(self, requests: Sequence[Request]) -> None:
        """Add requests, waiting while there is no room; with none, only wait for room."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._waiting) < self._room or self._closed)
            self._waiting.extend(requests)
            self._changed.notify_all()

    async def put_first(self, requests: Sequence[Request]) -> None:
        """Add requests that go before all others, room or not: what is begun ends before more is begun."""
        async with self._changed:
            self._waiting.extendleft(reversed(requests))
            self._changed.notify_all()

    async def hurry(self, *, on: bool = True) -> None:
        """Whether part of a window is handed out: nobody fills it up while the rest waits for its answers."""
        async with self._changed:
            self._hurried = on
            self._changed.notify_all()

    async def take(self, count: int) -> list[Request]:
        """Up to `count` requests; a full window where one can be had; none at the end."""

        def ready() -> bool:
            full = len(self._waiting) >= min(count, self._room)
            return full or self._closed or (self._hurried and bool(self._waiting))

        async with self._changed:
            await self._changed.wait_for(ready)
            window = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
            self._changed.notify_all()
            return window

    async def peek(self) -> bool:
        """Wait until there is something to take; False when nothing will ever come."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
            return bool(self._waiting)

    async def close(self) -> None:
        """Nothing more will come."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def stop(self) -> None:
        """Nothing more is to be asked: what waits is let go, what still comes is not taken."""
        async with self._changed:
            self._closed = True
            self._room = 0
            self._waiting = deque(maxlen=0)
            self._changed.notify_all()


Admit = Callable[[Sequence[Request]], Awaitable[list[Request]]]
"""Those of some requests, from the first on, that may be asked now; none of them means that nothing more may be."""


async def ask(
    model: Model, backlog: Backlog, receive: Callable[[Outcome], None], admit: Admit | None = None
) -> None:
    """Work through the backlog with as many calls open as the model likes; hand each outcome on at once."""
    breaks = _Breaks()
    async with asyncio.TaskGroup() as group:
        for _ in range(model.traits.in_flight):
            group.create_task(_worker(model, backlog, receive, breaks, admit))


def arranged(window: list[Request]) -> list[Request]:
    """A window as local models like it: requests with the same media and beginning together, long ones first."""
    return sorted(window, key=_likeness) if len(window) > 1 else window


def _likeness(request: Request) -> tuple[tuple[str, ...], str, int]:
    prompt = request.prompt
    text = prompt.plain
    if text is not None:
        return (), text[:_BEGINNING], -len(text)
    text = prompt.text
    media = tuple([part.digest for part in prompt.media]) if prompt.has_media else ()
    return media, text[:_BEGINNING], -len(text)


class _Breaks:
    """Counts windows that broke as a whole, one after the other."""

    def __init__(self) -> None:
        self.count = 0


async def _worker(
    model: Model, backlog: Backlog, receive: Callable[[Outcome], None], breaks: _Breaks, admit: Admit | None
) -> None:
    while taken := await backlog.take(model.traits.window):
        if admit is not None:
            taken = await _admitted(backlog, taken, admit)
        window = arranged(taken)
        unanswered = {request.id: request for request in window}
        try:
            async for outcome in model.answer(window):
                request = unanswered.pop(outcome.request_id, None)
                if request is not None:
                    breaks.count = 0
                    receive(_sound(request, outcome))
        except BadData as error:  # a medium that cannot be read is its requests' failure
            _fail(unanswered, "bad media", str(error), receive)
        except AssayError:
            raise
        except Exception as error:
            breaks.count += 1
            if breaks.count >= _BREAKS_ALLOWED:
                raise AssayError(
                    redacted(
                        f"the model `{model.name}` broke {breaks.count} times in a row: {type(error).__name__}: {error}"
                    ),
                    hint="everything answered so far is saved; repeat the command to go on",
                ) from error
            message = f"{type(error).__name__}: {error}"
            _fail(unanswered, "model error", message, receive)
        else:
            message = "the model gave no answer"
            _fail(unanswered, "model error", message, receive)


async def _admitted(backlog: Backlog, taken: list[Request], admit: Admit) -> list[Request]:
    """What may be asked now; the rest waits, or is let go where nothing more may be asked."""
    admitted = await admit(taken)
    if not admitted:
        await backlog.stop()
    elif rest := taken[len(admitted) :]:
        await backlog.put_first(rest)
    return admitted


def _fail(unanswered: Iterable[str], kind: str, message: str, receive: Callable[[Outcome], None]) -> None:
    for key in sorted(unanswered):
        receive(Failure(request_id=key, kind=kind, message=redacted(message)))


def _sound(request: Request, outcome: Outcome) -> Outcome:
    """An answer of the wrong kind, or a log-probability that is not a number, is not an answer."""
    if isinstance(outcome, Failure):  # a server may echo the key it was sent
        return replace(outcome, message=redacted(outcome.message))
    value = outcome.value
    if type(request) is Generate:  # the most frequent cases are told at once
        if type(value) is str and value.isascii():
            return outcome
    elif (
        type(value) is LogProbability
        and type(value.total) is float
        and value.total == value.total
        and type(value.greedy) is bool
    ):
        return outcome
    match request, value:
        case Generate(), str() as text:
            return outcome if _is_unicode(text) else replace(outcome, value=_as_unicode(text))
        case Likelihood() | RollingLikelihood(), LogProbability(total=total, greedy=greedy) if not math.isnan(
            total
        ):
            plain = type(total) is float and type(greedy) is bool
            return outcome if plain else replace(outcome, value=LogProbability(float(total), bool(greedy)))
        case Likelihood() | RollingLikelihood(), LogProbability():
            message = "the log-probability is not a number"
        case _:
            message = f"a {type(value).__name__} does not answer a {type(request).__name__}"
    return Failure(request_id=outcome.request_id, kind="model error", message=message)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_unicode(text: str) -> str:
    """Half characters, which some servers send at a cut, become replacement marks: no file could hold them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
