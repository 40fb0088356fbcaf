"""Format requests for a person and parse typed lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from assay.core.records.messages import Audio, Image, Media, Part, Prompt, Text, Video
from assay.core.records.requests import Likelihood, Request
from assay.core.records.responses import LogProbability
from assay.core.records.tools import ToolCall

__all__ = [
    "HINT_CHOICE",
    "HINT_TEXT",
    "format_choices",
    "group_requests",
    "format_heading",
    "to_log_probabilities",
    "parse_choice",
    "format_prompt",
]

HINT_TEXT = "your answer (end a line with \\ to continue on the next; skip or Ctrl-D skips the question):"
HINT_CHOICE = (
    "which one? (a number, optionally with your confidence: 2 80%; skip or Ctrl-D skips the question):"
)

_SURE = 1 - 1e-6
"""Confidence in a choice if the person types none."""

_WIDTH = 78


def group_requests(window: Sequence[Request]) -> Iterator[list[Request]]:
    """Yield the requests of each question: one generation, or all choices of a document."""

    def place(request: Request) -> tuple[str, int, bool, int, int]:
        rated = isinstance(request, Likelihood)
        return request.task, request.document, rated, 0 if rated else request.repeat, request.index

    ordered = sorted(window, key=place)
    for (_, _, rated), requests in groupby(ordered, key=lambda request: place(request)[:3]):
        if rated:
            yield list(requests)
        else:
            yield from ([request] for request in requests)


def format_heading(request: Request) -> str:
    """Return a line with the task and the number of the document."""
    repeat = f", repeat {request.repeat + 1}" if request.repeat else ""
    text = f"── {request.task}, document {request.document}{repeat} "
    return "\n" + text.ljust(_WIDTH, "─")


def format_part(part: Part, show: Callable[[Media], str]) -> str:
    """Return a part of a message as text; `show` returns the text for a media part."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Image | Audio | Video):
        return f"[{show(part)}]\n"
    return f"{part.name}({part.arguments})\n" if isinstance(part, ToolCall) else part.content


def format_prompt(prompt: Prompt, show: Callable[[Media], str]) -> str:
    """Return a prompt as text, with roles for chats; `show` returns the text for a media part."""
    lines = []
    for message in prompt.messages:
        text = "".join(format_part(part, show) for part in message.parts)
        lines.append(f"{message.role}: {text}" if prompt.chat else text)
    return "\n".join(lines)


def format_choices(requests: Sequence[Likelihood], show: Callable[[Media], str]) -> tuple[str, list[str]]:
    """Return the question and the choices: continuations of one prompt, prompts with one continuation, or pairs."""
    prompts = {request.prompt.digest: request.prompt for request in requests}
    continuations = {request.continuation for request in requests}
    if len(prompts) == 1:
        return format_prompt(requests[0].prompt, show), [request.continuation.strip() for request in requests]
    if len(continuations) == 1:
        (end,) = continuations
        return f"Which of these continues with: {end.strip()}", [
            format_prompt(one.prompt, show) for one in requests
        ]
    return "Which of these is right?", [
        format_prompt(one.prompt, show) + one.continuation for one in requests
    ]


def parse_choice(line: str, count: int) -> tuple[int, float] | None:
    """Parse a typed line to (index, confidence); return None if it is invalid.

    >>> parse_choice("2 80%", 4), parse_choice("1", 4)[0], parse_choice("5", 4), parse_choice("blue", 4)
    ((1, 0.8), 0, None, None)
    """
    words = line.replace("%", " ").split()
    try:
        place = int(words[0]) - 1
        sure = float(words[1]) / 100 if len(words) > 1 else _SURE
    except (IndexError, ValueError):
        return None
    if len(words) > 2 or not 0 <= place < count or not 0 < sure <= 1:
        return None
    return place, sure


def to_log_probabilities(place: int, sure: float, count: int) -> list[LogProbability]:
    """Return the log-probabilities of all choices: the confidence for the chosen one, equal shares for the others.

    >>> [round(math.exp(value.total), 3) for value in to_log_probabilities(1, 0.8, 3)]
    [0.1, 0.8, 0.1]
    """
    sure = min(sure, _SURE)
    rest = math.log((1 - sure) / (count - 1)) if count > 1 else -math.inf
    return [
        LogProbability(math.log(sure), greedy=True) if index == place else LogProbability(rest)
        for index in range(count)
    ]
