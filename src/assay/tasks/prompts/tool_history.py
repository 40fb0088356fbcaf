"""Tool calls and results in the messages of a prompt: link results to calls, and write both as text.

Services match a result to its call by an id or by the name of the function. Models without tool support get the history as
text, in the syntax in which they write calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.core.records.messages import Message, Part, Prompt, Text
from assay.core.records.tools import ToolCall, ToolResult

__all__ = ["has_tool_history", "link_tool_results", "write_tool_history"]

_CALL_ID = "call{:05d}"
"""Nine letters and digits: the only form that the templates and the service of Mistral accept."""


def has_tool_history(prompt: Prompt) -> bool:
    """Whether the messages contain tool calls or results."""
    return any(
        isinstance(part, (ToolCall, ToolResult)) for message in prompt.messages for part in message.parts
    )


def link_tool_results(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with an id for every call, and the id and name of its call for every result.

    A result without an id belongs to the first call that has no result yet; if the result has a name, to the first such call
    of that function. A result with an id that no call has belongs to the first such call without an id, which gets the id of
    the result. A result without a call stays unchanged.
    """
    listed = list(messages)
    given = {call.id for message in listed for call in message.tool_calls}
    given |= {part.call_id for message in listed for part in message.parts if isinstance(part, ToolResult)}
    ids = (name for number in range(1, 100_000) if (name := _CALL_ID.format(number)) not in given)
    known: dict[str, ToolCall] = {}
    waiting: list[ToolCall] = []
    renamed: dict[str, str] = {}
    """The id of a call that had none -> the id in its result; empty while it has no such result."""

    linked = []
    for message in listed:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                if not part.id:
                    part = replace(part, id=next(ids))
                    renamed[part.id] = ""
                known[part.id] = part
                waiting.append(part)
            elif isinstance(part, ToolResult):
                call = known.get(part.call_id)
                if call is None:
                    free = [one for one in waiting if one.id in renamed] if part.call_id else waiting
                    call = _find_waiting(free, part.name)
                if call is not None:
                    waiting = [one for one in waiting if one is not call]
                    if part.call_id and call.id != part.call_id:
                        renamed[call.id] = part.call_id
                        known[part.call_id] = call = replace(call, id=part.call_id)
                    part = replace(part, call_id=call.id, name=part.name or call.name)
            parts.append(part)
        linked.append(Message(message.role, tuple(parts)))
    return (
        tuple(_rename_calls(message, renamed) for message in linked)
        if any(renamed.values())
        else tuple(linked)
    )


def _rename_calls(message: Message, renamed: Mapping[str, str]) -> Message:
    parts = [
        replace(part, id=renamed[part.id]) if isinstance(part, ToolCall) and renamed.get(part.id) else part
        for part in message.parts
    ]
    return Message(message.role, tuple(parts))


def _find_waiting(waiting: Sequence[ToolCall], name: str) -> ToolCall | None:
    return next((call for call in waiting if not name or call.name == name), None)


def write_tool_history(prompt: Prompt, syntax: str) -> Prompt:
    """Return the prompt with its tool calls and results as text.

    Results become messages of the user. They join a message of the user that follows, because many chat templates require
    that user and assistant alternate.
    """
    messages: list[Message] = []
    after_result = False
    for message in prompt.messages:
        if any(isinstance(part, ToolResult) for part in message.parts):
            text = "\n".join(_write_result(part) for part in message.parts if isinstance(part, ToolResult))
            separator, shown = "\n", Message("user", (Text(text),))
            is_result = True
        else:
            separator, shown = "\n\n", _write_calls(message, syntax)
            is_result = False
        if after_result and shown.role == "user":
            previous = messages.pop()
            shown = Message("user", (*previous.parts, Text(separator), *shown.parts))
        messages.append(shown)
        after_result = is_result
    return Prompt(tuple(messages), chat=prompt.chat)


def _write_result(result: ToolResult) -> str:
    return f"Result of `{result.name}`: {result.content}" if result.name else f"Result: {result.content}"


def _write_calls(message: Message, syntax: str) -> Message:
    if not (calls := message.tool_calls):
        return message
    parts = [part for part in message.parts if not isinstance(part, ToolCall)]
    text = _WRITERS[syntax](calls)
    return Message(message.role, (*parts, Text(f"\n{text}" if parts else text)))


def _write_json(calls: Sequence[ToolCall]) -> str:
    listed = [{"name": call.name, "arguments": _get_arguments(call)} for call in calls]
    return json.dumps(listed, ensure_ascii=False)


def _get_arguments(call: ToolCall) -> Any:
    return call.arguments if call.values is None else call.values


def _write_python(calls: Sequence[ToolCall]) -> str:
    written = []
    for call in calls:
        values = call.values
        arguments = (
            call.arguments
            if values is None
            else ", ".join(f"{name}={value!r}" for name, value in values.items())
        )
        written.append(f"{call.name}({arguments})")
    return f"[{', '.join(written)}]"


def _write_xml(calls: Sequence[ToolCall]) -> str:
    return f"<function_calls>{''.join(map(_write_invocation, calls))}</function_calls>"


def _write_invocation(call: ToolCall) -> str:
    from xml.sax.saxutils import escape, quoteattr  # imports urllib.request

    values = call.values
    body = (
        escape(call.arguments)
        if values is None
        else "".join(
            f"<parameter name={quoteattr(name)}>{escape(_write_value(value))}</parameter>"
            for name, value in values.items()
        )
    )
    return f"<invoke name={quoteattr(call.name)}>{body}</invoke>"


def _write_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_WRITERS: Mapping[str, Callable[[Sequence[ToolCall]], str]] = {
    "json": _write_json,
    "python": _write_python,
    "xml": _write_xml,
}
