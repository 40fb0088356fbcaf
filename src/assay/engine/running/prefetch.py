"""Decode media ahead of the model, in threads, within a memory budget.

Requests carry *shared* parts: the first reader decodes a medium, or waits for the thread that decodes it; all others get the
same pixels. When the last request that needs a medium has its outcome, the decoded medium is released.

    share -> (decode ahead, up to the budget) -> the model reads -> release
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from assay.core.ports import Model, SupportsMediaPreparation
from assay.core.records.messages import Audio, Image, Media, Message, Part, Prompt, Video
from assay.core.records.requests import Request
from assay.engine.running.model_queue import Backlog
from assay.media.images import count_pixel_bytes, is_image

__all__ = [
    "FIRST_MEDIA_CHUNK_SIZE",
    "MediaPrefetcher",
    "count_decoded_bytes",
    "count_media_bytes",
    "strip_media",
]

_THREADS = max(2, min(8, os.cpu_count() or 1))
"""Decoder threads beside the model, each of which decodes one medium; Pillow, PyAV and soundfile release the GIL."""

FIRST_MEDIA_CHUNK_SIZE = 16
"""Size of the first chunk of a task with media: their size is not known yet."""

_CHUNK_SHARE = 8
"""A chunk takes at most this fraction of the budget."""


@dataclass(slots=True)
class _SharedMedium:
    """A medium that requests in flight need."""

    part: Media
    uses: int = 0
    size: int = 0
    """Its bytes in the budget: of the part itself and of what was decoded."""

    made: dict[str, Future[Any]] = field(default_factory=dict)


class MediaPrefetcher:
    """Holds the media of requests from rendering to their outcome."""

    def __init__(self, budget_bytes: int, model: Model) -> None:
        self._budget = budget_bytes
        self._prepare: Callable[[Media], object] = (
            model.prepare if isinstance(model, SupportsMediaPreparation) else _load_image
        )
        self._shared: dict[str, _SharedMedium] = {}
        self._needed: dict[str, tuple[str, ...]] = {}
        """Request id or document key -> the media it needs."""

        self._decode_queue: deque[str] = deque()
        self._busy = 0
        self._total = 0
        self._expected_size = budget_bytes // 2
        """Bytes that a medium takes when decoded: of the last one; at first, two fill the budget."""

        self._lock = threading.RLock()
        self._freed = asyncio.Event()
        self._pool: ThreadPoolExecutor | None = None

    # --- requests in, outcomes out -----------------------------------------------------------------

    def share(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Share the media of requests and sort requests with the same medium together."""
        if not any(request.prompt.has_media for request in requests):
            return requests
        places: dict[str, int] = {}
        ordered: list[tuple[int, Request]] = []
        for at, request in enumerate(requests):
            keys = tuple(dict.fromkeys(_key(part) for part in request.prompt.media))
            place = places.setdefault(keys[0], at) if keys else at
            ordered.append((place, self._admit(request, keys) if keys else request))
        ordered.sort(key=lambda pair: pair[0])
        for _, request in ordered:
            self._decode_queue.extend(self._needed.get(request.id, ()))
        self._start_decoding()
        return [request for _, request in ordered]

    def hold(self, name: str, media: Sequence[Media]) -> tuple[Media, ...]:
        """Share media with a reader after the model, a judge, until `release(name)`."""
        if media:
            self._register(name, media, tuple(dict.fromkeys(_key(part) for part in media)))
        return tuple(self._share_part(part) for part in media)

    def _admit(self, request: Request, keys: tuple[str, ...]) -> Request:
        self._register(request.id, request.prompt.media, keys)
        return replace(request, prompt=_change_media(request.prompt, self._share_part))

    def _register(self, name: str, media: Sequence[Media], keys: tuple[str, ...]) -> None:
        with self._lock:
            self._needed[name] = keys
            for part in media:
                if _key(part) not in self._shared:
                    self._shared[_key(part)] = _SharedMedium(part, size=part.held_bytes)
                    self._total += part.held_bytes
            for key in keys:
                self._shared[key].uses += 1

    def _share_part(self, part: Media) -> Media:
        """Return a part without content, so that a model that keeps requests keeps no media."""
        key = _key(part)
        shared = replace(
            part, load=partial(self._load, key), keep=partial(self._get_or_make, key), held_bytes=0
        )
        if isinstance(shared, Image) and shared.file is not None:
            shared = replace(shared, file=partial(self._file, key))
        return shared

    def _load(self, key: str) -> Any:
        with self._lock:
            shared = self._shared.get(key)
        return _raise_released() if shared is None else self._get_or_make(key, "load", shared.part.load)

    def _file(self, key: str) -> bytes:
        with self._lock:
            shared = self._shared.get(key)
        part = None if shared is None else shared.part
        return part.file() if isinstance(part, Image) and part.file is not None else bytes(_raise_released())

    def release(self, request_id: str) -> None:
        """Release the media of a request that no other request needs."""
        if not self._needed or (keys := self._needed.pop(request_id, None)) is None:
            return
        with self._lock:
            for key in keys:
                shared = self._shared[key]
                shared.uses -= 1
                if shared.uses == 0:
                    del self._shared[key]
                    self._total -= shared.size
        self._freed.set()
        self._start_decoding()

    async def wait_for_memory(self, backlog: Backlog) -> None:
        """Wait while the budget is used up; meanwhile the model gets windows that are not full."""
        waited = False
        while self.is_full:
            if not waited:
                await backlog.release_partial_windows()
            waited = True
            self._freed.clear()
            await self._freed.wait()
        if waited:
            await backlog.release_partial_windows(enabled=False)

    @property
    def is_full(self) -> bool:
        """Whether rendering has to wait."""
        return self._total >= self._budget - self._budget // _CHUNK_SHARE and bool(self._needed)

    def close(self) -> None:
        """Stop decoding."""
        self._decode_queue.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def choose_chunk_size(self, documents: Sequence[Sequence[Request]], most: int) -> int:
        """Choose how many documents to render together, by the size of the last ones."""
        held = count_media_bytes(request for requests in documents for request in requests)
        return max(1, min(most, self._budget // _CHUNK_SHARE * len(documents) // held)) if held else most

    # --- decoding ----------------------------------------------------------------------------------

    def _get_or_make(self, key: str, how: str, make: Callable[[], Any]) -> Any:
        """Return the cached result of `make()`, computed at most once while requests need the medium. Thread-safe."""
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                return make()  # read after the outcome: not kept
            future = shared.made.get(how)
            first = future is None
            if future is None:
                future = shared.made[how] = Future()
        if first:
            self._make(shared, key, future, make)
        return future.result()

    def _make(self, shared: _SharedMedium, key: str, future: Future[Any], make: Callable[[], Any]) -> None:
        try:
            value = make()
        except Exception as error:  # noqa: BLE001 - raised again for every reader
            future.set_exception(error)
            return
        except BaseException:
            future.cancel()
            raise
        size = max(0, count_decoded_bytes(value) - shared.part.held_bytes)
        with self._lock:
            if self._shared.get(key) is shared:
                shared.size += size
                self._total += size
                self._expected_size = size
        future.set_result(value)

    def _start_decoding(self) -> None:
        """Start decoding the next media, while the budget allows."""
        with self._lock:
            while (
                self._decode_queue
                and self._busy < _THREADS
                and self._total + self._busy * self._expected_size < self._budget
            ):
                shared = self._shared.get(self._decode_queue.popleft())
                if shared is None or shared.made:
                    continue  # released or decoded already
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="assay-media")
                self._busy += 1
                self._pool.submit(self._decode, self._share_part(shared.part))

    def _decode(self, part: Media) -> None:
        with suppress(Exception):  # the model reads the part and reports the same error
            self._prepare(part)
        with self._lock:
            self._busy -= 1
        self._start_decoding()


def _load_image(part: Media) -> object:
    """Decode an image; audio and video are decoded only as the model needs them."""
    return part.load() if isinstance(part, Image) else None


def _key(part: Media) -> str:
    stretch = f":{part.start_s}:{part.end_s}" if isinstance(part, Video) else ""
    return f"{type(part).__name__}:{part.digest}{stretch}"


def _change_media(prompt: Prompt, change: Callable[[Media], Media]) -> Prompt:
    """Change the media of a prompt; its digest stays."""
    messages = tuple(
        Message(message.role, tuple(_change_part(part, change) for part in message.parts))
        for message in prompt.messages
    )
    return Prompt(messages, chat=prompt.chat).with_digest_of(prompt)


def _change_part(part: Part, change: Callable[[Media], Media]) -> Part:
    return change(part) if isinstance(part, (Image, Audio, Video)) else part


def count_decoded_bytes(value: Any) -> int:
    """Count the bytes of decoded media: images, arrays, bytes, and lists of them."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if is_image(value):
        return count_pixel_bytes(value)
    if isinstance(value, (list, tuple)):
        return sum(count_decoded_bytes(one) for one in value)
    return count_decoded_bytes(getattr(value, "frames", ()))


def count_media_bytes(requests: Iterable[Request]) -> int:
    """Count the bytes that the media of requests hold, each medium once."""
    media = {id(part): part.held_bytes for request in requests for part in request.prompt.media}
    return sum(media.values())


def strip_media(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Drop the content of media: documents that wait for responses and verdicts do not need it."""
    for request in requests:  # no generator: this runs for every document
        if request.prompt.plain is None and request.prompt.has_media:
            break
    else:
        return requests
    return tuple(
        replace(request, prompt=_change_media(request.prompt, _strip_part))
        if request.prompt.has_media
        else request
        for request in requests
    )


def _strip_part(part: Media) -> Media:
    light = replace(part, load=_raise_released, held_bytes=0)
    return replace(light, file=None) if isinstance(light, Image) else light


def _raise_released() -> Any:
    raise RuntimeError("the medium was released when its request was answered")
