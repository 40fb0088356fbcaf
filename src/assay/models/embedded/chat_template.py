"""Messages to the one text the tokenizer reads: as they are, or through the folder's chat template."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.messages import Image, Message, Prompt, Text

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["PICTURE_MARK", "UnreadablePart", "ChatTemplate", "plain_text"]

PICTURE_MARK = "<image>"


class UnreadablePart(ValueError):
    """A sound or a video, which this model has no sense for."""


class ChatTemplate:
    """chat_template.jinja of a model folder, run in Jinja's sandbox."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _template(self) -> Template:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(self._path.read_text(encoding="utf-8"))

    def render(self, prompt: Prompt) -> str:
        """The chat as one text; a last message of the assistant's own is left open, to be continued."""
        last = prompt.messages[-1].text.strip() if prompt.continues else ""
        messages = [_plain(message) for message in prompt.messages]
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


def plain_text(prompt: Prompt) -> str:
    """The parts of a prompt without template, one after the other.

    Pictures go where the text says `<image>`, if it says so once for each; else where they stand.
    """
    pictures = len(prompt.media)
    marked = pictures > 0 and prompt.text.count(PICTURE_MARK) == pictures
    pieces = []
    for message in prompt.messages:
        for part in message.parts:
            match part:
                case Text(text=text):
                    pieces.append(text)
                case Image():
                    pieces.append("" if marked else PICTURE_MARK)
                case _:
                    raise _unreadable(part)
    return "".join(pieces)


def _plain(message: Message) -> dict[str, Any]:
    content: list[dict[str, str]] = []
    for part in message.parts:
        match part:
            case Text(text=text):
                content.append({"type": "text", "text": text})
            case Image():
                content.append({"type": "image"})
            case _:
                raise _unreadable(part)
    return {"role": message.role, "content": content}


def _unreadable(part: object) -> UnreadablePart:
    return UnreadablePart(f"the embedded model reads text and pictures, not {type(part).__name__.lower()}")
