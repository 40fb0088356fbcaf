"""`anthropic`: Claude over the Messages API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import InvalidOption, MediaError
from assay.core.ports import Ability
from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.records.requests import Generate
from assay.core.records.responses import Usage
from assay.core.records.tools import ToolCall, ToolResult
from assay.models.finish_reasons import MESSAGES, raise_reported_error
from assay.models.hosted.service import HostedModel, read_hosted_options
from assay.models.remote.errors import BadReply
from assay.models.remote.options import Options
from assay.models.remote.protocol.chat import Choice, ParsedReply, collect_stop_strings
from assay.models.remote.protocol.media import EncodedMedia, MediaEncoding, encode_image, encode_video_frames
from assay.models.tool_calls import merge_tool_messages

__all__ = ["AnthropicModel", "MessagesApi", "parse_message"]

_ALIASES = {"max_tokens": "max_gen_toks", "max_tokens_to_sample": "max_gen_toks"}
_IGNORED = frozenset({"image_token", "modality", "temperature", "tokenizer_backend", "tokenizer"})
"""Arguments of other harnesses without effect here; the task or `--gen_kwargs` sets the temperature."""

_MAX_IMAGE_MB = 5.0
_THINKING = ("adaptive", "disabled")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_SAMPLING = {"top_p": float, "top_k": int}


class AnthropicModel(HostedModel):
    """A model of Anthropic's Messages API: text, images, video as frames.

    >>> AnthropicModel(model="claude-haiku-4-5").billed_as
    'anthropic/claude-haiku-4-5'
    """

    def __init__(
        self,
        *,
        batch_size: Any = None,
        rpm: Any = None,
        tpm: Any = None,
        thinking_budget: Any = None,
        thinking: str = "",
        effort: str = "",
        anthropic_version: str = "2023-06-01",
        **arguments: Any,
    ) -> None:
        api = MessagesApi(
            thinking_budget=_parse_budget(thinking_budget),
            thinking=_parse_choice("thinking", thinking, _THINKING),
            effort=_parse_choice("effort", effort, _EFFORTS),
            version=str(anthropic_version),
        )
        given = {_ALIASES.get(name, name): value for name, value in arguments.items() if name not in _IGNORED}
        options = read_hosted_options(
            api, "anthropic", {"rpm": rpm, "tpm": tpm, **given}, max_size_in_mb=_MAX_IMAGE_MB
        )
        facts = {"thinking_budget": api.thinking_budget, "thinking": api.thinking, "effort": api.effort}
        super().__init__(api, options, {name: str(value) for name, value in facts.items() if value})


def _parse_choice(name: str, value: Any, words: tuple[str, ...]) -> str:
    if value not in ("", None, *words):
        raise InvalidOption(
            f"invalid value for `{name}`: {value!r}",
            where="--model_args",
            hint=f"use one of {', '.join(words)}",
        )
    return str(value or "")


def _parse_budget(value: Any) -> int | None:
    if value is None or value is False:
        return None
    try:
        budget = int(value)
    except (TypeError, ValueError):
        budget = -1
    if budget < 0:
        raise InvalidOption(
            f"`thinking_budget` must be a number of tokens, not {value!r}", where="--model_args"
        )
    return budget or None


# --- protocol ---


_REDACTED = "[redacted reasoning]"
"""Stands for reasoning that the service encrypted."""


@dataclass(frozen=True, slots=True)
class MessagesApi:
    """The Messages API, with the settings for extended thinking."""

    thinking_budget: int | None = None
    """Tokens for thinking, in addition to those of the answer; None: the model's default."""

    thinking: str = ""
    """`adaptive` (the model decides, within the tokens of the answer) or `disabled`; empty: the model's default."""

    effort: str = ""
    """Effort level, for models that support it."""

    version: str = "2023-06-01"
    service: str = "anthropic"
    default_url: str = "https://api.anthropic.com/v1"
    key_variables: tuple[str, ...] = ("ANTHROPIC_API_KEY",)
    abilities: frozenset[Ability] = field(
        default_factory=lambda: frozenset({"generate", "chat", "image", "video", "tools"})
    )
    optional_settings: tuple[str, ...] = ("temperature", "top_p", "top_k")

    def build_headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": self.version}

    def build_path(self, options: Options) -> str:
        return "/messages"

    def build_payload(
        self, request: Generate, options: Options, media: MediaEncoding, refused: frozenset[str]
    ) -> dict[str, Any]:
        settings = request.settings
        limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        system, messages = _build_messages(request.prompt, media)
        payload: dict[str, Any] = {"model": options.model, "max_tokens": limit, "messages": messages}
        if system or options.system_prompt:
            payload["system"] = system or options.system_prompt
        budget = self.thinking_budget if settings.thinking_budget is None else settings.thinking_budget
        if budget:
            payload["thinking"] = {"type": "enabled", "budget_tokens": budget}
            payload["max_tokens"] = limit + budget
        elif settings.thinking_budget == 0:
            payload["thinking"] = {"type": "disabled"}
        elif self.thinking:
            payload["thinking"] = {"type": self.thinking}
        output: dict[str, Any] = {}
        if effort := settings.reasoning_effort or self.effort:
            output["effort"] = effort
        if request.response_format is not None and request.response_format.schema is not None:
            output["format"] = {"type": "json_schema", "schema": request.response_format.schema}
        if output:
            payload["output_config"] = output
        payload |= _build_tool_fields(request)
        thinks = budget or self.thinking == "adaptive"
        if not thinks and "temperature" not in refused:  # thinking fixes the temperature
            payload["temperature"] = min(settings.temperature, 1.0)
        for name, kind in _SAMPLING.items():
            value = settings.values.get(name)
            if value is not None and name not in refused and settings.temperature > 0:
                payload[name] = kind(value)
        # the service rejects stop sequences of white space; they are applied to the answer
        if stops := [stop for stop in collect_stop_strings(settings, options) if stop.strip()]:
            payload["stop_sequences"] = stops
        return {**payload, **options.extra_body}

    def parse_reply(self, value: Any) -> ParsedReply:
        return parse_message(value)


def _build_tool_fields(request: Generate) -> dict[str, Any]:
    tools = request.native_tools
    if tools is None:
        return {}
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    choice: dict[str, Any] = {"type": kinds.get(tools.choice, "tool")}
    if choice["type"] == "tool":
        choice["name"] = tools.choice
    if tools.parallel is not None and tools.choice != "none":
        choice["disable_parallel_tool_use"] = not tools.parallel
    definitions = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in tools.tools
    ]
    return {"tools": definitions, **({} if choice == {"type": "auto"} else {"tool_choice": choice})}


def parse_message(value: Any) -> ParsedReply:
    """Parse a reply.

    Raises:
        BadReply: The reply contains no answer.
        GenerationFailed: The reply reports an error.
    """
    raise_reported_error(value)
    if value.get("type") == "error":
        raise BadReply("the service reports an error without details")
    finish = MESSAGES.classify(value["stop_reason"])
    texts, thoughts = [], []
    calls: list[ToolCall] = []
    for block in value["content"]:
        match block.get("type"):
            case "text":
                texts.append(block["text"])
            case "tool_use":
                arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
                calls.append(ToolCall(str(block["name"]), arguments, str(block.get("id") or "")))
            case "thinking":
                thoughts.append(block["thinking"])
            case "redacted_thinking":
                thoughts.append(_REDACTED)
    choice = Choice("".join(texts), finish, "".join(thoughts) or None, tool_calls=tuple(calls))
    return ParsedReply((choice,), _parse_usage(value.get("usage")), str(value.get("model") or ""), "")


def _parse_usage(value: Any) -> Usage | None:
    """Return the token counts; the service reports cache writes and reads separately."""
    if not isinstance(value, Mapping):
        return None
    fresh, written = int(value.get("input_tokens") or 0), int(value.get("output_tokens") or 0)
    cached = int(value.get("cache_read_input_tokens") or 0)
    kept = int(value.get("cache_creation_input_tokens") or 0)
    return Usage(fresh + kept + cached, written, cached_tokens=cached)


def _build_messages(prompt: Prompt, media: MediaEncoding) -> tuple[str, list[dict[str, Any]]]:
    """Return the system message and the other messages."""
    system = "\n\n".join(message.text for message in prompt.messages if message.role == "system")
    rest = [message for message in merge_tool_messages(prompt.messages) if message.role != "system"]
    messages: list[dict[str, Any]] = [
        {
            "role": "user" if message.role == "tool" else message.role,
            "content": _build_content(message, media),
        }
        for message in rest
    ]
    if messages and rest[-1].role == "assistant":  # a prefilled answer must not end in white space
        messages[-1]["content"] = rest[-1].text.rstrip()
    return system, messages


def _build_content(message: Message, media: MediaEncoding) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    return [piece for part in message.parts for piece in _build_blocks(part, media)]


def _build_blocks(part: Part, media: MediaEncoding) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"type": "text", "text": text}] if text.strip() else []
        case Image():
            return [_build_image_block(encode_image(part, media))]
        case Video():
            return [_build_image_block(frame) for frame in encode_video_frames(part, media)]
        case ToolCall(name=name, id=call_id):
            return [
                {
                    "type": "tool_use",
                    "id": call_id or f"call_{name}",
                    "name": name,
                    "input": part.values or {},
                }
            ]
        case ToolResult(content=content, call_id=call_id):
            return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]
        case Audio():
            raise MediaError("the Messages API does not support audio", where=part.source)


def _build_image_block(encoded: EncodedMedia) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": encoded.mime, "data": encoded.text}}
