"""Tools and messages with tool calls in the form that OpenAI's protocol and chat templates of `transformers` share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from assay.core.records.messages import Message, Prompt
from assay.core.records.tools import Tool, ToolCall, ToolResult, Tools

__all__ = ["merge_tool_messages", "to_openai_call", "to_openai_tools", "to_template_messages"]


def to_openai_tools(tools: Tools) -> list[dict[str, Any]]:
    """Return the definitions as `{"type": "function", "function": {…}}`."""
    return [{"type": "function", "function": _describe(tool)} for tool in tools.tools]


def _describe(tool: Tool) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": tool.name}
    if tool.description:
        shown["description"] = tool.description
    return {**shown, "parameters": dict(tool.parameters)}


def to_openai_call(call: ToolCall) -> dict[str, Any]:
    """Return a call of an assistant message, with the arguments as text."""
    return {
        "id": call.id or f"call_{call.name}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments or "{}"},
    }


def merge_tool_messages(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with consecutive tool results in one message: some services require all results of a turn together.

    >>> one, other = (Message("tool", (ToolResult(text),)) for text in "ab")
    >>> len(merge_tool_messages([one, other]))
    1
    """
    merged: list[Message] = []
    for message in messages:
        if message.role == "tool" and merged and merged[-1].role == "tool":
            merged[-1] = Message("tool", (*merged[-1].parts, *message.parts))
        else:
            merged.append(message)
    return merged


def to_template_messages(messages: tuple[Message, ...] | Prompt) -> list[dict[str, Any]]:
    """Return text messages for a chat template. Templates expect the arguments of calls as objects."""
    listed = messages.messages if isinstance(messages, Prompt) else messages
    return [entry for message in listed for entry in _to_entries(message)]


def _to_entries(message: Message) -> list[dict[str, Any]]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if results:
        return [
            {"role": "tool", "name": one.name, "tool_call_id": one.call_id, "content": one.content}
            for one in results
        ]
    entry: dict[str, Any] = {"role": message.role, "content": message.text}
    if calls := message.tool_calls:
        entry["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.values or {}},
            }
            for call in calls
        ]
    return [entry]
