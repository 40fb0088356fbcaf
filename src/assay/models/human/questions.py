"""How requests look to a person, and what a typed line means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from assay.core.messages import Media, Prompt, Text
from assay.core.requests import Likelihood, Request
from assay.core.responses import LogProbability

__all__ = [
    "HINT_CHOICE",
    "HINT_TEXT",
    "choices_of",
    "grouped",
    "heading",
    "likelihoods",
    "read_choice",
    "shown",
]

HINT_TEXT = "your answer (a \\ at the end of a line goes on with the next; skip or Ctrl-D leaves it out):"
HINT_CHOICE = "which one? (a number, or a number and how sure you are: 2 80%; skip or Ctrl-D leaves it out):"

_SURE = 1 - 1e-6
"""What a choice without a word about certainty counts as."""

_WIDTH = 78


def grouped(window: Sequence[Request]) -> Iterator[list[Request]]:
    """The requests of a window one question at a time: each text alone, the choices of a document together."""

    def place(request: Request) -> tuple[str, int, bool, int, int]:
        rated = isinstance(request, Likelihood)
        return request.task, request.document, rated, 0 if rated else request.repeat, request.index

    ordered = sorted(window, key=place)
    for (_, _, rated), requests in groupby(ordered, key=lambda request: place(request)[:3]):
        if rated:
            yield list(requests)
        else:
            yield from ([request] for request in requests)


def heading(request: Request) -> str:
    """A line that says what is asked about."""
    repeat = f", once more ({request.repeat + 1})" if request.repeat else ""
    text = f"── {request.task}, document {request.document}{repeat} "
    return "\n" + text.ljust(_WIDTH, "─")


def shown(prompt: Prompt, show: Callable[[Media], str]) -> str:
    """A prompt as text; media as what `show` says of them, the speakers of a conversation before what they say."""
    lines = []
    for message in prompt.messages:
        pieces = [part.text if isinstance(part, Text) else f"[{show(part)}]\n" for part in message.parts]
        said = "".join(pieces)
        lines.append(f"{message.role}: {said}" if prompt.chat else said)
    return "\n".join(lines)


def choices_of(requests: Sequence[Likelihood], show: Callable[[Media], str]) -> tuple[str, list[str]]:
    """(what is asked, the choices): continuations of one prompt, prompts with one continuation, or whole pairs."""
    prompts = {request.prompt.digest: request.prompt for request in requests}
    continuations = {request.continuation for request in requests}
    if len(prompts) == 1:
        return shown(requests[0].prompt, show), [request.continuation.strip() for request in requests]
    if len(continuations) == 1:
        (end,) = continuations
        return f"Which of these goes on with: {end.strip()}", [shown(one.prompt, show) for one in requests]
    return "Which of these is right?", [shown(one.prompt, show) + one.continuation for one in requests]


def read_choice(line: str, count: int) -> tuple[int, float] | None:
    """(place, probability) of a typed line, or None where it makes no sense.

    >>> read_choice("2 80%", 4), read_choice("1", 4)[0], read_choice("5", 4), read_choice("blue", 4)
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


def likelihoods(place: int, sure: float, count: int) -> list[LogProbability]:
    """The choice as log-probabilities: as likely as the person is sure, the others share the rest alike.

    >>> [round(math.exp(value.total), 3) for value in likelihoods(1, 0.8, 3)]
    [0.1, 0.8, 0.1]
    """
    sure = min(sure, _SURE)
    rest = math.log((1 - sure) / (count - 1)) if count > 1 else -math.inf
    return [
        LogProbability(math.log(sure), greedy=True) if at == place else LogProbability(rest)
        for at in range(count)
    ]
