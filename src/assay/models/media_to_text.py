"""Shared code of models that convert images or audio to text: no prompt, no tokens, one answer at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from assay.core.errors import MediaError
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response

__all__ = ["transcribe_media"]


async def transcribe_media(
    window: Sequence[Request], read: Callable[[tuple[Media, ...]], str], kind: type[Media]
) -> AsyncIterator[Outcome]:
    """Convert the media of each request to text, one request at a time, in a thread."""
    for request in window:
        yield await asyncio.to_thread(_transcribe, request, read, kind)


def _transcribe(request: Request, read: Callable[[tuple[Media, ...]], str], kind: type[Media]) -> Outcome:
    started = time.monotonic()
    name = kind.__name__.lower()
    if not isinstance(request, Generate):
        message = f"the model converts {name} to text and does not compute log probabilities"
        return Failure(request_id=request.id, kind="bad request", message=message)
    media = request.prompt.media
    if not media or any(not isinstance(part, kind) for part in media):
        message = f"the prompt must contain {name} and no other media"
        return Failure(request_id=request.id, kind="bad request", message=message)
    try:
        text = read(media)
    except MediaError as error:
        return Failure(request_id=request.id, kind="bad media", message=str(error))
    text, stopped = _cut_at_first_stop(text, request.settings.stop)
    seconds = time.monotonic() - started
    return Response(request_id=request.id, value=text, finish="stop" if stopped else "", seconds=seconds)


def _cut_at_first_stop(text: str, stops: Iterable[str]) -> tuple[str, bool]:
    """Return the text before the first stop string, and whether there was one."""
    positions = [position for stop in stops if stop and (position := text.find(stop)) >= 0]
    return (text[: min(positions)], True) if positions else (text, False)
