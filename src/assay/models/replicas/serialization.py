"""Serialisation of requests to replicas and of outcomes back.

Requests contain only the keys of their media; the replica reads the media from the object store of its node, where each is
stored once. Records are pickled as plain tuples of their values, because default pickling took an eighth of the driver's time.
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
from assay.core.records.messages import Audio, Image, Media, Message, Prompt, Text, Video
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Usage
from assay.core.records.tools import ResponseFormat, Tool, ToolCall, ToolResult, Tools

__all__ = [
    "ModelError",
    "Payload",
    "Report",
    "load_payload",
    "pack_report",
    "pack_requests",
    "restore_media_part",
    "unpack_report",
    "unpack_requests",
]

_PROTOCOL = 5

Payload = tuple[str, Any]
"""The data of a media part: its kind (`file`, `value` or `error`) and its value."""


def build_media_key(part: Media) -> str:
    """Return the key of a media part: its type and the digest of its content."""
    return f"{type(part).__name__}:{part.digest}"


# --- records ---------------------------------------------------------------------------------------

_RECORDS = (Generate, Likelihood, RollingLikelihood, Response, Failure, Tools, ResponseFormat)
_FIELDS: dict[type, tuple[str, ...]] = {
    kind: tuple(item.name for item in fields(kind) if item.init) for kind in _RECORDS
}


def _build_record(kind: type, *values: Any) -> Any:
    return kind(**dict(zip(_FIELDS[kind], values, strict=True)))


def _make_keyword_reducer(kind: type) -> Callable[[Any], Any]:
    """Return a pickle reducer that passes the record's fields as keyword arguments."""
    values = attrgetter(*_FIELDS[kind])
    return lambda record: (_build_record, (kind, *values(record)))


def _make_positional_reducer(kind: type) -> Callable[[Any], Any]:
    """Return a pickle reducer that passes the record's fields as positional arguments."""
    names = [item.name for item in fields(kind)]
    if len(names) == 1:
        return lambda record: (kind, (getattr(record, names[0]),))
    values = attrgetter(*names)
    return lambda record: (kind, values(record))


def _build_prompt(text: str | None, messages: tuple[Message, ...], chat: bool, digest: str) -> Prompt:
    prompt = Prompt(messages, chat) if text is None else Prompt.of_text(text)
    object.__setattr__(prompt, "_digest", digest)  # computed once, in the driver
    return prompt


def _reduce_prompt(prompt: Prompt) -> Any:
    plain = prompt.plain
    return _build_prompt, (plain, () if plain is not None else prompt.messages, prompt.chat, prompt.digest)


_DISPATCH_TABLE: Any = {
    MappingProxyType: lambda mapping: (dict, (dict(mapping),)),
    Prompt: _reduce_prompt,
    **{kind: _make_keyword_reducer(kind) for kind in _RECORDS},
    **{
        kind: _make_positional_reducer(kind)
        for kind in (Text, Message, LogProbability, Usage, Tool, ToolCall, ToolResult)
    },
}


def _dump(thing: Any) -> bytes:
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, _PROTOCOL)
    pickler.dispatch_table = _DISPATCH_TABLE
    pickler.dump(thing)
    return stream.getvalue()


# --- requests --------------------------------------------------------------------------------------


def pack_requests(requests: Sequence[Request]) -> tuple[bytes, list[Media]]:
    """Return the requests as bytes, and their media."""
    if not any(request.prompt.has_media for request in requests):
        return _dump(list(requests)), []
    media: dict[str, Media] = {}
    stream = io.BytesIO()
    _MediaPickler(stream, media).dump(list(requests))
    return stream.getvalue(), list(media.values())


def unpack_requests(data: bytes, restore_media: Callable[[Media, str], Media]) -> list[Request]:
    """Return the requests of `pack_requests`; `restore_media` returns the part for a key."""
    requests: list[Request] = _MediaUnpickler(io.BytesIO(data), restore_media).load()
    return requests


class _MediaPickler(pickle.Pickler):
    dispatch_table = _DISPATCH_TABLE

    def __init__(self, stream: io.BytesIO, media: dict[str, Media]) -> None:
        super().__init__(stream, _PROTOCOL)
        self._media = media

    def persistent_id(self, thing: Any) -> Any:
        if not isinstance(thing, (Image, Audio, Video)):
            return None
        key = build_media_key(thing)
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
                part = Image(
                    digest=digest,
                    load=_raise_missing_media,
                    source=source,
                    file=_raise_missing_media if file else None,
                )
            case "Audio":
                part = Audio(digest=digest, load=_raise_missing_media, source=source)
            case _:
                part = Video(
                    digest=digest, load=_raise_missing_media, source=source, start_s=times[0], end_s=times[1]
                )
        return self._arrive(part, build_media_key(part))


def _raise_missing_media() -> Any:
    raise RuntimeError("the media part was not restored")


# --- media -----------------------------------------------------------------------------------------


def load_payload(part: Media) -> Payload:
    """Return the data of a media part; the encoded file if there is one, so that the replica decodes it."""
    try:
        if isinstance(part, Image) and part.file is not None:
            return "file", part.file()
        loaded = part.load()
        if isinstance(loaded, Path):
            return "file", loaded.read_bytes()
        return "value", loaded
    except (AssayError, OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:
        return "error", error  # raised in the replica when the model reads the part


def restore_media_part(
    part: Media, get: Callable[[], Payload], keep: Callable[[str, Callable[[], Any]], Any]
) -> Media:
    """Return the media part for the replica; its data is loaded and decoded once."""

    def load() -> Any:
        kind, thing = get()
        if kind == "error":
            raise thing
        if kind == "file" and isinstance(part, Image):
            from assay.media.images import decode_image
            from assay.media.media_files import MediaFile

            return decode_image(MediaFile(digest=part.digest, name=part.source, data=thing))
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


class ModelError(Exception):
    """An exception of the model in a replica; the subclass has the name of the original exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A replica's report on a batch."""

    outcomes: Sequence[Outcome] = ()
    error: Exception | None = None
    """The exception of the model, if it raised one; then no more reports follow."""

    busy_s: float = 0.0
    """Time that the replica has worked on the batch."""

    more: bool = False
    """Whether more reports follow."""


def pack_report(report: Report) -> bytes:
    """Return a report as bytes."""
    error: Any = report.error
    if error is not None and not isinstance(error, AssayError):
        error = type(error).__name__, str(error)
    return _dump((list(report.outcomes), error, report.busy_s, report.more))


def unpack_report(data: bytes) -> Report:
    """Return the report of `pack_report`; unknown exceptions become subclasses of `ModelError`."""
    outcomes, error, busy_s, more = pickle.loads(data)
    if isinstance(error, tuple):
        name, message = error
        error = type(name, (ModelError,), {})(message)
    return Report(outcomes=outcomes, error=error, busy_s=busy_s, more=more)
