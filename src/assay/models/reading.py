"""What models that turn a medium into text have in common: no prompt, no tokens, one answer at a time."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from assay.core.errors import BadData, BadMedia, MissingPackage
from assay.core.messages import Media
from assay.core.requests import Generate, Request
from assay.core.responses import Failure, Outcome, Response

__all__ = ["files_sha256", "package_versions", "read_each", "wanted"]


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
    except BadMedia as error:
        return Failure(request_id=request.id, kind="bad media", message=str(error))
    text, stopped = _cut(text, request.settings.stop)
    seconds = time.monotonic() - started
    return Response(request_id=request.id, value=text, finish="stop" if stopped else "", seconds=seconds)


def _cut(text: str, stops: Iterable[str]) -> tuple[str, bool]:
    """The text up to the first stop string."""
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def wanted(package: str, extra: str, purpose: str) -> str:
    """The version of the package a model lives in.

    Raises:
        MissingPackage: It is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise MissingPackage.of(package, purpose, extra=extra, where="--model") from None


def package_versions(*names: str) -> dict[str, str]:
    """The installed versions of packages whose change may change an answer."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@lru_cache(maxsize=16)
def files_sha256(*paths: Path) -> str:
    """One hash of several files: what the weights are."""
    hasher = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                hasher.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise BadData(f"the weights cannot be read: {error.strerror}", where=str(path)) from None
    return hasher.hexdigest()
