"""Prompts of other programs: texts, or lists of messages with various names for roles and contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from assay.core.records.messages import Message, Prompt, Text

__all__ = ["build_prompt"]

Role = Literal["system", "user", "assistant"]

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "bot": "assistant",
    "gpt": "assistant",
    "model": "assistant",
}
_CONTENT_KEYS = ("content", "prompt", "value", "text")


def build_prompt(value: Any) -> Prompt:
    """Return a prompt from a text or a list of messages; media in messages become placeholders such as `[image]`.

    >>> build_prompt([{"role": "HUMAN", "prompt": "2+2?"}, {"role": "BOT", "prompt": "4"}]).messages[1].role
    'assistant'
    """
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return Prompt(tuple(_build_message(one) for one in value), chat=True)
    if isinstance(value, list) and len(value) == 1:
        return build_prompt(value[0])
    return Prompt.of_text(value if isinstance(value, str) else "" if value is None else str(value))


def _build_message(message: Mapping[str, Any]) -> Message:
    role = _ROLES.get(str(message.get("role") or message.get("from") or "").lower(), "user")
    content = next((message[key] for key in _CONTENT_KEYS if message.get(key) is not None), "")
    return Message(role, (Text(_join_parts(content)),))


def _join_parts(content: Any) -> str:
    if not isinstance(content, list):
        return str(content)
    return "".join(
        str(part.get("text") or f"[{str(part.get('type') or 'media').removesuffix('_url')}]")
        if isinstance(part, Mapping)
        else str(part)
        for part in content
    )
