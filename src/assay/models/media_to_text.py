"""What models that turn a medium into text have in common: no prompt, no tokens, one answer at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from assay.core.errors import MediaError
from assay.core.messages import Media
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Outcome, Response

__all__ = ["read_each"]


async def read_each(
    window: Sequence[Request], read: Callable[[tuple[Media, ...]], str], kind: type[Media]
) -> AsyncIterator[Outcome]:
    """Read the media of each request in a thread, one request after the other."""
    for request in window:
        yield await asyncio.to_thread(_answer, request, read, kind)


def _answer(request: Request, read: Callable[[tuple[Media, ...]], str], kind: type[Media]) -> Outcome:
    started = time.monotonic()
    name = kind.__name__.lower()
    if not isinstance(request, Generate):
        message = f"it reads {name}s and gives no probabilities"
        return Failure(request_id=request.id, kind="bad request", message=message)
    media = request.prompt.media
    if not media or any(not isinstance(part, kind) for part in media):
        message = f"it reads {name}s: the prompt must have at least one, and nothing else but text"
        return Failure(request_id=request.id, kind="bad request", message=message)
    try:
        text = read(media)
    except MediaError as error:
        return Failure(request_id=request.id, kind="bad media", message=str(error))
    text, stopped = _cut(text, request.settings.stop)
    seconds = time.monotonic() - started
    return Response(request_id=request.id, value=text, finish="stop" if stopped else "", seconds=seconds)


def _cut(text: str, stops: Iterable[str]) -> tuple[str, bool]:
    """The text up to the first stop string."""
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)
