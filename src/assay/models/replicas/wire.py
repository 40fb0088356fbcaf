"""Requests as they travel to a replica, outcomes as they travel back.

Media do not travel with requests: a request names them, and the replica takes them from the object store of its machine,
where each is brought once.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay.core.errors import AssayError
from assay.core.messages import Audio, Image, Media, Video
from assay.core.requests import Request
from assay.core.responses import Outcome

__all__ = ["ModelBroke", "Payload", "arrived", "pack", "payload_of", "sent", "shown", "unpack"]

_PROTOCOL = 5

Payload = tuple[str, Any]
"""What a medium is made of: its kind (`file`, `value` or `error`) and the thing itself."""


def media_key(part: Media) -> str:
    """What a medium is known by on its way: its content."""
    return f"{type(part).__name__}:{part.digest}"


# --- requests --------------------------------------------------------------------------------------


def pack(requests: Sequence[Request]) -> tuple[bytes, list[Media]]:
    """The requests in bytes, and the media they name."""
    stream = io.BytesIO()
    if not any(request.prompt.has_media for request in requests):
        pickler = pickle.Pickler(stream, _PROTOCOL)
        pickler.dispatch_table = _TABLE
        pickler.dump(list(requests))
        return stream.getvalue(), []
    media: dict[str, Media] = {}
    _MediaPickler(stream, media).dump(list(requests))
    return stream.getvalue(), list(media.values())


def unpack(data: bytes, arrive: Callable[[Media, str], Media]) -> list[Request]:
    """The requests again; `arrive` gives back what each medium needs, by its key."""
    requests: list[Request] = _MediaUnpickler(io.BytesIO(data), arrive).load()
    return requests


_TABLE: Any = {MappingProxyType: lambda mapping: (dict, (dict(mapping),))}


class _MediaPickler(pickle.Pickler):
    dispatch_table = _TABLE

    def __init__(self, stream: io.BytesIO, media: dict[str, Media]) -> None:
        super().__init__(stream, _PROTOCOL)
        self._media = media

    def persistent_id(self, thing: Any) -> Any:
        if not isinstance(thing, (Image, Audio, Video)):
            return None
        key = media_key(thing)
        self._media.setdefault(key, thing)
        times = (thing.start_s, thing.end_s) if isinstance(thing, Video) else None
        file = isinstance(thing, Image) and thing.file is not None
        return type(thing).__name__, thing.digest, thing.source, times, file


class _MediaUnpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, arrive: Callable[[Media, str], Media]) -> None:
        super().__init__(stream)
        self._arrive = arrive

    def persistent_load(self, pid: Any) -> Media:
        kind, digest, source, times, file = pid
        part: Media
        match kind:
            case "Image":
                part = Image(digest=digest, load=_nothing, source=source, file=_nothing if file else None)
            case "Audio":
                part = Audio(digest=digest, load=_nothing, source=source)
            case _:
                part = Video(digest=digest, load=_nothing, source=source, start_s=times[0], end_s=times[1])
        return self._arrive(part, media_key(part))


def _nothing() -> Any:
    raise RuntimeError("the medium has not arrived")


# --- media -----------------------------------------------------------------------------------------


def payload_of(part: Media) -> Payload:
    """What is sent of a medium: its file where there is one, so that it is decoded where it is needed."""
    try:
        if isinstance(part, Image) and part.file is not None:
            return "file", part.file()
        loaded = part.load()
        if isinstance(loaded, Path):
            return "file", loaded.read_bytes()
        return "value", loaded
    except (AssayError, OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:
        return "error", error  # the replica meets it where the model would have met it


def shown(part: Media, get: Callable[[], Payload], keep: Callable[[str, Callable[[], Any]], Any]) -> Media:
    """The part on the side of the replica: loads what was sent, as often as it is asked, once."""

    def load() -> Any:
        kind, thing = get()
        if kind == "error":
            raise thing
        if kind == "file" and isinstance(part, Image):
            from assay.media.encoded import Encoded
            from assay.media.pictures import decode_picture

            return decode_picture(Encoded(digest=part.digest, name=part.source, data=thing))
        return thing

    def file() -> bytes:
        kind, thing = get()
        if kind == "error":
            raise thing
        return bytes(thing)

    changed = replace(part, load=lambda: keep("load", load), keep=keep)
    if isinstance(changed, Image) and changed.file is not None:
        changed = replace(changed, file=file)
    return changed


# --- outcomes --------------------------------------------------------------------------------------


class ModelBroke(Exception):
    """What a model raised in a replica, under its own name."""


def sent(outcomes: Sequence[Outcome], error: Exception | None = None, busy_s: float = 0.0) -> bytes:
    """Outcomes in bytes, what broke the model, if something did, and how long the replica has worked on the portion."""
    trouble: Any = None
    if isinstance(error, AssayError):
        trouble = error
    elif error is not None:
        trouble = type(error).__name__, str(error)
    return pickle.dumps((list(outcomes), trouble, busy_s), _PROTOCOL)


def arrived(data: bytes) -> tuple[list[Outcome], Exception | None, float]:
    """The outcomes again, the error, and the seconds."""
    outcomes, trouble, busy_s = pickle.loads(data)
    if isinstance(trouble, tuple):
        name, message = trouble
        trouble = type(name, (ModelBroke,), {})(message)
    return outcomes, trouble, busy_s
