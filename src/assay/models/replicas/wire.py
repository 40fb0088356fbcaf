"""Requests as they travel to a replica, outcomes as they travel back.

Media do not travel with requests: a request names them, and the replica takes them from the object store of its machine,
where each is brought once. Records travel as the values they are made of: as pickle would send them of itself, packing took
an eighth of the driver's time.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay.core.errors import AssayError
from assay.core.messages import Audio, Image, Media, Message, Prompt, Text, Video
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, LogProbability, Outcome, Response, Usage

__all__ = ["ModelBroke", "Payload", "Report", "arrived", "pack", "payload_of", "sent", "shown", "unpack"]

_PROTOCOL = 5

Payload = tuple[str, Any]
"""What a medium is made of: its kind (`file`, `value` or `error`) and the thing itself."""


def media_key(part: Media) -> str:
    """What a medium is known by on its way: its content."""
    return f"{type(part).__name__}:{part.digest}"


# --- records ---------------------------------------------------------------------------------------

_RECORDS = (Generate, Likelihood, RollingLikelihood, Response, Failure)
_FIELDS: dict[type, tuple[str, ...]] = {
    kind: tuple(item.name for item in fields(kind) if item.init) for kind in _RECORDS
}


def _made(kind: type, *values: Any) -> Any:
    return kind(**dict(zip(_FIELDS[kind], values, strict=True)))


def _reducer(kind: type) -> Callable[[Any], Any]:
    """What pickle is to keep of a record: its kind, and the values it is made of."""
    values = attrgetter(*_FIELDS[kind])
    return lambda record: (_made, (kind, *values(record)))


def _reducer_in_order(kind: type) -> Callable[[Any], Any]:
    """The same for a record that takes its values in their order."""
    names = [item.name for item in fields(kind)]
    if len(names) == 1:
        return lambda record: (kind, (getattr(record, names[0]),))
    values = attrgetter(*names)
    return lambda record: (kind, values(record))


def _prompt(text: str | None, messages: tuple[Message, ...], chat: bool, digest: str) -> Prompt:
    prompt = Prompt(messages, chat) if text is None else Prompt.of_text(text)
    object.__setattr__(prompt, "_digest", digest)  # computed once, by whoever rendered it
    return prompt


def _reduce_prompt(prompt: Prompt) -> Any:
    plain = prompt.plain
    return _prompt, (plain, () if plain is not None else prompt.messages, prompt.chat, prompt.digest)


_TABLE: Any = {
    MappingProxyType: lambda mapping: (dict, (dict(mapping),)),
    Prompt: _reduce_prompt,
    **{kind: _reducer(kind) for kind in _RECORDS},
    **{kind: _reducer_in_order(kind) for kind in (Text, Message, LogProbability, Usage)},
}


def _dumped(thing: Any) -> bytes:
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, _PROTOCOL)
    pickler.dispatch_table = _TABLE
    pickler.dump(thing)
    return stream.getvalue()


# --- requests --------------------------------------------------------------------------------------


def pack(requests: Sequence[Request]) -> tuple[bytes, list[Media]]:
    """The requests in bytes, and the media they name."""
    if not any(request.prompt.has_media for request in requests):
        return _dumped(list(requests)), []
    media: dict[str, Media] = {}
    stream = io.BytesIO()
    _MediaPickler(stream, media).dump(list(requests))
    return stream.getvalue(), list(media.values())


def unpack(data: bytes, arrive: Callable[[Media, str], Media]) -> list[Request]:
    """The requests again; `arrive` gives back what each medium needs, by its key."""
    requests: list[Request] = _MediaUnpickler(io.BytesIO(data), arrive).load()
    return requests


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a replica says of a portion."""

    outcomes: Sequence[Outcome] = ()
    error: Exception | None = None
    """What broke the model, if something did: nothing more comes then."""

    busy_s: float = 0.0
    """How long the replica has worked on the portion."""

    more: bool = False
    """Whether there is more to come."""


def sent(report: Report) -> bytes:
    """A report in bytes."""
    error: Any = report.error
    if error is not None and not isinstance(error, AssayError):
        error = type(error).__name__, str(error)
    return _dumped((list(report.outcomes), error, report.busy_s, report.more))


def arrived(data: bytes) -> Report:
    """The report again; an error that only the model knows under its own name."""
    outcomes, error, busy_s, more = pickle.loads(data)
    if isinstance(error, tuple):
        name, message = error
        error = type(name, (ModelBroke,), {})(message)
    return Report(outcomes=outcomes, error=error, busy_s=busy_s, more=more)
