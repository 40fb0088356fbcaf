"""Stored prompts as messages for display: roles, media by digest, few-shot examples separate from the question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "FewshotText",
    "MediaPart",
    "PromptMessage",
    "ToolPart",
    "find_prompt_media",
    "parse_prompt",
    "parse_stored_messages",
    "preview_prompt",
]

_MAX_PREVIEW = 280


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """An image, audio or video in a prompt."""

    kind: str
    digest: str
    source: str
    start_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FewshotText:
    """The text before the document's own: description and few-shot examples."""

    text: str
    examples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPart:
    """A tool call, or the result of one; pages collapse it."""

    kind: str
    """`tool call` or `tool result`."""

    tool: str
    text: str


Part = str | MediaPart | FewshotText | ToolPart


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message: its parts in order, each text, media or a tool call."""

    role: str
    parts: tuple[Part, ...] = ()
    example: bool = False
    """Whether it belongs to a few-shot example; pages collapse it."""


def parse_prompt(
    prompt: str, *, fields: Mapping[str, Any], n_shot: Any = 0, delimiter: str = "\n\n"
) -> list[PromptMessage]:
    """Return the messages of a stored prompt; plain text is a single message without a role."""
    messages = parse_stored_messages(prompt)
    if messages is None:
        return [PromptMessage(role="", parts=_split_fewshot(prompt, fields, n_shot, delimiter))]
    shown = []
    last_user = max((index for index, one in enumerate(messages) if one.get("role") == "user"), default=0)
    for index, message in enumerate(messages):
        role = str(message.get("role", ""))
        parts: list[Part] = []
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if part.get("type") == "text":
                parts += _split_fewshot(
                    str(part.get("text", "")), fields, n_shot if index == last_user else 0, delimiter
                )
            elif part.get("type") == "tool_call":
                call = ToolPart(
                    kind="tool call", tool=str(part.get("name", "")), text=str(part.get("arguments", ""))
                )
                parts.append(call)
            elif part.get("type") == "tool_result" and role == "tool":
                parts.append(str(part.get("content", "")))  # the message is a result as a whole
            elif part.get("type") == "tool_result":
                parts.append(ToolPart(kind="tool result", tool="", text=str(part.get("content", ""))))
            else:
                parts.append(_parse_media(part))
        folded = role != "system" and index < last_user and bool(n_shot)
        shown.append(PromptMessage(role=role, parts=tuple(parts), example=folded))
    return shown


def parse_stored_messages(prompt: str) -> list[dict[str, Any]] | None:
    """Return the stored messages, or None for a prompt that is plain text."""
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


def _parse_media(part: Mapping[str, Any]) -> MediaPart:
    return MediaPart(
        kind=str(part.get("type", "")),
        digest=str(part.get("digest", "")),
        source=str(part.get("source", "")),
        start_s=part.get("start_s"),
        end_s=part.get("end_s"),
    )


def _split_fewshot(
    text: str, fields: Mapping[str, Any], n_shot: Any, delimiter: str
) -> tuple[str | FewshotText, ...]:
    """Split a text with few-shot examples into the text before the document's own part, and that part."""
    if not n_shot or not delimiter:
        return (text,)
    begin = _find_document_start(text, fields, delimiter)
    if begin <= 0:
        return (text,)
    return (
        FewshotText(text=text[:begin], examples=int(n_shot) if str(n_shot).isdecimal() else None),
        text[begin:],
    )


def _find_document_start(text: str, fields: Mapping[str, Any], delimiter: str) -> int:
    """Return where the document's own part starts: after the last delimiter before its longest field."""
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


def preview_prompt(
    prompt: str, fields: Mapping[str, Any], n_shot: Any, delimiter: str
) -> tuple[str, list[str]]:
    """Return the document's own question in one line, and the kinds of its media."""
    messages = parse_prompt(prompt, fields=fields, n_shot=n_shot, delimiter=delimiter)
    texts: list[str] = []
    media: list[str] = []
    for message in messages:
        if message.role in ("system", "assistant") or message.example:
            continue
        texts += [part for part in message.parts if isinstance(part, str)]
        media += [part.kind for part in message.parts if isinstance(part, MediaPart)]
    line = " ".join(" ".join(texts).split())
    return (line if len(line) <= _MAX_PREVIEW else f"{line[:_MAX_PREVIEW]}…"), media


def find_prompt_media(prompt: str) -> list[MediaPart]:
    """Return the images, audio and videos of a stored prompt in order."""
    found = []
    for message in parse_stored_messages(prompt) or ():
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") not in ("text", "tool_call", "tool_result"):
                found.append(_parse_media(part))
    return found
