"""A document as one conversation: prompts and responses round by round, with thinking and tool calls as separate parts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.records.responses import Response
from assay.core.records.tools import ToolCall
from assay.store.documents.details import RequestRecord
from assay.viewer.documents.prompts import PromptMessage

__all__ = [
    "ConversationRound",
    "ResponseView",
    "TextSegment",
    "build_agent_rounds",
    "build_rounds",
    "split_segments",
]

Span = tuple[int, int]
"""Start and end of a part of a text."""

_THINKING = ("think", "thinking", "thought", "analysis", "reasoning")
_TOOL_CALLS = ("tool_call", "function_call", "tool_calls")
_TOOL_RESULTS = ("tool_response", "tool_result", "observation")
_TAGS = re.compile(
    rf"<(?P<tag>{'|'.join((*_THINKING, *_TOOL_CALLS, *_TOOL_RESULTS))})>(?P<body>.*?)(?:</(?P=tag)>|\Z)",
    re.DOTALL,
)
_END_OF_THINKING = re.compile(rf"</(?:{'|'.join(_THINKING)})>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSegment:
    """A part of a text: `text`, `thinking`, `tool call` or `tool result`."""

    kind: str
    pieces: tuple[tuple[str, bool], ...]
    """(text, whether a filter extracted it)"""

    title: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(text for text, _ in self.pieces)

    @property
    def is_marked(self) -> bool:
        """Whether a filter extracted a part of it."""
        return any(marked for _, marked in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseView:
    """One response of a round, in parts."""

    asked: RequestRecord
    number: int
    segments: tuple[TextSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRound:
    """One prompt and the responses to it."""

    number: int
    title: str
    messages: tuple[PromptMessage, ...]
    responses: tuple[ResponseView, ...]
    has_choices: bool = False


def build_rounds(
    prompts: Sequence[Sequence[PromptMessage]],
    requests: Sequence[RequestRecord],
    spans: Mapping[int, Sequence[Span]],
    *,
    is_dialogue: bool,
) -> list[ConversationRound]:
    """Return the rounds of a document; `spans`: place among the requests -> extracted parts of its response.

    A prompt that starts with the messages of the prompt before it shows only the new ones.
    """
    by_prompt: dict[int, list[tuple[int, RequestRecord]]] = {index: [] for index in range(len(prompts))}
    for place, request in enumerate(requests):
        by_prompt.setdefault(request.prompt, []).append((place, request))
    rounds = []
    number = 0
    for index, listed in by_prompt.items():
        messages = tuple(prompts[index]) if index < len(prompts) else ()
        before = tuple(prompts[index - 1]) if 0 < index <= len(prompts) else ()
        if before and len(messages) > len(before) and messages[: len(before)] == before:
            messages = messages[len(before) :]
            if messages[0].role == "assistant" and len(messages) > 1:
                messages = messages[1:]  # the response of the round before
        generated = [(place, one) for place, one in listed if one.kind != "likelihood"]
        views = []
        for place, one in generated:
            number += 1
            found = spans.get(place, ())
            views.append(
                ResponseView(asked=one, number=number, segments=tuple(_split_response(one.response, found)))
            )
        title = "" if len(by_prompt) < 2 else f"round {index + 1}" if is_dialogue else f"prompt {index + 1}"
        rounds.append(
            ConversationRound(
                number=index,
                title=title,
                messages=messages,
                responses=tuple(views),
                has_choices=len(generated) < len(listed),
            )
        )
    return rounds


def build_agent_rounds(
    prompts: Sequence[Sequence[PromptMessage]],
    requests: Sequence[RequestRecord],
    spans: Mapping[int, Sequence[Span]],
) -> list[ConversationRound]:
    """Return the rounds of a document with agents: the conversation of each repeat after the other."""
    repeats = sorted({request.repeat for request in requests})
    if len(repeats) < 2:
        return build_rounds(prompts, requests, spans, is_dialogue=True)
    found: list[ConversationRound] = []
    start: tuple[PromptMessage, ...] = ()
    for repeat in repeats:
        placed = [(place, one) for place, one in enumerate(requests) if one.repeat == repeat]
        placed.sort(key=lambda pair: pair[1].number)
        own = [prompts[one.prompt] if one.prompt < len(prompts) else () for _, one in placed]
        asked = [replace(one, prompt=index) for index, (_, one) in enumerate(placed)]
        parts = {index: spans[place] for index, (place, _) in enumerate(placed) if place in spans}
        for index, one in enumerate(build_rounds(own, asked, parts, is_dialogue=True)):
            title = f"repeat {repeat + 1}" + (f", round {index + 1}" if len(placed) > 1 else "")
            if index == 0 and start and one.messages == start:
                one = replace(one, messages=())
                title += f", with the prompt of repeat {repeats[0] + 1}"
            start = start or one.messages
            found.append(replace(one, number=len(found), title=title))
    return found


def _split_response(response: Response | None, spans: Sequence[Span]) -> list[TextSegment]:
    if response is None or not isinstance(response.value, str):
        return []
    if response.tool_calls and _is_json(response.value):  # the calls are the whole text
        names = ", ".join(dict.fromkeys(call.name or call.problem for call in response.tool_calls))
        segments: list[TextSegment] = []
        _add_segment(segments, "tool call", response.value, 0, len(response.value), spans)
        segments = [replace(one, title=names) for one in segments]
        calls: tuple[ToolCall, ...] = ()
    else:
        segments, calls = split_segments(response.value, spans), response.tool_calls
    if response.reasoning:
        segments.insert(0, TextSegment(kind="thinking", pieces=((response.reasoning, False),)))
    for call in calls:
        title = f"{call.name}: {call.problem}" if call.name and call.problem else call.name or call.problem
        segments.append(TextSegment(kind="tool call", pieces=((call.arguments, False),), title=title))
    return segments


def split_segments(text: str, spans: Sequence[Span] = ()) -> list[TextSegment]:
    """Split a text into thinking, tool calls and the rest.

    >>> [(one.kind, one.text) for one in split_segments("<think>hm</think>The answer is 4.")]
    [('thinking', 'hm'), ('text', 'The answer is 4.')]
    """
    segments: list[TextSegment] = []
    at = 0
    end = _END_OF_THINKING.search(text)
    if end is not None and text.find(f"<{end[0][2:]}", 0, end.start()) < 0:
        _add_segment(segments, "thinking", text, 0, end.start(), spans)  # the prompt opened the tag
        at = end.end()
    for found in _TAGS.finditer(text, at):
        if found.start() < at:
            continue
        _add_segment(segments, "text", text, at, found.start(), spans)
        tag = found["tag"]
        kind = "thinking" if tag in _THINKING else "tool call" if tag in _TOOL_CALLS else "tool result"
        _add_segment(segments, kind, text, found.start("body"), found.end("body"), spans)
        at = found.end()
    _add_segment(segments, "text", text, at, len(text), spans)
    return segments


def _add_segment(
    segments: list[TextSegment], kind: str, text: str, start: int, end: int, spans: Sequence[Span]
) -> None:
    if not text[start:end].strip():
        return
    if kind == "text" and segments:
        start += len(text[start:end]) - len(text[start:end].lstrip("\n"))
    pieces: list[tuple[str, bool]] = []
    at = start
    for first, last in sorted(spans):
        first, last = max(first, at), min(last, end)
        if first < last:
            pieces += [(text[at:first], False), (text[first:last], True)]
            at = last
    pieces.append((text[at:end], False))
    title = _name_tool(text[start:end]) if kind == "tool call" else ""
    segments.append(TextSegment(kind=kind, pieces=tuple(piece for piece in pieces if piece[0]), title=title))


def _is_json(text: str) -> bool:
    """Whether a text is a JSON array or object."""
    try:
        return isinstance(json.loads(text), (list, dict))
    except ValueError:
        return False


def _name_tool(call: str) -> str:
    """Return the name of the function in a tool call; empty if it is not JSON."""
    try:
        content: Any = json.loads(call)
    except ValueError:
        return ""
    content = content[0] if isinstance(content, list) and content else content
    return str(content.get("name", "")) if isinstance(content, dict) else ""
