"""Prompts as people read them: messages with roles, media by hash, examples folded away from the question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MediaPart", "Shot", "ShownMessage", "preview", "read_prompt", "stored_messages"]

_SHORT = 280


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """A picture, sound or video in a prompt."""

    kind: str
    digest: str
    source: str
    start_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """Text that comes before the document's own: description and examples."""

    text: str
    examples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message: parts in order, each a text or a medium."""

    role: str
    parts: tuple[str | MediaPart | Shot, ...] = ()
    example: bool = False
    """Whether it belongs to an example: folded away."""

    own: bool = field(default=True)


def read_prompt(
    prompt: str, *, fields: Mapping[str, Any], n_shot: Any = 0, delimiter: str = "\n\n"
) -> list[ShownMessage]:
    """The messages of a stored prompt; a plain one is a single message without a role."""
    messages = stored_messages(prompt)
    if messages is None:
        return [ShownMessage(role="", parts=_split(prompt, fields, n_shot, delimiter))]
    shown = []
    last_user = max((at for at, one in enumerate(messages) if one.get("role") == "user"), default=0)
    for at, message in enumerate(messages):
        role = str(message.get("role", ""))
        parts: list[str | MediaPart | Shot] = []
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if part.get("type") == "text":
                parts += _split(
                    str(part.get("text", "")), fields, n_shot if at == last_user else 0, delimiter
                )
            else:
                parts.append(_medium(part))
        folded = role != "system" and at < last_user and bool(n_shot)
        shown.append(ShownMessage(role=role, parts=tuple(parts), example=folded))
    return shown


def stored_messages(prompt: str) -> list[dict[str, Any]] | None:
    """Stored messages; None for a prompt that is plain text."""
    if not prompt.startswith('{"messages": ['):
        return None
    try:
        content = json.loads(prompt)
    except ValueError:
        return None
    if not isinstance(content, dict) or set(content) != {"messages", "chat"}:
        return None
    listed = content["messages"]
    whole = isinstance(listed, list) and all(isinstance(message, dict) for message in listed)
    return listed if whole else None


def _medium(part: Mapping[str, Any]) -> MediaPart:
    return MediaPart(
        kind=str(part.get("type", "")),
        digest=str(part.get("digest", "")),
        source=str(part.get("source", "")),
        start_s=part.get("start_s"),
        end_s=part.get("end_s"),
    )


def _split(
    text: str, fields: Mapping[str, Any], n_shot: Any, delimiter: str
) -> tuple[str | MediaPart | Shot, ...]:
    """Where there are examples, what comes before the document's own part is one piece that can be folded."""
    if not n_shot or not delimiter:
        return (text,)
    begin = _own_begin(text, fields, delimiter)
    if begin <= 0:
        return (text,)
    return (Shot(text=text[:begin], examples=int(n_shot) if str(n_shot).isdecimal() else None), text[begin:])


def _own_begin(text: str, fields: Mapping[str, Any], delimiter: str) -> int:
    """Where the document's own part begins: behind the last delimiter before the last place its longest field stands."""
    found = -1
    longest = 0
    for value in fields.values():
        if isinstance(value, str) and len(value) > longest:
            place = text.rfind(value[:400].strip() or "\0")
            if place >= 0:
                found, longest = place, len(value)
    end = found if found >= 0 else len(text)
    place = text.rfind(delimiter, 0, end)
    return place + len(delimiter) if place >= 0 else 0


def preview(prompt: str, fields: Mapping[str, Any], n_shot: Any, delimiter: str) -> tuple[str, list[str]]:
    """The document's own question in a line, and the kinds of its media."""
    messages = read_prompt(prompt, fields=fields, n_shot=n_shot, delimiter=delimiter)
    texts: list[str] = []
    media: list[str] = []
    for message in messages:
        if message.role in ("system", "assistant") or message.example:
            continue
        texts += [part for part in message.parts if isinstance(part, str)]
        media += [part.kind for part in message.parts if isinstance(part, MediaPart)]
    line = " ".join(" ".join(texts).split())
    return (line if len(line) <= _SHORT else f"{line[:_SHORT]}…"), media
