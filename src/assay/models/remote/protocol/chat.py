"""Chat completions: build payloads and parse replies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.records.messages import Audio, Image, Message, Part, Prompt, Text, Video
from assay.core.records.requests import Generate, Settings
from assay.core.records.responses import Finish, Response, Tokens, Usage
from assay.core.records.tools import ToolCall, ToolResult
from assay.models.finish_reasons import OPENAI, raise_reported_error
from assay.models.reasoning import SplitText, split_known_format
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.errors import BadReply
from assay.models.remote.options import Options
from assay.models.remote.protocol.json_writer import RawString
from assay.models.remote.protocol.media import (
    MediaEncoding,
    encode_audio,
    encode_image,
    encode_video_file,
    encode_video_frames,
)
from assay.models.tokens import cut_at_stops, split_thinking, tokens_from_bytes
from assay.models.tool_calls import extract_known_calls, to_openai_tools
from assay.models.tool_calls.messages import to_openai_call

__all__ = [
    "MAX_STOPS",
    "PATH",
    "Choice",
    "ParsedReply",
    "build_chat_fields",
    "build_chat_messages",
    "build_chat_payload",
    "build_response",
    "build_tool_fields",
    "split_choice",
    "collect_stop_strings",
    "compute_seed",
    "format_served_name",
    "parse_chat_reply",
    "parse_tokens",
    "parse_tool_calls",
    "parse_usage",
    "select_extra_settings",
]

PATH = "/chat/completions"
MAX_STOPS = 4
"""OpenAI's limit; further stop strings are applied to the answer."""

_HANDLED_SETTINGS = frozenset(
    """
    until stop do_sample temperature seed max_gen_toks max_new_tokens max_tokens max_completion_tokens num_beams
    use_cache image_aspect_ratio early_stopping length_penalty return_dict_in_generate output_scores n thinking_budget
    """.split()
)
"""Settings that are sent in another form or have no meaning for a server."""


@dataclass(slots=True)
class Choice:
    """One answer of a reply."""

    text: str
    finish: Finish
    reasoning: str | None = None
    tokens: Tokens | None = None
    tool_calls: tuple[ToolCall, ...] = ()


def build_chat_fields(
    settings: Settings,
    options: Options,
    capabilities: ServerCapabilities,
    repeat: int = 0,
    n: int = 1,
    *,
    tokens: bool = False,
) -> dict[str, Any]:
    """Return all fields of a call except the messages; `tokens`: request log-probabilities."""
    limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
    fields: dict[str, Any] = {
        "model": options.model,
        ("max_completion_tokens" if capabilities.long_limit_name else "max_tokens"): limit
        + (settings.thinking_budget or 0),
    }
    if settings.thinking_budget is not None:
        fields["thinking_token_budget"] = settings.thinking_budget
    if "temperature" not in capabilities.refused:
        fields["temperature"] = settings.temperature
    stops = collect_stop_strings(settings, options)
    if stops and "stop" not in capabilities.refused:
        fields["stop"] = list(stops[:MAX_STOPS])
    seed = compute_seed(settings, options, repeat)
    if seed is not None and "seed" not in capabilities.refused:
        fields["seed"] = seed
    if n > 1:
        fields["n"] = n
    if tokens:
        fields["logprobs"] = True
    return {**fields, **select_extra_settings(settings), **options.extra_body}


def build_chat_payload(
    request: Generate, options: Options, capabilities: ServerCapabilities, media: MediaEncoding
) -> dict[str, Any]:
    """Return the payload for one request; media are `RawString` objects."""
    fields = build_chat_fields(request.settings, options, capabilities, request.repeat)
    tools = {**build_tool_fields(request), **options.extra_body}
    return {**fields, **tools, "messages": build_chat_messages(request.prompt, options, media)}


def build_tool_fields(request: Generate) -> dict[str, Any]:
    """Return the fields for the tools and the response format of a request; empty if it has neither."""
    fields: dict[str, Any] = {}
    if (tools := request.native_tools) is not None:
        fields["tools"] = to_openai_tools(tools)
        if tools.choice != "auto":
            named = {"type": "function", "function": {"name": tools.choice}}
            fields["tool_choice"] = tools.choice if tools.choice in ("none", "required") else named
        if tools.parallel is not None:
            fields["parallel_tool_calls"] = tools.parallel
    if (wanted := request.response_format) is not None:
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
        fields["response_format"] = (
            {"type": "json_object"}
            if wanted.schema is None
            else {"type": "json_schema", "json_schema": schema}
        )
    return fields


def collect_stop_strings(settings: Settings, options: Options) -> tuple[str, ...]:
    """Return all non-empty stop strings of the settings and the options."""
    stops = dict.fromkeys([*settings.stop, options.eos_string])
    return tuple(stop for stop in stops if stop)


def compute_seed(settings: Settings, options: Options, repeat: int) -> int | None:
    """Return the seed of a repeat; repeats of one prompt use different seeds."""
    seed = options.seed if settings.seed is None else settings.seed
    return None if seed is None else seed + repeat


def select_extra_settings(settings: Settings) -> dict[str, Any]:
    """Return the task's settings other than length, temperature, stop strings and seed, unchanged."""
    return {
        key: value
        for key, value in settings.values.items()
        if key not in _HANDLED_SETTINGS and value is not None
    }


# --- prompts -------------------------------------------------------------------------------------------


def build_chat_messages(prompt: Prompt, options: Options, media: MediaEncoding) -> list[dict[str, Any]]:
    """Return the messages of a prompt; a prompt without a chat is a single user message."""
    messages = [entry for message in prompt.messages for entry in _build_entries(message, media)]
    if options.system_prompt and not (messages and messages[0]["role"] == "system"):
        messages.insert(0, {"role": "system", "content": options.system_prompt})
    return messages


def _build_entries(message: Message, media: MediaEncoding) -> list[dict[str, Any]]:
    """Return the entry of a message; tool results are one entry each."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        return [{"role": message.role, "content": parts[0].text}]
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if results:
        return [{"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in results]
    if calls := message.tool_calls:
        entries = [to_openai_call(call) for call in calls]
        return [{"role": message.role, "content": message.text or None, "tool_calls": entries}]
    return [{"role": message.role, "content": _build_content(message, media)}]


def _build_content(message: Message, media: MediaEncoding) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    return [piece for part in message.parts for piece in _build_parts(part, media)]


def _build_parts(part: Part, media: MediaEncoding) -> list[dict[str, Any]]:
    match part:
        case Text(text=text):
            return [{"type": "text", "text": text}] if text else []
        case Image():
            return [_build_image_part(encode_image(part, media).url)]
        case Audio():
            audio = encode_audio(part)
            return [{"type": "input_audio", "input_audio": {"data": audio.text, "format": "wav"}}]
        case Video() if media.whole_videos:
            return [{"type": "video_url", "video_url": {"url": encode_video_file(part).url}}]
        case Video():
            return [_build_image_part(frame.url) for frame in encode_video_frames(part, media)]
        case ToolCall() | ToolResult():
            return []  # entries of their own


def _build_image_part(url: RawString) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


# --- replies -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ParsedReply:
    """A parsed reply of any of the supported protocols."""

    choices: tuple[Choice, ...]
    usage: Usage | None
    model: str
    system_fingerprint: str

    @property
    def served(self) -> str:
        """Model name and system fingerprint that the server reports."""
        return format_served_name(self.model, self.system_fingerprint)


def format_served_name(model: Any, fingerprint: Any) -> str:
    """Return model name and system fingerprint on one line.

    >>> format_served_name("gpt-4o-mini-2024-07-18", "fp_0ba0d124f1")
    'gpt-4o-mini-2024-07-18 (fp_0ba0d124f1)'
    """
    name = str(model or "")
    return f"{name} ({fingerprint})".lstrip() if fingerprint else name


def parse_chat_reply(value: Any) -> ParsedReply:
    """Parse a chat completions reply; choices are sorted by index.

    Raises:
        BadReply: The reply contains no answer.
        GenerationFailed: The reply reports an error.
    """
    raise_reported_error(value)
    choices = value["choices"]
    if not choices:
        raise BadReply('unexpected response format: no "choices"')
    if len(choices) > 1:
        choices = sorted(choices, key=lambda choice: choice.get("index", 0))
    return ParsedReply(
        tuple([_parse_choice(choice) for choice in choices]),
        parse_usage(value.get("usage")),
        str(value.get("model") or ""),
        str(value.get("system_fingerprint") or ""),
    )


def _parse_choice(choice: Mapping[str, Any]) -> Choice:
    raise_reported_error(choice, " for this choice")
    finish = OPENAI.classify(choice.get("finish_reason"))
    message = choice["message"]
    reasoning = message.get("reasoning_content") or message.get("reasoning") or None
    text = message.get("content")
    if not isinstance(text, str) and isinstance(text, Sequence):
        reasoning = reasoning or _join_thinking_pieces(text) or None
        text = "".join([str(piece.get("text", "")) for piece in text])
    if refusal := message.get("refusal"):
        return Choice(text or str(refusal), "refused", reasoning)
    calls = parse_tool_calls(message)
    if text is None:
        if not (reasoning or finish in ("length", "refused") or calls):
            raise BadReply("unexpected response format: a choice without text")
        text = ""
    if not isinstance(text, str):
        raise BadReply(f"unexpected response format: the answer is a {type(text).__name__}, not text")
    if not (text or finish or reasoning or calls):
        raise BadReply("unexpected response format: neither text nor `finish_reason`")
    logprobs = choice.get("logprobs")
    thought = reasoning if isinstance(reasoning, str) else None
    return Choice(text, finish, thought, parse_tokens(logprobs) if logprobs else None, calls)


def parse_tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Parse the tool calls of a message. Arguments are JSON text; some servers send objects."""
    listed = message.get("tool_calls") or ()
    if not listed and "function_call" not in message:
        return ()
    if not listed and isinstance(message.get("function_call"), Mapping):
        listed = ({"function": message["function_call"]},)  # the older form
    calls = []
    for one in listed:
        own = one.get("function") or one.get("custom") or {}
        arguments = own.get("arguments", own.get("input"))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        calls.append(ToolCall(str(own.get("name") or ""), text, str(one.get("id") or "")))
    return tuple(calls)


def _join_thinking_pieces(pieces: Sequence[Mapping[str, Any]]) -> str:
    """Return the reasoning among the pieces of a message, as Mistral sends it.

    >>> _join_thinking_pieces([{"type": "thinking", "thinking": [{"type": "text", "text": "7?"}]}, {"type": "text", "text": "42"}])
    '7?'
    """
    thoughts = [piece["thinking"] for piece in pieces if piece.get("thinking")]
    return "".join(
        one if isinstance(one, str) else "".join([str(part.get("text", "")) for part in one])
        for one in thoughts
    )


def parse_tokens(value: Any) -> Tokens | None:
    """Parse the token log-probabilities of a chat or text completion; None if there are none."""
    if not isinstance(value, Mapping):
        return None
    listed = value.get("content")
    if listed:
        contents = [
            bytes(one["bytes"]) if one.get("bytes") else str(one.get("token", "")).encode("utf-8", "replace")
            for one in listed
        ]
        return tokens_from_bytes(contents, [float(one["logprob"]) for one in listed])
    names, numbers = value.get("tokens"), value.get("token_logprobs")
    if not names or not numbers or len(names) != len(numbers) or None in numbers:
        return None
    return Tokens(tuple(map(str, names)), tuple(map(float, numbers)))


_PLAIN_USAGE = frozenset(
    ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens")
)


def parse_usage(value: Any) -> Usage | None:
    """Parse the token counts of a chat completions or responses API reply."""
    if not isinstance(value, (dict, Mapping)):  # dict first: it is the cheaper check
        return None
    read = value.get("prompt_tokens", value.get("input_tokens"))
    written = value.get("completion_tokens", value.get("output_tokens"))
    if value.keys() <= _PLAIN_USAGE:  # the most frequent case
        return Usage(int(read or 0), int(written or 0))
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details") or {}
    output_details = value.get("completion_tokens_details") or value.get("output_tokens_details") or {}
    cost = value.get("cost")
    return Usage(
        int(read or 0),
        int(written or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        reasoning_tokens=int(output_details.get("reasoning_tokens") or 0),
        cost_usd=float(cost) if isinstance(cost, (int, float)) and cost else None,
    )


def build_response(
    request: Generate,
    choice: Choice,
    usage: Usage | None,
    options: Options,
    seconds: float,
    stops: Sequence[str] | None = None,
    served: str = "",
) -> Response:
    """Return the response to a request: text cut at the stop strings, reasoning separated."""
    calls, finish = choice.tool_calls, choice.finish
    found = split_choice(choice, options, is_chat=request.prompt.chat)
    if request.native_tools is not None and not calls:  # a server that does not parse the calls of its model
        if "<|call|>" in choice.text:  # harmony writes calls in its channels
            extracted = extract_known_calls(choice.text)
            shown = replace(choice, text=extracted.text, tool_calls=extracted.calls)
            found = split_choice(shown, options, is_chat=request.prompt.chat)
        else:  # a call that the reasoning mentions is not a call
            extracted = extract_known_calls(found.answer)
            found = replace(found, answer=extracted.text)
        calls = extracted.calls
    if stops is None:
        stops = collect_stop_strings(request.settings, options)
    cut = cut_at_stops(found.answer, stops) if stops else found.answer
    if len(cut) < len(found.answer) and finish != "refused":
        finish = "stop"
    return Response(
        request_id=request.id,
        value=cut,
        finish=finish,
        usage=usage,
        seconds=seconds,
        reasoning=found.reasoning,
        served=served,
        tokens=choice.tokens,
        tool_calls=calls,
    )


def split_choice(choice: Choice, options: Options, *, is_chat: bool) -> SplitText:
    """Separate the reasoning of an answer: what the server reports, else what the marks in the text of a chat tell."""
    if options.think_end_token:
        thought, answer = split_thinking(choice.text, options.think_end_token)
        return SplitText(answer, choice.reasoning or thought)
    if choice.reasoning is not None:
        return SplitText(choice.text, choice.reasoning, bool(choice.text.strip() or choice.tool_calls))
    return split_known_format(choice.text) if is_chat else SplitText(choice.text)
