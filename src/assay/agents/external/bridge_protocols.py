"""The APIs that a bridge speaks: chat completions and responses of OpenAI, messages of Anthropic.

    JSON of a client -> BridgeCall -> (a model) -> Response -> JSON, or server-sent events

A stream holds the whole answer in a few events, because the answer is complete and journalled before it is sent.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.errors import AssayError
from assay.core.json_schema import describe_invalid_schema
from assay.core.records.messages import Message, Part, Prompt, Role, Text
from assay.core.records.responses import Response, Usage
from assay.core.records.tools import ResponseFormat, Tool, ToolCall, ToolResult, Tools
from assay.tasks.prompts.media_parts import to_image_part

__all__ = ["PROTOCOLS", "BridgeCall", "BridgeProtocol", "BridgeRequestError", "format_sse"]


class BridgeRequestError(AssayError):
    """A client sent a request that the bridge does not understand (HTTP 400)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeCall:
    """One call of a client."""

    prompt: Prompt
    settings: Mapping[str, Any]
    tools: Tools | None = None
    response_format: ResponseFormat | None = None
    model: str = ""
    """The name that the client used. The bridge has one model and only repeats the name."""

    stream: bool = False
    include_usage: bool = False
    number: int = 0
    """The number of the call in its document, from 0."""


Event = tuple[str, Mapping[str, Any] | str]
"""A server-sent event: its name (may be empty) and its data."""


@dataclass(frozen=True, slots=True)
class BridgeProtocol:
    """How one API writes calls and answers."""

    parse: Callable[[Mapping[str, Any]], BridgeCall]
    answer: Callable[[BridgeCall, Response], dict[str, Any]]
    stream: Callable[[BridgeCall, Response], Iterator[Event]]


def format_sse(events: Iterator[Event]) -> Iterator[bytes]:
    """Yield the bytes of server-sent events."""
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        yield (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


# --- parts that the APIs share -------------------------------------------------------------------------------------


def _require_list(body: Mapping[str, Any], key: str) -> list[Any]:
    value = body.get(key)
    if not isinstance(value, list) or not value:
        raise BridgeRequestError(f"`{key}` must be a list that is not empty")
    return value


def _read_text(content: Any, where: str) -> str:
    """Return the text of a content: a text, nothing, or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BridgeRequestError(f"{where} must be a text or a list of parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else part
        if kind in ("text", "input_text", "output_text") and isinstance(part["text"], str):
            texts.append(part["text"])
        elif kind not in ("thinking", "redacted_thinking", "reasoning"):
            raise BridgeRequestError(f"{where}: parts of the type `{kind!s:.40}` are not supported")
    return "".join(texts)


def _read_parts(content: Any, where: str) -> tuple[Part, ...]:
    """Return the parts of a message of the user: text and images. Neighbouring texts are one part."""
    if not isinstance(content, list):
        return (Text(_read_text(content, where)),)
    parts: list[Part] = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("image_url", "input_image", "image"):
            parts.append(_read_image(part, where))
        elif text := _read_text([part], where):
            last = parts[-1] if parts else None
            if isinstance(last, Text):
                parts[-1] = Text(last.text + text)
            else:
                parts.append(Text(text))
    return tuple(parts) or (Text(""),)


def _read_image(part: Mapping[str, Any], where: str) -> Part:
    """Return an image whose content is in the request: a `data:` URL, or base64 with a media type."""
    source = part.get("source")
    if isinstance(source, Mapping):
        data = source.get("data") if source.get("type") == "base64" else None
    else:
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        head, comma, data = str(url or "").partition(",")
        if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
            data = None
    if not isinstance(data, str) or not data:
        raise BridgeRequestError(f"{where}: an image must be inside the request, as base64 or a `data:` URL")
    try:
        return to_image_part(base64.b64decode(data, validate=True), where=where)
    except (ValueError, AssayError) as problem:
        what = problem.what if isinstance(problem, AssayError) else str(problem)
        raise BridgeRequestError(f"{where}: the image cannot be read: {what}") from None


def _read_settings(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a request under the names of task files."""
    settings: dict[str, Any] = {"until": []}
    for name, ours in names.items():
        if body.get(name) is not None:
            settings[ours] = body[name]
    if isinstance(settings["until"], str):
        settings["until"] = [settings["until"]]
    numbers = ("max_gen_toks", "temperature", "top_p", "top_k", "seed")
    for name in numbers:
        value = settings.get(name)
        if name in settings and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise BridgeRequestError(f"`{name}` must be a number")
    if not isinstance(settings["until"], list) or not all(
        isinstance(text, str) for text in settings["until"]
    ):
        raise BridgeRequestError("stop sequences must be a list of texts")
    if settings.get("temperature"):
        settings["do_sample"] = True
    return settings


def _make_tools(
    definitions: Sequence[Mapping[str, Any]], schema_key: str, choice: str, parallel: Any
) -> Tools | None:
    if not definitions:
        return None
    tools = []
    for entry in definitions:
        schema = entry.get(schema_key) or {"type": "object", "properties": {}}
        if not isinstance(entry.get("name"), str):
            raise BridgeRequestError("a tool needs a `name`")
        if problem := describe_invalid_schema(schema):
            raise BridgeRequestError(f"the schema of the tool `{entry['name']}` is invalid: {problem}")
        tools.append(Tool(entry["name"], str(entry.get("description") or ""), schema))
    return Tools(tools=tuple(tools), choice=choice, parallel=parallel if isinstance(parallel, bool) else None)


def _name_calls(call: BridgeCall, response: Response) -> list[ToolCall]:
    """Return the tool calls, each with an id that is the same when the run is resumed."""
    return [
        ToolCall(one.name, one.arguments or "{}", one.id or f"call_{call.number}_{index}")
        for index, one in enumerate(response.tool_calls)
    ]


def _get_usage(response: Response) -> Usage:
    return response.usage or Usage()


def _build_prompt(messages: Sequence[Message]) -> Prompt:
    if not any(message.role != "system" for message in messages):
        raise BridgeRequestError("there is no message besides the system message")
    return Prompt(tuple(messages), chat=True)


# --- chat completions ----------------------------------------------------------------------------------------------


def _parse_chat(body: Mapping[str, Any]) -> BridgeCall:
    names: dict[str, str] = {}
    messages = [_parse_chat_message(message, names) for message in _require_list(body, "messages")]
    functions = []
    for entry in body.get("tools") or ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("function"), Mapping):
            raise BridgeRequestError("only tools of the type `function` are supported")
        functions.append(entry["function"])
    if body.get("n") not in (None, 1):
        raise BridgeRequestError("`n` must be 1")
    fields = {
        "stop": "until",
        "max_tokens": "max_gen_toks",
        "max_completion_tokens": "max_gen_toks",
        "temperature": "temperature",
        "top_p": "top_p",
        "seed": "seed",
        "reasoning_effort": "reasoning_effort",
    }
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        choice = (choice.get("function") or {}).get("name")
    options = body.get("stream_options")
    return BridgeCall(
        prompt=_build_prompt(messages),
        settings=_read_settings(body, fields),
        tools=_make_tools(functions, "parameters", str(choice or "auto"), body.get("parallel_tool_calls")),
        response_format=_read_format(body.get("response_format")),
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
    )


def _parse_chat_message(message: Any, names: dict[str, str]) -> Message:
    if not isinstance(message, Mapping):
        raise BridgeRequestError("a message must be an object")
    role = message.get("role")
    if role == "user":
        return Message("user", _read_parts(message.get("content"), "`content`"))
    text = _read_text(message.get("content"), "`content`")
    match role:
        case "system" | "developer":
            return Message("system", (Text(text),))
        case "tool":
            identifier = str(message.get("tool_call_id") or "")
            return Message("tool", (ToolResult(text, identifier, names.get(identifier, "")),))
        case "assistant":
            parts: list[Part] = [Text(text)] if text else []
            for call in message.get("tool_calls") or ():
                function = call.get("function") if isinstance(call, Mapping) else None
                if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
                    raise BridgeRequestError("a tool call needs a `function` with a `name`")
                identifier = str(call.get("id") or "")
                names[identifier] = function["name"]
                parts.append(ToolCall(function["name"], str(function.get("arguments") or "{}"), identifier))
            return Message("assistant", tuple(parts) or (Text(""),))
    raise BridgeRequestError(f"the role `{role!s:.40}` is not supported")


def _read_format(value: Any) -> ResponseFormat | None:
    if not isinstance(value, Mapping) or value.get("type") in (None, "text"):
        return None
    if value["type"] == "json_object":
        return ResponseFormat()
    schema = value.get("json_schema")
    if value["type"] != "json_schema" or not isinstance(schema, Mapping):
        raise BridgeRequestError("`response_format` must be `text`, `json_object` or `json_schema`")
    return ResponseFormat(
        name=str(schema.get("name") or "answer"),
        schema=schema.get("schema"),
        strict=bool(schema.get("strict")),
    )


_CHAT_FINISH = {"length": "length", "refused": "content_filter"}


def _chat_head(call: BridgeCall, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{call.number}", "object": kind, "created": 0, "model": call.model}


def _chat_usage(response: Response) -> dict[str, Any]:
    usage = _get_usage(response)
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _chat_message(call: BridgeCall, response: Response) -> tuple[dict[str, Any], str]:
    calls = _name_calls(call, response)
    message: dict[str, Any] = {"role": "assistant", "content": str(response.value) or (None if calls else "")}
    if calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in calls
        ]
    return message, "tool_calls" if calls else _CHAT_FINISH.get(response.finish, "stop")


def _answer_chat(call: BridgeCall, response: Response) -> dict[str, Any]:
    message, finish = _chat_message(call, response)
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {**_chat_head(call, "chat.completion"), "choices": [choice], "usage": _chat_usage(response)}


def _stream_chat(call: BridgeCall, response: Response) -> Iterator[Event]:
    head = _chat_head(call, "chat.completion.chunk")
    message, finish = _chat_message(call, response)
    for index, one in enumerate(message.get("tool_calls", ())):
        one["index"] = index
    for delta, reason in ((message, None), ({}, finish)):
        yield "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    if call.include_usage:
        yield "", {**head, "choices": [], "usage": _chat_usage(response)}
    yield "", "[DONE]"


# --- responses -----------------------------------------------------------------------------------------------------


def _parse_responses(body: Mapping[str, Any]) -> BridgeCall:
    messages: list[Message] = []
    if body.get("previous_response_id"):
        raise BridgeRequestError("`previous_response_id` is not supported: send the whole conversation")
    if instructions := body.get("instructions"):
        messages.append(Message("system", (Text(_read_text(instructions, "`instructions`")),)))
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    names: dict[str, str] = {}
    for item in items if isinstance(items, list) else ():
        if (message := _parse_responses_item(item, names)) is None:
            continue
        joins = messages and message.role == messages[-1].role == "assistant"
        if joins:  # the text and the calls of one turn are several items
            message = Message("assistant", (*messages.pop().parts, *message.parts))
        messages.append(message)
    functions = []
    for entry in body.get("tools") or ():
        if not isinstance(entry, Mapping) or entry.get("type") != "function":
            raise BridgeRequestError("only tools of the type `function` are supported")
        functions.append(entry)
    fields = {"max_output_tokens": "max_gen_toks", "temperature": "temperature", "top_p": "top_p"}
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        choice = choice.get("name")
    return BridgeCall(
        prompt=_build_prompt(messages),
        settings=_read_settings(body, fields),
        tools=_make_tools(functions, "parameters", str(choice or "auto"), body.get("parallel_tool_calls")),
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
    )


_RESPONSES_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


def _parse_responses_item(item: Any, names: dict[str, str]) -> Message | None:
    if not isinstance(item, Mapping):
        raise BridgeRequestError("an item of `input` must be an object")
    identifier = str(item.get("call_id") or "")
    match item.get("type", "message"):
        case "message":
            if item.get("role") not in _RESPONSES_ROLES:
                raise BridgeRequestError(f"the role `{item.get('role')!s:.40}` is not supported")
            role = _RESPONSES_ROLES[item["role"]]
            if role == "user":
                return Message(role, _read_parts(item.get("content"), "`content`"))
            return Message(role, (Text(_read_text(item.get("content"), "`content`")),))
        case "function_call":
            names[identifier] = str(item.get("name"))
            call = ToolCall(str(item.get("name")), str(item.get("arguments") or "{}"), identifier)
            return Message("assistant", (call,))
        case "function_call_output":
            text = _read_text(item.get("output"), "`output`")
            return Message("tool", (ToolResult(text, identifier, names.get(identifier, "")),))
        case "reasoning":
            return None
    raise BridgeRequestError(f"items of the type `{item.get('type')!s:.40}` are not supported")


def _responses_items(call: BridgeCall, response: Response) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    calls = _name_calls(call, response)
    if response.value or not calls:
        part = {"type": "output_text", "text": str(response.value), "annotations": []}
        items.append(
            {
                "id": f"msg_{call.number}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for one in calls:
        items.append(
            {
                "id": f"fc_{one.id}",
                "type": "function_call",
                "call_id": one.id,
                "name": one.name,
                "arguments": one.arguments,
                "status": "completed",
            }
        )
    return items


def _answer_responses(call: BridgeCall, response: Response) -> dict[str, Any]:
    usage = _get_usage(response)
    return {
        "id": f"resp_{call.number}",
        "object": "response",
        "created_at": 0,
        "model": call.model,
        "status": "incomplete" if response.finish == "length" else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if response.finish == "length" else None,
        "error": None,
        "output": _responses_items(call, response),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }


def _stream_responses(call: BridgeCall, response: Response) -> Iterator[Event]:
    whole = _answer_responses(call, response)
    number = 0

    def event(kind: str, **more: Any) -> Event:
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number - 1, **more}

    yield event("response.created", response={**whole, "status": "in_progress", "output": []})
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        is_text = item["type"] == "message"
        empty = {**item, "status": "in_progress", **({"content": []} if is_text else {"arguments": ""})}
        yield event("response.output_item.added", output_index=index, item=empty)
        if is_text:
            (part,) = item["content"]
            place["content_index"] = 0
            yield event("response.content_part.added", **place, part={**part, "text": ""})
            yield event("response.output_text.delta", **place, delta=part["text"], logprobs=[])
            yield event("response.output_text.done", **place, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **place, part=part)
        else:
            yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield event("response.function_call_arguments.done", **place, **done)
        yield event("response.output_item.done", output_index=index, item=item)
    end = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    yield event(end, response=whole)


# --- messages ------------------------------------------------------------------------------------------------------


def _parse_messages(body: Mapping[str, Any]) -> BridgeCall:
    messages: list[Message] = []
    if system := _read_text(body.get("system"), "`system`"):
        messages.append(Message("system", (Text(system),)))
    names: dict[str, str] = {}
    for message in _require_list(body, "messages"):
        messages += _parse_anthropic_message(message, names)
    fields = {
        "stop_sequences": "until",
        "max_tokens": "max_gen_toks",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
    }
    for entry in body.get("tools") or ():
        if not isinstance(entry, Mapping) or entry.get("type") not in (None, "custom"):
            raise BridgeRequestError(
                "tools of the service are not supported; define the tool with an `input_schema`"
            )
    choice = body.get("tool_choice") or {}
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    chosen = {"any": "required", "none": "none"}.get(str(kind), "auto")
    disabled = choice.get("disable_parallel_tool_use") if isinstance(choice, Mapping) else None
    return BridgeCall(
        prompt=_build_prompt(messages),
        settings=_read_settings(body, fields),
        tools=_make_tools(
            body.get("tools") or (),
            "input_schema",
            str(choice.get("name")) if kind == "tool" else chosen,
            None if disabled is None else not disabled,
        ),
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
    )


def _parse_anthropic_message(message: Any, names: dict[str, str]) -> list[Message]:
    if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant"):
        raise BridgeRequestError("a message must be an object with the role `user` or `assistant`")
    content = message.get("content")
    if isinstance(content, str):
        return [Message(message["role"], (Text(content),))]
    if not isinstance(content, list):
        raise BridgeRequestError("`content` must be a text or a list of blocks")
    results: list[Message] = []
    parts: list[Part] = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_result":
            identifier = str(block.get("tool_use_id") or "")
            text = _read_text(block.get("content"), "`tool_result`")
            results.append(Message("tool", (ToolResult(text, identifier, names.get(identifier, "")),)))
        elif kind == "tool_use":
            names[str(block.get("id"))] = str(block.get("name"))
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            parts.append(ToolCall(str(block.get("name")), arguments, str(block.get("id"))))
        elif kind == "image" and message["role"] == "user":
            parts.append(_read_image(block, "`content`"))
        elif text := _read_text([block], "`content`"):
            parts.append(Text(text))
    return [*results, *([Message(message["role"], tuple(parts))] if parts or not results else [])]


_ANTHROPIC_STOP = {"length": "max_tokens", "refused": "refusal"}


def _answer_messages(call: BridgeCall, response: Response) -> dict[str, Any]:
    calls = _name_calls(call, response)
    content: list[dict[str, Any]] = []
    if response.value or not calls:
        content.append({"type": "text", "text": str(response.value)})
    for one in calls:
        values = one.values
        given = values if values is not None else {"malformed_arguments": one.arguments}
        content.append({"type": "tool_use", "id": one.id, "name": one.name, "input": given})
    usage = _get_usage(response)
    return {
        "id": f"msg_{call.number}",
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": content,
        "stop_reason": "tool_use" if calls else _ANTHROPIC_STOP.get(response.finish, "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
    }


def _stream_messages(call: BridgeCall, response: Response) -> Iterator[Event]:
    whole = _answer_messages(call, response)

    def event(kind: str, **more: Any) -> Event:
        return kind, {"type": kind, **more}

    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 0}}
    yield event("message_start", message=start)
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            text = json.dumps(block["input"], ensure_ascii=False)
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": text}
        yield event("content_block_start", index=index, content_block=empty)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage=whole["usage"])
    yield event("message_stop")


PROTOCOLS: Mapping[str, BridgeProtocol] = {
    "/chat/completions": BridgeProtocol(_parse_chat, _answer_chat, _stream_chat),
    "/responses": BridgeProtocol(_parse_responses, _answer_responses, _stream_responses),
    "/messages": BridgeProtocol(_parse_messages, _answer_messages, _stream_messages),
}
"""The APIs by their path below `/v1`."""
