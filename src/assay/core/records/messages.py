"""Prompts: messages that consist of text, image, audio and video parts, tool calls and tool results.

A media part carries a content hash and a function that loads it; decoding is up to `assay.media`, which models call for
pixels or samples. `keep` caches the decoded result. This module does not know about tasks or models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.core.fingerprints import digest_ascii_tuple, digest_text
from assay.core.records.tools import ToolCall, ToolResult

__all__ = [
    "Audio",
    "Image",
    "Media",
    "Memoize",
    "Message",
    "Part",
    "Prompt",
    "Role",
    "Text",
    "Video",
    "compute_uncached",
]

Role = Literal["system", "user", "assistant", "tool"]
_set_frozen = object.__setattr__
Memoize = Callable[[str, Callable[[], Any]], Any]
"""`keep(key, compute)` returns `compute()`, cached under `key` for this media part."""


def compute_uncached(key: str, compute: Callable[[], Any]) -> Any:
    """Return `compute()`: a `Memoize` without a cache, for parts outside a run."""
    return compute()


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image. `load()` returns a decoded `PIL.Image.Image`."""

    digest: str
    load: Callable[[], Any] = field(compare=False, repr=False)
    source: str = field(default="", compare=False)
    """Where it came from (a path, a column), for display."""

    held_bytes: int = field(default=0, compare=False, repr=False)
    """Memory the part itself holds. The engine counts it against its media budget."""

    keep: Memoize = field(default=compute_uncached, compare=False, repr=False)
    file: Callable[[], bytes] | None = field(default=None, compare=False, repr=False)
    """Returns the bytes of the original file, if there is one, for models that accept files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audio:
    """An audio clip. `load()` returns `(samples, rate_hz)`: float32 mono samples in [-1, 1]."""

    digest: str
    load: Callable[[], Any] = field(compare=False, repr=False)
    source: str = field(default="", compare=False)
    held_bytes: int = field(default=0, compare=False, repr=False)
    keep: Memoize = field(default=compute_uncached, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """A video or a segment of one. `load()` returns the source of its frames: a path, the bytes of a file, or a list of
    images. The model selects the frames: `assay.media.frames(video, count=8)`."""

    digest: str
    load: Callable[[], Any] = field(compare=False, repr=False)
    source: str = field(default="", compare=False)
    held_bytes: int = field(default=0, compare=False, repr=False)
    keep: Memoize = field(default=compute_uncached, compare=False, repr=False)
    start_s: float | None = None
    end_s: float | None = None


Media = Image | Audio | Video
Part = Text | Image | Audio | Video | ToolCall | ToolResult
_MEDIA = (Image, Audio, Video)
_MEDIA_TYPES = frozenset(_MEDIA)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt: a role and its parts."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text of this message without its media and tool calls; the content of a tool result is text."""
        return "".join(
            part.text if isinstance(part, Text) else part.content
            for part in self.parts
            if isinstance(part, (Text, ToolResult))
        )

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in a message of the assistant."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class Prompt:
    """The complete model input. The choices and repeats of one document share it.

    With `chat`, the adapter applies the model's chat template. Without it there is exactly one message, whose parts
    go to the model unchanged.
    """

    messages: tuple[Message, ...]
    chat: bool = False
    plain: str | None = field(init=False, repr=False, compare=False)
    """The text of a prompt that consists of a single text part (the common case); else None."""

    _digest: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain, messages = None, self.messages
        if len(messages) == 1 and not self.chat:
            parts = messages[0].parts
            if len(parts) == 1 and type(part := parts[0]) is Text:
                plain = part.text
        _set_frozen(self, "plain", plain)

    @classmethod
    def of_text(cls, text: str) -> Prompt:
        """Return a prompt of one text, without a chat template."""
        return cls((Message("user", (Text(text),)),))

    @property
    def text(self) -> str:
        """All text of the prompt, for display and for adapters that take plain text."""
        if self.plain is not None:
            return self.plain
        return "".join([message.text for message in self.messages])

    @property
    def media(self) -> tuple[Media, ...]:
        """The images, audio clips and videos, in order."""
        return tuple(part for message in self.messages for part in message.parts if isinstance(part, _MEDIA))

    @property
    def has_media(self) -> bool:
        """Whether the prompt contains images, audio or video."""
        if self.plain is not None:
            return False
        for message in self.messages:
            for part in message.parts:
                if type(part) in _MEDIA_TYPES:
                    return True
        return False

    @property
    def continues(self) -> bool:
        """Whether the last message is the assistant's, so that the model continues it."""
        return bool(self.messages) and self.messages[-1].role == "assistant"

    @property
    def digest(self) -> str:
        """Hash of the exact messages, media by content. Computed once."""
        if not self._digest:
            plain = self.plain
            digest = self._compute_digest() if plain is None else digest_ascii_tuple(f"('text', {plain!a})")
            _set_frozen(self, "_digest", digest)
        return self._digest

    def with_digest_of(self, other: Prompt) -> Prompt:
        """Copy the digest of a prompt with the same content, and return this prompt."""
        _set_frozen(self, "_digest", other.digest)
        return self

    def _compute_digest(self) -> str:
        fields = ["chat" if self.chat else "text"]
        for message in self.messages:
            fields += ("message", message.role)
            for part in message.parts:
                fields += _digest_fields(part)
        return digest_text(*fields)


def _digest_fields(part: Part) -> tuple[str, ...]:
    match part:
        case Text(text=text):
            return ("text", text)
        case Video(digest=digest, start_s=start_s, end_s=end_s):
            return ("video", digest, str(start_s), str(end_s))
        case ToolCall(name=name, arguments=arguments, id=id_):
            return ("tool_call", id_, name, arguments)
        case ToolResult(content=content, call_id=call_id, name=name):
            return ("tool_result", call_id, name, content)
        case _:
            return (type(part).__name__.lower(), part.digest)
