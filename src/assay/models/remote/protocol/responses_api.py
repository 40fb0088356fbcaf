"""The responses API: build payloads and parse replies. It has no stop strings and no seeds; stops are applied to the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Finish
from assay.core.records.tools import ToolCall, ToolResult
from assay.models.finish_reasons import RESPONSES_INCOMPLETE, RESPONSES_STATUS, raise_reported_error
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.errors import BadReply
from assay.models.remote.options import Options
from assay.models.remote.protocol.chat import (
    Choice,
    ParsedReply,
    parse_usage,
    select_extra_settings,
)
from assay.models.remote.protocol.media import (
    MediaEncoding,
    encode_audio,
    encode_image,
    encode_video_file,
    encode_video_frames,
)

__all__ = [
    "PATH",
    "build_responses_fields",
    "build_responses_input",
    "build_responses_tool_fields",
    "parse_responses_reply",
]

PATH = "/responses"
_MIN_OUTPUT_TOKENS = 16
"""OpenAI rejects a smaller limit."""


def build_responses_fields(
    settings: Settings, options: Options, capabilities: ServerCapabilities
) -> dict[str, Any]:
    """Return all fields of a call except the messages."""
    limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
    fields: dict[str, Any] = {
        "model": options.model,
        "max_output_tokens": max(limit, _MIN_OUTPUT_TOKENS) if options.is_openai else limit,
        "store": False,
    }
    if options.system_prompt:
        fields["instructions"] = options.system_prompt
    if "temperature" not in capabilities.refused:
        fields["temperature"] = settings.temperature
    extra = select_extra_settings(settings)
    reasoning: dict[str, Any] = {}
    if effort := extra.pop("reasoning_effort", None):
        reasoning["effort"] = effort
    if extra.pop("include_reasoning", None):
        reasoning["summary"] = "auto"
    if reasoning:
        fields["reasoning"] = reasoning
    return {**fields, **extra, **options.extra_body}


def build_responses_input(prompt: Prompt, media: MediaEncoding) -> list[dict[str, Any]]:
    """Return the messages of a prompt. Tool calls and results are items of their own."""
    return [item for message in prompt.messages for item in _build_items(message, media)]


def build_responses_tool_fields(request: Generate) -> dict[str, Any]:
    """Return the fields for the tools and the response format of a request; empty if it has neither."""
    fields: dict[str, Any] = {}
    if (tools := request.native_tools) is not None:
        fields["tools"] = [{"type": "function", **tool.to_json(), "strict": False} for tool in tools.tools]
        if tools.choice != "auto":
            named = {"type": "function", "name": tools.choice}
            fields["tool_choice"] = tools.choice if tools.choice in ("none", "required") else named
        if tools.parallel is not None:
            fields["parallel_tool_calls"] = tools.parallel
    if (wanted := request.response_format) is not None:
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
        form = {"type": "json_object"} if wanted.schema is None else {"type": "json_schema", **schema}
        fields["text"] = {"format": form}
    return fields


def _build_items(message: Message, media: MediaEncoding) -> list[dict[str, Any]]:
    by_assistant = message.role == "assistant"
    pieces = [piece for part in message.parts for piece in _build_parts(part, media, by_assistant)]
    items: list[dict[str, Any]] = []
    has_items = any(isinstance(part, (ToolCall, ToolResult)) for part in message.parts)
    if pieces or not has_items:
        items.append({"role": message.role, "content": pieces})
    for part in message.parts:
        if isinstance(part, ToolCall):
            call_id = part.id or f"call_{part.name}"
            items.append(
                {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": part.arguments}
            )
        elif isinstance(part, ToolResult):
            items.append({"type": "function_call_output", "call_id": part.call_id, "output": part.content})
    return items


def _build_parts(part: Part, media: MediaEncoding, by_assistant: bool) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"type": "output_text" if by_assistant else "input_text", "text": text}]
        case Image():
            return [{"type": "input_image", "image_url": encode_image(part, media).url}]
        case Audio():
            audio = encode_audio(part)
            return [{"type": "input_audio", "input_audio": {"data": audio.text, "format": "wav"}}]
        case Video() if media.whole_videos:
            return [{"type": "input_video", "video_url": encode_video_file(part).url}]
        case Video():
            return [
                {"type": "input_image", "image_url": frame.url} for frame in encode_video_frames(part, media)
            ]
        case ToolCall() | ToolResult():
            return []  # items of their own


def parse_responses_reply(value: Any) -> ParsedReply:
    """Parse a responses API reply.

    Raises:
        BadReply: The reply contains no answer.
        GenerationFailed: The reply reports an error, or has no final status.
    """
    raise_reported_error(value)
    finish = _read_finish_reason(value)
    texts, thoughts, refusals, messages, has_reasoning = [], [], [], 0, False
    calls: list[ToolCall] = []
    for item in value["output"]:
        if item["type"] == "reasoning":
            has_reasoning = True
            pieces = [*(item.get("summary") or ()), *(item.get("content") or ())]
            thoughts += [str(piece.get("text", "")) for piece in pieces]
        elif item["type"] == "function_call":
            call_id = str(item.get("call_id") or item.get("id") or "")
            calls.append(ToolCall(str(item["name"]), str(item.get("arguments") or "{}"), call_id))
        elif item["type"] == "message":
            messages += 1
            for piece in item["content"]:
                if piece["type"] == "refusal":
                    refusals.append(str(piece.get("refusal", "")))
                else:
                    texts.append(str(piece["text"]))
    if not (messages or has_reasoning or calls) and finish not in ("length", "refused"):
        raise BadReply('unexpected response format: no "message" in "output"')
    text = "".join(texts) or "".join(refusals)
    if not (text or finish or thoughts or calls):
        raise BadReply("unexpected response format: neither text nor `status`")
    # Without text, the service reasoned and shows neither reasoning nor answer.
    hidden = "" if has_reasoning and not (text or calls) else None
    reasoning = "\n".join(thoughts) or hidden
    choice = Choice(text, "refused" if refusals else finish, reasoning, tool_calls=tuple(calls))
    return ParsedReply((choice,), parse_usage(value.get("usage")), str(value.get("model") or ""), "")


def _read_finish_reason(value: Mapping[str, Any]) -> Finish:
    if value.get("status") == "incomplete":
        details = value.get("incomplete_details") or {}
        return RESPONSES_INCOMPLETE.classify(details.get("reason"))
    return RESPONSES_STATUS.classify(value.get("status"))
