"""The Messages API: a prompt as messages, settings as fields, a reply as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import BadMedia
from assay.core.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.ports import Ability
from assay.core.requests import Generate
from assay.core.responses import Finish, Usage
from assay.models.remote.chat import Reading, Said, stops_of
from assay.models.remote.faults import BadReply
from assay.models.remote.media import Look, Packed, pack_image, pack_video
from assay.models.remote.options import Options

__all__ = ["MessagesWire", "read_message"]

_FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_SAMPLING = {"top_p": float, "top_k": int}


@dataclass(frozen=True, slots=True)
class MessagesWire:
    """Anthropic's protocol, with how much the model is to think."""

    thinking_budget: int | None = None
    """Tokens for thinking, beside those of the answer; None: the model's own way."""

    thinking: str = ""
    """`adaptive` (as much as the model likes, out of the answer's tokens) or `disabled`; empty: the model's own way."""

    effort: str = ""
    """How much the model is to try, where it can be told."""

    version: str = "2023-06-01"
    service: str = "anthropic"
    default_url: str = "https://api.anthropic.com/v1"
    variables: tuple[str, ...] = ("ANTHROPIC_API_KEY",)
    abilities: frozenset[Ability] = field(
        default_factory=lambda: frozenset({"generate", "chat", "image", "video"})
    )
    optional: tuple[str, ...] = ("temperature", "top_p", "top_k")

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": self.version}

    def path(self, options: Options) -> str:
        return "/messages"

    def payload(
        self, request: Generate, options: Options, look: Look, refused: frozenset[str]
    ) -> dict[str, Any]:
        settings = request.settings
        limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        system, messages = _messages(request.prompt, look)
        payload: dict[str, Any] = {"model": options.model, "max_tokens": limit, "messages": messages}
        if system or options.system_prompt:
            payload["system"] = system or options.system_prompt
        if self.thinking_budget:
            payload["thinking"] = {"type": "enabled", "budget_tokens": self.thinking_budget}
            payload["max_tokens"] = limit + self.thinking_budget
        elif self.thinking:
            payload["thinking"] = {"type": self.thinking}
        if self.effort:
            payload["output_config"] = {"effort": self.effort}
        thinks = self.thinking_budget or self.thinking == "adaptive"
        if not thinks and "temperature" not in refused:  # thinking has a temperature of its own
            payload["temperature"] = min(settings.temperature, 1.0)
        for name, kind in _SAMPLING.items():
            value = settings.values.get(name)
            if value is not None and name not in refused and settings.temperature > 0:
                payload[name] = kind(value)
        # white space alone is refused as a stop sequence: those are applied here, afterwards
        if stops := [stop for stop in stops_of(settings, options) if stop.strip()]:
            payload["stop_sequences"] = stops
        return {**payload, **options.extra_body}

    def read(self, value: Any) -> Reading:
        return read_message(value)


def read_message(value: Any) -> Reading:
    """A reply.

    Raises:
        BadReply: It holds no answer.
    """
    if value.get("type") == "error":
        raise BadReply(f"the reply is an error: {value.get('error')}")
    reason = value["stop_reason"]
    texts, thoughts = [], []
    for block in value["content"]:
        match block.get("type"):
            case "text":
                texts.append(block["text"])
            case "thinking":
                thoughts.append(block["thinking"])
    finish = _FINISHES.get(str(reason or ""), "")
    said = Said("".join(texts), finish, "".join(thoughts) or None)
    return Reading((said,), _usage(value.get("usage")), str(value.get("model") or ""), "")


def _usage(value: Any) -> Usage | None:
    """Tokens; what was written to and read from the service's cache is counted apart from the rest there."""
    if not isinstance(value, Mapping):
        return None
    fresh, written = int(value.get("input_tokens") or 0), int(value.get("output_tokens") or 0)
    cached = int(value.get("cache_read_input_tokens") or 0)
    kept = int(value.get("cache_creation_input_tokens") or 0)
    return Usage(fresh + kept + cached, written, cached_tokens=cached)


def _messages(prompt: Prompt, look: Look) -> tuple[str, list[dict[str, Any]]]:
    """The system message, and the rest."""
    system = "\n\n".join(message.text for message in prompt.messages if message.role == "system")
    rest = [message for message in prompt.messages if message.role != "system"]
    messages = [{"role": message.role, "content": _content(message, look)} for message in rest]
    if messages and rest[-1].role == "assistant":  # an answer that is begun may not end in white space
        messages[-1]["content"] = rest[-1].text.rstrip()
    return system, messages


def _content(message: Message, look: Look) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    return [piece for part in message.parts for piece in _pieces(part, look)]


def _pieces(part: Part, look: Look) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"type": "text", "text": text}] if text.strip() else []
        case Image():
            return [_image(pack_image(part, look))]
        case Video():
            return [_image(frame) for frame in pack_video(part, look)]
        case Audio():
            raise BadMedia("the Messages API takes no sounds", where=part.source)


def _image(packed: Packed) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": packed.mime, "data": packed.text}}
