"""Separate a generated text into reasoning, answer and tool calls."""

from __future__ import annotations

from dataclasses import replace

from assay.core.records.tools import ToolCall
from assay.models.reasoning import ReasoningSplitter, SplitText
from assay.models.tool_calls.formats import CallFormat

__all__ = ["separate_calls"]


def separate_calls(
    text: str, splitter: ReasoningSplitter, call_format: CallFormat | None
) -> tuple[SplitText, tuple[ToolCall, ...]]:
    """Return the reasoning and the answer of a text, and its calls. Calls inside the reasoning do not count."""
    if call_format is None:
        return splitter.split(text), ()
    if call_format.reads_raw_text:
        extracted = call_format.extract(text)
        return splitter.split(extracted.text), extracted.calls
    found = splitter.split(text)
    extracted = call_format.extract(found.answer)
    return replace(found, answer=extracted.text), extracted.calls
