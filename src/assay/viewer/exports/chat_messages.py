"""The conversation of a stored request, for formats that consist of chat messages: prompt and response."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.viewer.documents.prompts import parse_stored_messages

__all__ = ["ChatMessage", "build_reply", "read_conversation", "read_prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a conversation."""

    role: str
    parts: Sequence[Mapping[str, Any]] = ()
    """Text and media in order, as the journal stores them: `{"type": "text", "text": …}`, `{"type": "image", "digest": …}`."""

    calls: Sequence[Mapping[str, Any]] = ()
    """The tool calls of an assistant: `id`, `name`, and `arguments` by name."""

    call_id: str = ""
    """The call that a message with the role `tool` answers."""

    tool: str = ""
    reasoning: str = ""

    @property
    def text(self) -> str:
        """The text of the message; media as a placeholder."""
        return "".join(
            str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]"
            for part in self.parts
        )


@dataclass(slots=True)
class _CallIds:
    """Gives each call an id. Models without ids for calls answer them in order."""

    count: int = 0
    open: deque[str] = field(default_factory=deque)

    def add(self, given: Any) -> str:
        self.count += 1
        self.open.append(str(given or f"call_{self.count}"))
        return self.open[-1]

    def take(self, given: Any) -> str:
        if given:
            return str(given)
        return self.open.popleft() if self.open else f"call_{self.count}"


def read_prompt(prompt: str) -> list[ChatMessage]:
    """Return the messages of a stored prompt; a plain text is one message of the user."""
    return _read_prompt(prompt, _CallIds())


def read_conversation(request: Mapping[str, Any]) -> list[ChatMessage]:
    """Return the prompt of a generation request and, if there is a response, the message of the assistant."""
    ids = _CallIds()
    messages = _read_prompt(request["prompt"], ids)
    return messages if request.get("response") is None else [*messages, build_reply(request, ids)]


def build_reply(request: Mapping[str, Any], ids: _CallIds | None = None) -> ChatMessage:
    """Return the message of the assistant in the response to a request."""
    numbers = ids or _CallIds()
    return ChatMessage(
        role="assistant",
        parts=[{"type": "text", "text": request["response"]}] if request.get("response") else [],
        calls=[_read_call(call, numbers) for call in request.get("tool_calls") or ()],
        reasoning=request.get("reasoning") or "",
    )


def _read_call(call: Mapping[str, Any], ids: _CallIds) -> dict[str, Any]:
    """Return a call with its arguments by name; arguments that are not a JSON object are kept as text."""
    text = str(call.get("arguments") or "{}")
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    known = isinstance(arguments, dict)
    return {
        "id": ids.add(call.get("id")),
        "name": str(call.get("name") or ""),
        "arguments": arguments if known else {"text": text},
        **({} if known else {"problem": "the arguments are not a JSON object"}),
    }


def _read_prompt(prompt: str, ids: _CallIds) -> list[ChatMessage]:
    stored = parse_stored_messages(prompt)
    if stored is None:
        return [ChatMessage(role="user", parts=[{"type": "text", "text": prompt}])]
    messages = []
    for message in stored:
        content = message.get("content")
        listed = content if isinstance(content, list) else [{"type": "text", "text": str(content or "")}]
        results = [part for part in listed if part.get("type") == "tool_result"]
        for part in results:
            texts = [{"type": "text", "text": str(part.get("content", ""))}]
            answered = ids.take(part.get("call_id"))
            messages.append(
                ChatMessage(role="tool", parts=texts, call_id=answered, tool=str(part.get("name") or ""))
            )
        calls = [_read_call(part, ids) for part in listed if part.get("type") == "tool_call"]
        parts = [part for part in listed if part.get("type") not in ("tool_result", "tool_call")]
        if parts or calls or not results:
            messages.append(ChatMessage(role=str(message.get("role") or "user"), parts=parts, calls=calls))
    return messages
