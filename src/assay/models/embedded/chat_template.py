"""Render prompts as text, plain or with the chat template of the model folder."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.records.messages import Image, Message, Prompt, Text

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["IMAGE_PLACEHOLDER", "ChatTemplate", "UnsupportedMedia", "render_plain"]

IMAGE_PLACEHOLDER = "<image>"


class UnsupportedMedia(ValueError):
    """Audio or video, which this model does not read."""


class ChatTemplate:
    """The file chat_template.jinja of a model folder, run in Jinja's sandbox."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _template(self) -> Template:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(self._path.read_text(encoding="utf-8"))

    def render(self, prompt: Prompt) -> str:
        """Render a chat prompt. If it ends with an assistant message, that message is left open."""
        last = prompt.messages[-1].text.strip() if prompt.continues else ""
        messages = [_to_template_message(message) for message in prompt.messages]
        if prompt.continues and not last:
            messages.pop()
        text = self._template.render(
            messages=messages,
            add_generation_prompt=not last,
            bos_token="<s>",
            eos_token="</s>",
        )
        if not last:
            return text
        return text[: text.rindex(last) + len(last)]


def render_plain(prompt: Prompt) -> str:
    """Concatenate the parts of a prompt without a template.

    If the text contains one `<image>` per image, the images go there; otherwise they stay where they are.
    """
    image_count = len(prompt.media)
    has_placeholders = image_count > 0 and prompt.text.count(IMAGE_PLACEHOLDER) == image_count
    texts = []
    for message in prompt.messages:
        for part in message.parts:
            match part:
                case Text(text=text):
                    texts.append(text)
                case Image():
                    texts.append("" if has_placeholders else IMAGE_PLACEHOLDER)
                case _:
                    raise _make_unsupported_error(part)
    return "".join(texts)


def _to_template_message(message: Message) -> dict[str, Any]:
    content: list[dict[str, str]] = []
    for part in message.parts:
        match part:
            case Text(text=text):
                content.append({"type": "text", "text": text})
            case Image():
                content.append({"type": "image"})
            case _:
                raise _make_unsupported_error(part)
    return {"role": message.role, "content": content}


def _make_unsupported_error(part: object) -> UnsupportedMedia:
    return UnsupportedMedia(f"the embedded model supports text and images, not {type(part).__name__.lower()}")
