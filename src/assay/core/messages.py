"""What a model is shown: messages made of parts. Text is one kind of part among four.

Media parts carry a content hash and a way to load them; they know nothing of decoders. A model that looks at a part
asks `assay.media` for pixels or samples; what that makes is kept with `keep`, so that it is made once.
Nothing here knows what a task or a model is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.core.fingerprints import digest_text, digest_words
from assay.core.quick_records import quickly_made

__all__ = [
    "Audio",
    "Image",
    "Keep",
    "Media",
    "Message",
    "Part",
    "Prompt",
    "Role",
    "Text",
    "Video",
    "made_now",
]

Role = Literal["system", "user", "assistant"]
_set = object.__setattr__
Keep = Callable[[str, Callable[[], Any]], Any]
"""`keep(how, make)` gives what `make` makes of a medium; whoever asks again for the same `how` gets the same thing."""


def made_now(how: str, make: Callable[[], Any]) -> Any:
    """A `Keep` that keeps nothing: for parts outside a run."""
    return make()


@quickly_made
@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture. `load()` gives a decoded `PIL.Image.Image`."""

    digest: str
    load: Callable[[], Any] = field(compare=False, repr=False)
    source: str = field(default="", compare=False)
    """Where it came from (a path, a column), for people."""

    held_bytes: int = field(default=0, compare=False, repr=False)
    """Memory that goes with the part itself: the engine counts it against its budget."""

    keep: Keep = field(default=made_now, compare=False, repr=False)
    file: Callable[[], bytes] | None = field(default=None, compare=False, repr=False)
    """The bytes of the file it comes from, where there is one: for models that are sent files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audio:
    """A sound. `load()` gives `(samples, rate_hz)`: float32 mono samples in [-1, 1]."""

    digest: str
    load: Callable[[], Any] = field(compare=False, repr=False)
    source: str = field(default="", compare=False)
    held_bytes: int = field(default=0, compare=False, repr=False)
    keep: Keep = field(default=made_now, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """A moving picture, or a stretch of one. `load()` gives what frames are cut from: a path, the bytes of a file, or a list of
    pictures. Which frames is for the model to say: `assay.media.frames(video, count=8)`."""

    digest: str
    load: Callable[[], Any] = field(compare=False, repr=False)
    source: str = field(default="", compare=False)
    held_bytes: int = field(default=0, compare=False, repr=False)
    keep: Keep = field(default=made_now, compare=False, repr=False)
    start_s: float | None = None
    end_s: float | None = None


Media = Image | Audio | Video
Part = Text | Image | Audio | Video


@quickly_made
@dataclass(frozen=True, slots=True)
class Message:
    """What one side says."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text of this message, its media left out."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@quickly_made
@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything the model sees before it answers. Shared by the choices and repeats of one document.

    `chat` says whether the adapter has to apply the model's chat template. Without it there is exactly
    one message and its parts go to the model as they are.
    """

    messages: tuple[Message, ...]
    chat: bool = False
    plain: str | None = field(init=False, repr=False, compare=False)
    """The text of a prompt that is one text and nothing else, as most are; None for all others."""

    _digest: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain, messages = None, self.messages
        if len(messages) == 1 and not self.chat:
            parts = messages[0].parts
            if len(parts) == 1 and type(part := parts[0]) is Text:
                plain = part.text
        _set(self, "plain", plain)

    @classmethod
    def of_text(cls, text: str) -> Prompt:
        """A plain prompt, as it goes to the tokenizer."""
        return cls((Message("user", (Text(text),)),))

    @property
    def text(self) -> str:
        """All text of the prompt, for people and for adapters that take plain text."""
        if self.plain is not None:
            return self.plain
        return "".join([message.text for message in self.messages])

    @property
    def media(self) -> tuple[Media, ...]:
        """The pictures, sounds and videos, in order."""
        return tuple(
            part for message in self.messages for part in message.parts if not isinstance(part, Text)
        )

    @property
    def has_media(self) -> bool:
        """Whether there is anything but text."""
        if self.plain is not None:
            return False
        for message in self.messages:
            for part in message.parts:
                if type(part) is not Text:
                    return True
        return False

    @property
    def continues(self) -> bool:
        """True when the last message is the assistant's own: the model goes on with it."""
        return bool(self.messages) and self.messages[-1].role == "assistant"

    @property
    def digest(self) -> str:
        """Hash of the exact messages, media by content; computed once."""
        if not self._digest:
            plain = self.plain
            digest = self._compute_digest() if plain is None else digest_words(f"('text', {plain!a})")
            _set(self, "_digest", digest)
        return self._digest

    def with_digest_of(self, other: Prompt) -> Prompt:
        """This prompt, named as another one of the same content."""
        _set(self, "_digest", other.digest)
        return self

    def _compute_digest(self) -> str:
        words = ["chat" if self.chat else "text"]
        for message in self.messages:
            words += ("message", message.role)
            for part in message.parts:
                words += _words(part)
        return digest_text(*words)


def _words(part: Part) -> tuple[str, ...]:
    match part:
        case Text(text=text):
            return ("text", text)
        case Video(digest=digest, start_s=start_s, end_s=end_s):
            return ("video", digest, str(start_s), str(end_s))
        case _:
            return (type(part).__name__.lower(), part.digest)
