"""Shim for `lmms_eval.protocol`: the messages of a chat model, as classes of the model guide read them."""

from __future__ import annotations

import base64
import importlib
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from assay.core.errors import MissingPackage

__all__ = ["ChatContent", "ChatMessage", "ChatMessages"]

_MEDIA = ("image", "video", "audio")
_URL_SCHEMES = ("http://", "https://", "file://", "data:")


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

    def to_openai_messages(
        self, video_kwargs: Mapping[str, Any] | None = None, pass_video_url: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages as chat APIs read them: images inline, videos as frames, or as their URLs.

        `LMMS_IMAGE_ENCODE_FORMAT` (`PNG`, `JPEG`, `WEBP`) and `LMMS_IMAGE_JPEG_QUALITY` set the format of images.
        """
        return [
            {
                "role": message.role,
                "content": [
                    written
                    for part in message.content
                    for written in self._to_openai_parts(part, dict(video_kwargs or {}), pass_video_url)
                ],
            }
            for message in self.messages
        ]

    def _to_openai_parts(
        self, part: ChatContent, video_kwargs: dict[str, Any], pass_video_url: bool
    ) -> list[dict[str, Any]]:
        if part.type == "text":
            return [{"type": "text", "text": part.text}]
        if part.type == "audio":
            return [{"type": "audio_url", "audio_url": {"url": part.url}}]
        if part.type == "video" and pass_video_url:
            is_path = not str(part.url).startswith(_URL_SCHEMES)
            url = f"file://{Path(part.url).absolute()}" if is_path else part.url
            return [{"type": "video_url", "video_url": {"url": url}}]
        images = _fetch_frames(part, video_kwargs) if part.type == "video" else [part.url]
        kind = _get_image_format()
        return [
            {
                "type": "image_url",
                "image_url": {"url": f"data:image/{kind.lower()};base64,{self.encode_image(image)}"},
            }
            for image in images
        ]

    def encode_image(self, image: Any, *_: Any) -> str:
        """Return an image, or the image in a file, in base64."""
        kind = _get_image_format()
        quality = int(os.environ.get("LMMS_IMAGE_JPEG_QUALITY", "85"))
        options: dict[str, Any] = {} if kind == "PNG" else {"quality": quality}
        opened: Image.Image = Image.open(image) if isinstance(image, str) else image
        file = io.BytesIO()
        (opened if kind == "PNG" else opened.convert("RGB")).save(file, format=kind, **options)
        return base64.b64encode(file.getvalue()).decode()


def _get_image_format() -> str:
    name = os.environ.get("LMMS_IMAGE_ENCODE_FORMAT", "PNG").upper()
    return "JPEG" if name == "JPG" else name


def _fetch_frames(part: ChatContent, video_kwargs: Mapping[str, Any]) -> list[Image.Image]:
    """Return the frames of a video that qwen_vl_utils chooses, as lmms-eval does."""
    try:
        utils = importlib.import_module("qwen_vl_utils")
    except ModuleNotFoundError:
        raise MissingPackage.of(
            "qwen_vl_utils", "`to_openai_messages` with a video", where="lmms_eval.protocol"
        ) from None
    found = utils.fetch_video(_to_hf_part(part, {"video": video_kwargs}))
    return [Image.fromarray(frame.permute(1, 2, 0).numpy().astype("uint8")) for frame in found]


def _to_hf_part(part: ChatContent, added: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    times = {"video_start": part.start_time, "video_end": part.end_time} if part.type == "video" else {}
    given = {key: value for key, value in times.items() if value is not None}
    return {"type": part.type, part.type: part.url, **added.get(part.type, {}), **given}
