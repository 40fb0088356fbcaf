"""`gemini`: Google's models over the Gemini API (`generateContent`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from assay.core.errors import InvalidOption, MediaError
from assay.core.ports import Ability
from assay.core.records.messages import Audio, Image, Part, Prompt, Text, Video
from assay.core.records.requests import Generate
from assay.core.records.responses import Usage
from assay.core.records.tools import ToolCall, ToolResult
from assay.models.finish_reasons import GENERATE_CONTENT, raise_reported_error
from assay.models.hosted.service import HostedModel, read_hosted_options
from assay.models.remote.errors import BadReply
from assay.models.remote.options import Options
from assay.models.remote.protocol.chat import Choice, ParsedReply, collect_stop_strings, compute_seed
from assay.models.remote.protocol.media import (
    EncodedMedia,
    MediaEncoding,
    encode_audio,
    encode_image,
    encode_video_file,
    encode_video_frames,
)
from assay.models.tool_calls import merge_tool_messages

__all__ = ["GeminiModel", "GenerateContentApi", "parse_content"]

_ALIASES = {"max_tokens": "max_gen_toks"}
_IGNORED = frozenset({"interleave", "modality", "temperature", "tokenizer_backend", "tokenizer", "location"})
_MAX_CALL_MB = 18.0
"""The service accepts calls of up to 20 MB."""

_THRESHOLDS = ("OFF", "BLOCK_NONE", "BLOCK_ONLY_HIGH", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_LOW_AND_ABOVE")
_LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
_MAX_STOPS = 5
"""Limit of the service; further stop strings are applied to the answer."""

_MALFORMED_CALLS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
_HARMS = ("HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT", "DANGEROUS_CONTENT", "CIVIC_INTEGRITY")


class GeminiModel(HostedModel):
    """A model of the Gemini API: text, images, audio, video as files or frames.

    >>> GeminiModel(model="gemini-2.5-flash").billed_as
    'gemini/gemini-2.5-flash'
    """

    def __init__(
        self,
        *,
        batch_size: Any = None,
        rpm: Any = None,
        tpm: Any = None,
        thinking_budget: Any = None,
        thinking_level: str = "",
        safety_threshold: str = "BLOCK_NONE",
        vertexai: Any = False,
        project: Any = None,
        **arguments: Any,
    ) -> None:
        if str(vertexai).lower() == "true" or project:
            raise InvalidOption(
                "`gemini` does not support Vertex AI",
                where="--model_args",
                hint="use --model litellm --model_args model=vertex_ai/NAME",
            )
        api = GenerateContentApi(
            thinking_budget=_parse_budget(thinking_budget),
            safety_threshold=_parse_choice("safety_threshold", safety_threshold, _THRESHOLDS),
            thinking_level=_parse_choice("thinking_level", thinking_level, _LEVELS),
        )
        given = {_ALIASES.get(name, name): value for name, value in arguments.items() if name not in _IGNORED}
        options = read_hosted_options(
            api,
            "gemini",
            {"rpm": rpm, "tpm": tpm, **given},
            max_size_in_mb=_MAX_CALL_MB,
            video="file",
            seed=1234,
        )
        facts = {"safety_threshold": api.safety_threshold}
        if api.thinking_budget is not None:
            facts["thinking_budget"] = str(api.thinking_budget)
        if api.thinking_level:
            facts["thinking_level"] = api.thinking_level
        super().__init__(api, options, facts)


def _parse_budget(value: Any) -> int | None:
    if value is None:
        return None
    try:
        budget = int(value)
    except (TypeError, ValueError):
        budget = -2
    if budget < -1:
        raise InvalidOption(
            f"`thinking_budget` must be a number of tokens, not {value!r}",
            where="--model_args",
            hint="0: no thinking, -1: the model decides",
        )
    return budget


def _parse_choice(name: str, value: Any, words: tuple[str, ...]) -> str:
    word = str(value or "").upper()
    if word and word not in words:
        raise InvalidOption(
            f"invalid value for `{name}`: {value!r}",
            where="--model_args",
            hint=f"use one of {', '.join(words)}",
        )
    return word


# --- protocol ---


@dataclass(frozen=True, slots=True)
class GenerateContentApi:
    """`generateContent`, with the settings for thinking and safety."""

    thinking_budget: int | None = None
    """Tokens for thinking: 0: none, -1: the model decides, None: the model's default."""

    safety_threshold: str = "BLOCK_NONE"
    thinking_level: str = ""
    """`MINIMAL` … `HIGH`, for models that support levels; empty: the model's default."""

    service: str = "gemini"
    default_url: str = "https://generativelanguage.googleapis.com/v1beta"
    key_variables: tuple[str, ...] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    abilities: frozenset[Ability] = field(
        default_factory=lambda: frozenset({"generate", "chat", "image", "audio", "video", "tools"})
    )
    optional_settings: tuple[str, ...] = ("seed", "topK", "CIVIC_INTEGRITY")

    def build_headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def build_path(self, options: Options) -> str:
        return f"/models/{quote(options.model.removeprefix('models/'))}:generateContent"

    def build_payload(
        self, request: Generate, options: Options, media: MediaEncoding, refused: frozenset[str]
    ) -> dict[str, Any]:
        system, contents = _build_contents(request.prompt, media)
        payload: dict[str, Any] = {
            "contents": contents,
            "generationConfig": self._settings(request, options, refused),
        }
        if system or options.system_prompt:
            payload["systemInstruction"] = {"parts": [{"text": system or options.system_prompt}]}
        if self.safety_threshold:
            payload["safetySettings"] = [
                {"category": f"HARM_CATEGORY_{harm}", "threshold": self.safety_threshold}
                for harm in _HARMS
                if harm not in refused
            ]
        return {**payload, **_build_tool_fields(request), **options.extra_body}

    def _settings(self, request: Generate, options: Options, refused: frozenset[str]) -> dict[str, Any]:
        settings = request.settings
        limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        chosen: dict[str, Any] = {"temperature": settings.temperature, "maxOutputTokens": limit}
        if stops := collect_stop_strings(settings, options):
            chosen["stopSequences"] = list(stops[:_MAX_STOPS])
        if settings.values.get("top_p") is not None:
            chosen["topP"] = settings.top_p
        if settings.values.get("top_k") and "topK" not in refused:
            chosen["topK"] = settings.top_k
        seed = compute_seed(settings, options, request.repeat)
        if seed is not None and "seed" not in refused:
            chosen["seed"] = seed
        if (wanted := request.response_format) is not None:
            chosen["responseMimeType"] = "application/json"
            if wanted.schema is not None:
                chosen["responseJsonSchema"] = wanted.schema
        budget = self.thinking_budget if settings.thinking_budget is None else settings.thinking_budget
        level = settings.reasoning_effort or self.thinking_level
        shown = {"includeThoughts": True} if settings.include_reasoning else {}
        if budget is not None:
            chosen["thinkingConfig"] = {"thinkingBudget": budget, **(shown if budget else {})}
            chosen["maxOutputTokens"] = limit + max(0, budget)
        elif level:
            chosen["thinkingConfig"] = {"thinkingLevel": level, **shown}
        return chosen

    def parse_reply(self, value: Any) -> ParsedReply:
        return parse_content(value)

    def parse_tool_reply(self, value: Any) -> ParsedReply:
        """Parse the reply to a request with tools, where a malformed call is an outcome and no failure."""
        return parse_content(value, accepts_malformed_calls=True)


def _build_tool_fields(request: Generate) -> dict[str, Any]:
    tools = request.native_tools
    if tools is None:
        return {}
    declarations = [
        {"name": tool.name, "description": tool.description, "parametersJsonSchema": dict(tool.parameters)}
        for tool in tools.tools
    ]
    fields: dict[str, Any] = {"tools": [{"functionDeclarations": declarations}]}
    if tools.choice != "auto":
        config: dict[str, Any] = {"mode": {"none": "NONE"}.get(tools.choice, "ANY")}
        if tools.choice not in ("none", "required"):
            config["allowedFunctionNames"] = [tools.choice]
        fields["toolConfig"] = {"functionCallingConfig": config}
    return fields


def parse_content(value: Any, *, accepts_malformed_calls: bool = False) -> ParsedReply:
    """Parse a reply. A blocked prompt is a refusal. `accepts_malformed_calls`: a call that the service could not parse is a
    tool call without a name; otherwise the reply is a failure.

    Raises:
        BadReply: The reply contains no answer and no reason.
        GenerationFailed: The reply reports an error.
    """
    raise_reported_error(value)
    usage, model = _parse_usage(value.get("usageMetadata")), str(value.get("modelVersion") or "")
    candidates = value.get("candidates")
    if not candidates:
        if value.get("promptFeedback", {}).get("blockReason"):
            return ParsedReply((Choice("", "refused"),), usage, model, "")
        raise BadReply('unexpected response format: no "candidates"')
    candidate = candidates[0]
    reason = str(candidate.get("finishReason"))
    if accepts_malformed_calls and reason in _MALFORMED_CALLS:
        broken = ToolCall("", str(candidate.get("finishMessage") or reason))
        return ParsedReply((Choice("", "stop", tool_calls=(broken,)),), usage, model, "")
    finish = GENERATE_CONTENT.classify(candidate.get("finishReason"))
    parts = (candidate.get("content") or {}).get("parts") or ()
    text = "".join([part.get("text", "") for part in parts if not part.get("thought")])
    thought = "".join([part.get("text", "") for part in parts if part.get("thought")])
    calls = tuple(
        ToolCall(
            str(call["name"]),
            json.dumps(call.get("args") or {}, ensure_ascii=False),
            str(call.get("id") or ""),
        )
        for part in parts
        if (call := part.get("functionCall"))
    )
    return ParsedReply((Choice(text, finish, thought or None, tool_calls=calls),), usage, model, "")


def _parse_usage(value: Any) -> Usage | None:
    """Return the token counts; the service reports thinking separately and bills it as output."""
    if not isinstance(value, Mapping):
        return None
    reasoning = int(value.get("thoughtsTokenCount") or 0)
    written = int(value.get("candidatesTokenCount") or 0) + reasoning
    cached = int(value.get("cachedContentTokenCount") or 0)
    return Usage(
        int(value.get("promptTokenCount") or 0), written, cached_tokens=cached, reasoning_tokens=reasoning
    )


def _build_contents(prompt: Prompt, media: MediaEncoding) -> tuple[str, list[dict[str, Any]]]:
    """Return the system message and the other messages."""
    system = "\n\n".join(message.text for message in prompt.messages if message.role == "system")
    contents = [
        {
            "role": "model" if message.role == "assistant" else "user",
            "parts": [piece for part in message.parts for piece in _build_parts(part, media)],
        }
        for message in merge_tool_messages(prompt.messages)
        if message.role != "system"
    ]
    return system, contents


def _build_parts(part: Part, media: MediaEncoding) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"text": text}] if text else []
        case Image():
            return [_build_inline_part(encode_image(part, media))]
        case Audio():
            return [_build_inline_part(encode_audio(part))]
        case Video():
            return _build_video_parts(part, media)
        case ToolCall(name=name, id=call_id):
            named = {"id": call_id} if call_id else {}
            return [{"functionCall": {**named, "name": name, "args": part.values or {}}}]
        case ToolResult(content=content, call_id=call_id, name=name):
            named = {"id": call_id} if call_id else {}
            return [{"functionResponse": {**named, "name": name, "response": {"result": content}}}]


def _build_video_parts(part: Video, media: MediaEncoding) -> list[dict[str, Any]]:
    """Send a video as a file with its time range; as frames if there is no file or it is too large."""
    if media.whole_videos:
        try:
            encoded = encode_video_file(part)
        except MediaError:
            encoded = None  # the video has no file
        if encoded is not None and encoded.nbytes <= media.max_bytes:
            ends = {"startOffset": part.start_s, "endOffset": part.end_s}
            time_range: dict[str, Any] = {
                key: f"{second:g}s" for key, second in ends.items() if second is not None
            }
            if media.fps:
                time_range["fps"] = media.fps
            return [_build_inline_part(encoded) | ({"videoMetadata": time_range} if time_range else {})]
    return [_build_inline_part(frame) for frame in encode_video_frames(part, media)]


def _build_inline_part(encoded: EncodedMedia) -> dict[str, Any]:
    return {"inlineData": {"mimeType": encoded.mime, "data": encoded.text}}
