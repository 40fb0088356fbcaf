"""Build the prompt of an agent from its conversation: as chat messages with tool calls, or as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.agents.solvers import Entry
from assay.core.records.messages import Message, Part, Prompt, Text
from assay.core.records.requests import Generate
from assay.core.records.tools import ToolCall, ToolResult, Tools
from assay.tasks.prompts.tool_prompts import add_tool_description, write_tools_as_text

__all__ = ["adapt_request", "build_prompt", "entries_from_prompt", "join_messages"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def entries_from_prompt(prompt: Prompt, instructions: Sequence[str]) -> list[Entry]:
    """Return the entries of the first prompt; the instructions are added to the system message."""
    system = [message.text for message in prompt.messages if message.role == "system"]
    texts = [text for text in (*system, *instructions) if text]
    entries = [Entry(role="system", text="\n\n".join(texts))] if texts else []
    for message in prompt.messages:
        if message.role != "system" and (message.text.strip() or _has_media(message)):
            entries.append(Entry(role=message.role, text=message.text))
    return entries


def build_prompt(entries: Sequence[Entry], first: Prompt, tools: Tools | None, *, chat: bool) -> Prompt:
    """Return the conversation as a prompt. The media of the first prompt stay in its messages."""
    as_text = tools is not None and bool(tools.syntax)
    media = [message for message in first.messages if _has_media(message)]
    messages = list(_build_messages(entries, media, as_text=as_text or not chat))
    prompt = Prompt(tuple(messages), chat=True)
    if not chat:
        prompt = join_messages(prompt)
    return add_tool_description(prompt, tools) if tools is not None and tools.syntax else prompt


def adapt_request(request: Generate, syntax: str, *, chat: bool = True) -> Generate:
    """Return a request of a program for a model that lacks tools or chat: it gets the tools, or the whole conversation, as text.

    `syntax`: how the model writes calls; empty: in its own format.
    """
    prompt, tools = request.prompt, request.tools
    if syntax:
        tools = None if tools is None else replace(tools, syntax=syntax)
        prompt = write_tools_as_text(prompt, tools, syntax)
    if not chat:
        prompt = join_messages(prompt)
    return request if prompt is request.prompt else replace(request, prompt=prompt, tools=tools)


def join_messages(prompt: Prompt) -> Prompt:
    """Return a conversation as one text, for a model without chat. The media come first."""
    names = {"system": "", "user": "User: ", "assistant": "Assistant: ", "tool": "User: "}
    text = "\n\n".join(f"{names[message.role]}{message.text}" for message in prompt.messages)
    parts = tuple(
        part
        for message in prompt.messages
        for part in message.parts
        if not isinstance(part, (Text, ToolCall, ToolResult))
    )
    return Prompt((Message("user", (*parts, Text(f"{text}\n\nAssistant:"))),))


def _build_messages(
    entries: Sequence[Entry], media: Sequence[Message], *, as_text: bool
) -> Iterator[Message]:
    waiting = list(media)
    results: list[str] = []
    for entry in entries:
        if results and entry.role != "tool":
            yield Message("user", (Text("\n\n".join(results)),))
            results = []
        match entry.role:
            case "tool" if as_text:
                results.append(f"Result of `{entry.name}`:\n{entry.text}")
            case "tool":
                yield Message("tool", (ToolResult(entry.text, entry.call_id, entry.name),))
            case "assistant":
                calls = () if as_text else tuple(map(_to_valid_call, entry.calls))
                parts: tuple[Part, ...] = (Text(entry.text),) if entry.text or not calls else ()
                yield Message("assistant", (*parts, *calls))
            case "system":
                yield Message("system", (Text(entry.text),))
            case _:
                if waiting and waiting[0].text == entry.text:
                    yield waiting.pop(0)
                else:
                    yield Message("user", (Text(entry.text),))
    if results:
        yield Message("user", (Text("\n\n".join(results)),))


def _to_valid_call(call: ToolCall) -> ToolCall:
    """Return a call that every service accepts in the history: malformed ones have no arguments."""
    name = call.name if _NAME.fullmatch(call.name) else "invalid_call"
    return replace(call, name=name, arguments=call.arguments if call.values is not None else "{}")


def _has_media(message: Message) -> bool:
    return any(not isinstance(part, (Text, ToolCall, ToolResult)) for part in message.parts)
