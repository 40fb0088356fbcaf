"""A prompt as one text and its media, in the order in which the text mentions them.

The text comes from the checkpoint's own chat template. Without chat, the parts stand one after the other. A checkpoint
without a template gets `System:`, `User:` and `Assistant:` lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from assay.core.messages import Audio, Image, Message, Part, Prompt, Role, Text, Video
from assay.media import Clip, frames, picture, waveform

__all__ = ["Laid", "Layout", "MediaSettings", "UnreadableChat", "UnreadablePart"]

PICTURE_MARK = "<image>"
_NUMBERED = re.compile(r"<image (\d+)>")
_BEFORE, _AFTER = "\ue000", "\ue001"
"""Characters nobody uses, to find what a template writes between two texts."""


class UnreadablePart(ValueError):
    """A medium this checkpoint has no sense for."""


class UnreadableChat(ValueError):
    """A conversation the checkpoint's template does not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSettings:
    """How media are prepared and where they go."""

    frames: int = 32
    fps: float | None = None
    rate_hz: int = 16_000
    longest_sound: int | None = None
    """Samples the model hears at once; a longer sound becomes several."""

    system_prompt: str = ""
    reasoning_prompt: str = ""
    interleave: bool = False
    """`<image 1>` in a text says where the first picture goes."""

    templated: bool = False
    keeps_marks: bool = True
    as_pictures: bool = False
    """Videos become their frames, as pictures: the checkpoint has no notion of a video."""

    template_arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Laid:
    """What the processor gets for one prompt."""

    text: str = ""
    images: list[Any] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    sounds: list[Any] = field(default_factory=list)

    @property
    def has_media(self) -> bool:
        return bool(self.images or self.clips or self.sounds)


class Layout:
    """Prompts to texts and media for one checkpoint."""

    def __init__(self, processor: Any, senses: frozenset[str], settings: MediaSettings) -> None:
        self._processor = processor
        self._senses = senses
        self._settings = settings
        tokenizer = getattr(processor, "tokenizer", processor)
        own = getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None)
        self._template = own.get("default") if isinstance(own, dict) else own

    def lay(self, prompt: Prompt, *, load: bool = True) -> Laid:
        """The prompt as the model reads it. Without `load`, its text alone.

        Raises:
            UnreadablePart: The checkpoint cannot look at or listen to a part.
            MediaError: A part cannot be decoded.
        """
        laid = Laid()
        chat = prompt.chat or (self._settings.templated and prompt.has_media)
        messages = list(self._prepared(prompt.messages)) if chat else list(prompt.messages)
        content = [(message.role, list(self._written(message, laid, load))) for message in messages]
        if not chat:
            laid.text = "".join(self._plain(parts) for _, parts in content)
        elif self._template is None:
            laid.text = self._lines(content)
        else:
            laid.text = self._templated(content)
        return laid

    def likeness(self, laid: Laid) -> tuple[Any, ...]:
        """Prompts alike in this may share a batch: the same kinds of media, and nothing that has to be filled up.

        Filling up changes what some models hear, and what some processors say about a video.
        """
        frames = tuple(len(clip.frames) for clip in laid.clips)
        lengths = () if self._settings.longest_sound else tuple(len(sound) for sound in laid.sounds)
        return bool(laid.images), frames, bool(laid.sounds), lengths

    # --- messages ----------------------------------------------------------------------------------

    def _prepared(self, messages: Sequence[Message]) -> Iterator[Message]:
        settings = self._settings
        if settings.system_prompt and not any(message.role == "system" for message in messages):
            yield Message("system", (Text(settings.system_prompt),))
        last = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
        for at, message in enumerate(messages):
            if at == last and settings.reasoning_prompt:
                message = _with_ending(message, settings.reasoning_prompt)
            yield Message(message.role, tuple(self._placed(message.parts)))

    def _placed(self, parts: Sequence[Part]) -> list[Part]:
        """The parts of a message, its pictures where the text says they go."""
        settings = self._settings
        pictures = [part for part in parts if isinstance(part, Image)]
        texts = "".join(part.text for part in parts if isinstance(part, Text))
        if settings.interleave and _NUMBERED.search(texts):
            return _at_numbers(parts, pictures)
        marks = texts.count(PICTURE_MARK)
        if not marks or not pictures:
            return list(parts)
        if settings.keeps_marks and marks == len(pictures):
            return _at_marks(parts, pictures)
        return [
            Text(part.text.replace(PICTURE_MARK, "")) if isinstance(part, Text) else part for part in parts
        ]

    def _written(self, message: Message, laid: Laid, load: bool) -> Iterator[dict[str, str]]:
        for part in message.parts:
            match part:
                case Text(text=text):
                    yield {"type": "text", "text": text}
                case Image():
                    self._need("image", part)
                    laid.images += [picture(part)] if load else []
                    yield {"type": "image"}
                case Audio():
                    self._need("audio", part)
                    yield from self._heard(part, laid, load)
                case Video():
                    self._need("video", part)
                    yield from self._shown(part, laid, load)

    def _heard(self, part: Audio, laid: Laid, load: bool) -> Iterator[dict[str, str]]:
        if not load:
            yield {"type": "audio"}
            return
        samples = waveform(part, rate_hz=self._settings.rate_hz)
        step = self._settings.longest_sound or max(len(samples), 1)
        for start in range(0, max(len(samples), 1), step):
            laid.sounds.append(samples[start : start + step])
            yield {"type": "audio"}

    def _shown(self, part: Video, laid: Laid, load: bool) -> Iterator[dict[str, str]]:
        if not load:
            yield {"type": "video"}
            return
        clip = self.clip(part)
        if not self._settings.as_pictures:
            laid.clips.append(clip)
            yield {"type": "video"}
            return
        laid.images += clip.frames
        yield from ({"type": "image"} for _ in clip.frames)

    def clip(self, part: Video) -> Clip:
        """The frames of a video the model looks at."""
        if self._settings.fps:
            return frames(part, fps=self._settings.fps, max_frames=self._settings.frames)
        return frames(part, count=self._settings.frames)

    def _need(self, sense: str, part: Part) -> None:
        if sense not in self._senses:
            name = type(part).__name__.lower()
            known = ", ".join(sorted(self._senses)) or "no media"
            raise UnreadablePart(f"this checkpoint reads text and {known}, not {name}")

    # --- texts -------------------------------------------------------------------------------------

    def _templated(self, content: list[tuple[Role, list[dict[str, str]]]]) -> str:
        """The template's text. A last message of the assistant's own is left open, to be continued."""
        last = _said(content[-1][1]).strip() if content[-1][0] == "assistant" else ""
        if content[-1][0] == "assistant" and not last:
            content = content[:-1]
        text = self._render(content, generation=not last)
        return text if not last else text[: text.rindex(last) + len(last)]

    def _render(self, content: list[tuple[Role, list[dict[str, str]]]], *, generation: bool) -> str:
        """What the template writes. One that refuses a system message is given the conversation without it."""
        from jinja2 import TemplateError

        source = str(self._template)
        typed = "type" in source or "is string" in source
        messages = [
            {"role": role, "content": parts if typed else self._joined(parts)} for role, parts in content
        ]
        try:
            return self._apply(messages, generation)
        except TemplateError as error:
            left = [message for message in messages if message["role"] != "system"]
            if len(left) == len(messages):
                raise UnreadableChat(f"the chat template refuses the conversation: {error}") from None
        try:
            return self._apply(left, generation)
        except TemplateError as error:
            raise UnreadableChat(f"the chat template refuses the conversation: {error}") from None

    def _apply(self, messages: list[dict[str, Any]], generation: bool) -> str:
        made = self._processor.apply_chat_template(
            messages,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=generation,
            **self._settings.template_arguments,
        )
        return str(made)

    def _lines(self, content: list[tuple[Role, list[dict[str, str]]]]) -> str:
        open_end = content[-1][0] == "assistant"
        lines = [f"{role.capitalize()}: {self._joined(parts)}" for role, parts in content]
        return "\n".join(lines if open_end else [*lines, "Assistant:"])

    def _plain(self, parts: list[dict[str, str]]) -> str:
        """Parts one after the other; pictures where the text says `<image>`, if it says so once for each."""
        pictures = sum(part["type"] == "image" for part in parts)
        text = _said(parts)
        if pictures and text.count(PICTURE_MARK) == pictures:
            before = "".join(
                self.marks.get(part["type"], "") for part in parts if part["type"] not in ("text", "image")
            )
            return before + text.replace(PICTURE_MARK, self.marks["image"])
        return self._joined(parts, newline="")

    def _joined(self, parts: list[dict[str, str]], newline: str = "\n") -> str:
        return "".join(
            part["text"] if part["type"] == "text" else self.marks[part["type"]] + newline for part in parts
        )

    @cached_property
    def marks(self) -> dict[str, str]:
        """What stands for a picture, a sound and a video in a text: asked of the template, else of the processor."""
        return {sense: self._mark(sense) for sense in ("image", "audio", "video")}

    def _mark(self, sense: str) -> str:
        fallback = str(getattr(self._processor, f"{sense}_token", None) or PICTURE_MARK)
        source = str(self._template)
        if self._template is None or "type" not in source:
            return fallback
        parts = [{"type": "text", "text": _BEFORE}, {"type": sense}, {"type": "text", "text": _AFTER}]
        try:
            text = self._render([("user", parts)], generation=False)
        except UnreadableChat:
            return fallback
        found = text.partition(_BEFORE)[2].partition(_AFTER)[0].strip()
        return found if fallback in found else fallback


def _with_ending(message: Message, ending: str) -> Message:
    """The message with a text behind its last text."""
    places = [at for at, part in enumerate(message.parts) if isinstance(part, Text)]
    if not places:
        return Message(message.role, (*message.parts, Text(ending)))
    parts = list(message.parts)
    said = parts[places[-1]]
    assert isinstance(said, Text)
    parts[places[-1]] = Text(said.text.strip() + ending)
    return Message(message.role, tuple(parts))


def _at_marks(parts: Sequence[Part], pictures: Sequence[Image]) -> list[Part]:
    placed: list[Part] = []
    left = iter(pictures)
    for part in parts:
        match part:
            case Image():
                continue
            case Text(text=text):
                first, *others = text.split(PICTURE_MARK)
                placed += [Text(first)] if first else []
                for other in others:
                    placed.append(next(left))
                    placed += [Text(other)] if other else []
            case _:
                placed.append(part)
    return placed


def _at_numbers(parts: Sequence[Part], pictures: Sequence[Image]) -> list[Part]:
    placed: list[Part] = []
    for part in parts:
        match part:
            case Image():
                continue
            case Text(text=text):
                for at, piece in enumerate(_NUMBERED.split(text)):
                    if at % 2 == 0:
                        placed += [Text(piece)] if piece else []
                    elif pictures:
                        placed.append(pictures[min(int(piece), len(pictures)) - 1])
            case _:
                placed.append(part)
    return placed


def _said(parts: list[dict[str, str]]) -> str:
    return "".join(part["text"] for part in parts if part["type"] == "text")
