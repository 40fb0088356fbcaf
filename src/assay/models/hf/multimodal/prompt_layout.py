"""Convert a prompt to one text and its media, in the order in which the text refers to them.

Chat prompts use the checkpoint's chat template, or `System:`, `User:` and `Assistant:` lines if it has none. For other
prompts, the parts are concatenated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Role, Text, Video
from assay.media import Clip, frames, picture, waveform

__all__ = ["ChatTemplateError", "MediaSettings", "PromptInputs", "PromptLayout", "UnsupportedMedia"]

IMAGE_PLACEHOLDER = "<image>"
_NUMBERED = re.compile(r"<image (\d+)>")
_BEFORE, _AFTER = "\ue000", "\ue001"
"""Private use characters, to find what a template inserts between two texts."""


class UnsupportedMedia(ValueError):
    """A medium that the checkpoint does not read."""


class ChatTemplateError(ValueError):
    """A conversation for which the checkpoint's chat template raises an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSettings:
    """How to prepare media and where to place them."""

    frames: int = 32
    fps: float | None = None
    rate_hz: int = 16_000
    max_audio_samples: int | None = None
    """Maximum number of samples per audio input; longer audio is split."""

    system_prompt: str = ""
    reasoning_prompt: str = ""
    interleave: bool = False
    """`<image 1>` in a text marks the position of the first image."""

    uses_chat_template: bool = False
    keeps_placeholders: bool = True
    videos_as_frames: bool = False
    """Convert videos to images, one per frame, for checkpoints that do not read videos."""

    template_arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class PromptInputs:
    """The processor inputs of one prompt."""

    text: str = ""
    images: list[Any] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    audios: list[Any] = field(default_factory=list)

    @property
    def has_media(self) -> bool:
        return bool(self.images or self.clips or self.audios)


class PromptLayout:
    """Converts prompts to texts and media for one checkpoint."""

    def __init__(self, processor: Any, media_abilities: frozenset[str], settings: MediaSettings) -> None:
        self._processor = processor
        self._media_abilities = media_abilities
        self._settings = settings
        tokenizer = getattr(processor, "tokenizer", processor)
        own = getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None)
        self._template = own.get("default") if isinstance(own, dict) else own

    def build_inputs(self, prompt: Prompt, *, load: bool = True, effort: str = "") -> PromptInputs:
        """Return the prompt as the model reads it. Without `load`, only its text.

        `effort`: the variable `reasoning_effort` of the chat template.

        Raises:
            UnsupportedMedia: The checkpoint does not read a medium.
            MediaError: A medium cannot be decoded.
        """
        inputs = PromptInputs()
        chat = prompt.chat or (self._settings.uses_chat_template and prompt.has_media)
        messages = list(self._prepare_messages(prompt.messages)) if chat else list(prompt.messages)
        content = [(message.role, list(self._to_content(message, inputs, load))) for message in messages]
        if not chat:
            inputs.text = "".join(self._join_plain(parts) for _, parts in content)
        elif self._template is None:
            inputs.text = self._format_lines(content)
        else:
            inputs.text = self._apply_template(content, effort)
        return inputs

    def batch_key(self, inputs: PromptInputs) -> tuple[Any, ...]:
        """Return a key: prompts with the same key may share a batch, without padding of media.

        Padding changes the audio input of some models and the video metadata of some processors.
        """
        frames = tuple(len(clip.frames) for clip in inputs.clips)
        lengths = () if self._settings.max_audio_samples else tuple(len(audio) for audio in inputs.audios)
        return bool(inputs.images), frames, bool(inputs.audios), lengths

    # --- messages ----------------------------------------------------------------------------------

    def _prepare_messages(self, messages: Sequence[Message]) -> Iterator[Message]:
        settings = self._settings
        if settings.system_prompt and not any(message.role == "system" for message in messages):
            yield Message("system", (Text(settings.system_prompt),))
        last = max((index for index, message in enumerate(messages) if message.role == "user"), default=-1)
        for index, message in enumerate(messages):
            if index == last and settings.reasoning_prompt:
                message = _append_text(message, settings.reasoning_prompt)
            yield Message(message.role, tuple(self._place_images(message.parts)))

    def _place_images(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts of a message, with images where the text places them."""
        settings = self._settings
        images = [part for part in parts if isinstance(part, Image)]
        texts = "".join(part.text for part in parts if isinstance(part, Text))
        if settings.interleave and _NUMBERED.search(texts):
            return _place_at_numbers(parts, images)
        placeholders = texts.count(IMAGE_PLACEHOLDER)
        if not placeholders or not images:
            return list(parts)
        if settings.keeps_placeholders and placeholders == len(images):
            return _place_at_placeholders(parts, images)
        return [
            Text(part.text.replace(IMAGE_PLACEHOLDER, "")) if isinstance(part, Text) else part
            for part in parts
        ]

    def _to_content(self, message: Message, inputs: PromptInputs, load: bool) -> Iterator[dict[str, str]]:
        for part in message.parts:
            match part:
                case Text(text=text):
                    yield {"type": "text", "text": text}
                case Image():
                    self._require_ability("image", part)
                    inputs.images += [picture(part)] if load else []
                    yield {"type": "image"}
                case Audio():
                    self._require_ability("audio", part)
                    yield from self._add_audio(part, inputs, load)
                case Video():
                    self._require_ability("video", part)
                    yield from self._add_video(part, inputs, load)

    def _add_audio(self, part: Audio, inputs: PromptInputs, load: bool) -> Iterator[dict[str, str]]:
        if not load:
            yield {"type": "audio"}
            return
        samples = waveform(part, rate_hz=self._settings.rate_hz)
        step = self._settings.max_audio_samples or max(len(samples), 1)
        for start in range(0, max(len(samples), 1), step):
            inputs.audios.append(samples[start : start + step])
            yield {"type": "audio"}

    def _add_video(self, part: Video, inputs: PromptInputs, load: bool) -> Iterator[dict[str, str]]:
        if not load:
            yield {"type": "video"}
            return
        clip = self.load_clip(part)
        if not self._settings.videos_as_frames:
            inputs.clips.append(clip)
            yield {"type": "video"}
            return
        inputs.images += clip.frames
        yield from ({"type": "image"} for _ in clip.frames)

    def load_clip(self, part: Video) -> Clip:
        """Load the frames of a video."""
        if self._settings.fps:
            return frames(part, fps=self._settings.fps, max_frames=self._settings.frames)
        return frames(part, count=self._settings.frames)

    def _require_ability(self, kind: str, part: Part) -> None:
        if kind not in self._media_abilities:
            name = type(part).__name__.lower()
            known = ", ".join(sorted(self._media_abilities)) or "no media"
            raise UnsupportedMedia(f"the checkpoint supports {known}, not {name}")

    # --- texts -------------------------------------------------------------------------------------

    def _apply_template(self, content: list[tuple[Role, list[dict[str, str]]]], effort: str) -> str:
        """Apply the chat template. If the prompt ends with an assistant message, that message is left open."""
        last = _join_texts(content[-1][1]).strip() if content[-1][0] == "assistant" else ""
        if content[-1][0] == "assistant" and not last:
            content = content[:-1]
        text = self._render(content, generation=not last, effort=effort)
        return text if not last else text[: text.rindex(last) + len(last)]

    def _render(
        self, content: list[tuple[Role, list[dict[str, str]]]], *, generation: bool, effort: str = ""
    ) -> str:
        """Render the chat template. If it raises an error, render the conversation without system messages."""
        from jinja2 import TemplateError

        source = str(self._template)
        typed = "type" in source or "is string" in source
        messages = [
            {"role": role, "content": parts if typed else self._join_parts(parts)} for role, parts in content
        ]
        try:
            return self._apply(messages, generation, effort)
        except TemplateError as error:
            remaining = [message for message in messages if message["role"] != "system"]
            if len(remaining) == len(messages):
                raise ChatTemplateError(f"chat template error: {error}") from None
        try:
            return self._apply(remaining, generation, effort)
        except TemplateError as error:
            raise ChatTemplateError(f"chat template error: {error}") from None

    def _apply(self, messages: list[dict[str, Any]], generation: bool, effort: str) -> str:
        variables = {"reasoning_effort": effort} if effort else {}
        rendered = self._processor.apply_chat_template(
            messages,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=generation,
            **{**self._settings.template_arguments, **variables},
        )
        return str(rendered)

    def _format_lines(self, content: list[tuple[Role, list[dict[str, str]]]]) -> str:
        open_end = content[-1][0] == "assistant"
        lines = [f"{role.capitalize()}: {self._join_parts(parts)}" for role, parts in content]
        return "\n".join(lines if open_end else [*lines, "Assistant:"])

    def _join_plain(self, parts: list[dict[str, str]]) -> str:
        """Concatenate parts. If the text contains one `<image>` per image, images go there."""
        images = sum(part["type"] == "image" for part in parts)
        text = _join_texts(parts)
        if images and text.count(IMAGE_PLACEHOLDER) == images:
            before = "".join(
                self.placeholders.get(part["type"], "")
                for part in parts
                if part["type"] not in ("text", "image")
            )
            return before + text.replace(IMAGE_PLACEHOLDER, self.placeholders["image"])
        return self._join_parts(parts, newline="")

    def _join_parts(self, parts: list[dict[str, str]], newline: str = "\n") -> str:
        return "".join(
            part["text"] if part["type"] == "text" else self.placeholders[part["type"]] + newline
            for part in parts
        )

    @cached_property
    def placeholders(self) -> dict[str, str]:
        """The placeholders of images, audio and video, according to the chat template, else to the processor."""
        return {kind: self._find_placeholder(kind) for kind in ("image", "audio", "video")}

    def _find_placeholder(self, kind: str) -> str:
        fallback = str(getattr(self._processor, f"{kind}_token", None) or IMAGE_PLACEHOLDER)
        source = str(self._template)
        if self._template is None or "type" not in source:
            return fallback
        parts = [{"type": "text", "text": _BEFORE}, {"type": kind}, {"type": "text", "text": _AFTER}]
        try:
            text = self._render([("user", parts)], generation=False)
        except ChatTemplateError:
            return fallback
        found = text.partition(_BEFORE)[2].partition(_AFTER)[0].strip()
        return found if fallback in found else fallback


def _append_text(message: Message, ending: str) -> Message:
    """Append a text to the last text of a message."""
    indexes = [index for index, part in enumerate(message.parts) if isinstance(part, Text)]
    if not indexes:
        return Message(message.role, (*message.parts, Text(ending)))
    parts = list(message.parts)
    last_text = parts[indexes[-1]]
    assert isinstance(last_text, Text)
    parts[indexes[-1]] = Text(last_text.text.strip() + ending)
    return Message(message.role, tuple(parts))


def _place_at_placeholders(parts: Sequence[Part], images: Sequence[Image]) -> list[Part]:
    placed: list[Part] = []
    remaining = iter(images)
    for part in parts:
        match part:
            case Image():
                continue
            case Text(text=text):
                first, *others = text.split(IMAGE_PLACEHOLDER)
                placed += [Text(first)] if first else []
                for other in others:
                    placed.append(next(remaining))
                    placed += [Text(other)] if other else []
            case _:
                placed.append(part)
    return placed


def _place_at_numbers(parts: Sequence[Part], images: Sequence[Image]) -> list[Part]:
    placed: list[Part] = []
    for part in parts:
        match part:
            case Image():
                continue
            case Text(text=text):
                for index, text_or_number in enumerate(_NUMBERED.split(text)):
                    if index % 2 == 0:
                        placed += [Text(text_or_number)] if text_or_number else []
                    elif images:
                        placed.append(images[min(int(text_or_number), len(images)) - 1])
            case _:
                placed.append(part)
    return placed


def _join_texts(parts: list[dict[str, str]]) -> str:
    return "".join(part["text"] for part in parts if part["type"] == "text")
