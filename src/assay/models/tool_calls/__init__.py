"""Tool calls of models: the syntax in which families of models write them, and messages with tools for chat templates."""

from __future__ import annotations

from assay.models.tool_calls.formats import (
    CallFormat,
    detect_call_format,
    extract_known_calls,
    supports_tools,
)
from assay.models.tool_calls.messages import merge_tool_messages, to_openai_tools, to_template_messages

__all__ = [
    "CallFormat",
    "detect_call_format",
    "extract_known_calls",
    "merge_tool_messages",
    "supports_tools",
    "to_openai_tools",
    "to_template_messages",
]
