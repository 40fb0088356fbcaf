"""Shim for `lmms_eval.protocol`: the messages of a chat model, as classes of the model guide read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ChatContent", "ChatMessage", "ChatMessages"]

_MEDIA = ("image", "video", "audio")


@dataclass(slots=True, kw_only=True)
class ChatContent:
    """A text, or a medium by its value: an image, a path, an array."""

    type: str
    text: str = ""
    url: Any = None
    start_time: float | None = None
    end_time: float | None = None


class ChatMessage:
    """A message with its parts in order."""

    def __init__(self, *, role: str, content: Iterable[ChatContent | Mapping[str, Any]]) -> None:
        self.role = role
        self.content = [part if isinstance(part, ChatContent) else ChatContent(**part) for part in content]


class ChatMessages:
    """A conversation: `ChatMessages(messages=doc_to_messages(doc))`."""

    def __init__(self, *, messages: Iterable[ChatMessage | Mapping[str, Any]]) -> None:
        self.messages = [one if isinstance(one, ChatMessage) else ChatMessage(**one) for one in messages]

    def extract_media(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the images, the videos and the audios of all messages, each in order."""
        parts = [part for message in self.messages for part in message.content]
        images, videos, audios = ([part.url for part in parts if part.type == kind] for kind in _MEDIA)
        return images, videos, audios

    def to_hf_messages(
        self, video_kwargs: Mapping[str, Any] | None = None, image_kwargs: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the messages as chat templates of transformers read them. The keywords are added to each medium of the kind."""
        added = {"image": dict(image_kwargs or {}), "video": dict(video_kwargs or {})}
        return [
            {"role": message.role, "content": [_to_hf_part(part, added) for part in message.content]}
            for message in self.messages
        ]


def _to_hf_part(part: ChatContent, added: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    times = {"video_start": part.start_time, "video_end": part.end_time} if part.type == "video" else {}
    given = {key: value for key, value in times.items() if value is not None}
    return {"type": part.type, part.type: part.url, **added.get(part.type, {}), **given}
