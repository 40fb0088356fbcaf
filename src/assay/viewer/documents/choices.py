"""The choices of a document with their log probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.core.records.responses import LogProbability
from assay.store.documents.details import RequestRecord

__all__ = ["build_choices", "find_options"]


def build_choices(
    requests: Sequence[RequestRecord], target: Any, fields: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the choices with their log-probabilities and their share of the total probability.

    `fields`: the document, whose list of options tells what a choice such as `A` stands for. `acc` takes the most likely choice, `acc_norm` the most likely one per character.
    """
    known: list[tuple[RequestRecord, LogProbability]] = [
        (one, one.response.value)
        for one in requests
        if one.response is not None and isinstance(one.response.value, LogProbability)
    ]
    totals = [value.total for _, value in known if math.isfinite(value.total)]
    top = max(totals, default=0.0)
    weights = [math.exp(value.total - top) if math.isfinite(value.total) else 0.0 for _, value in known]
    whole = sum(weights) or 1.0
    per_character = [_compute_per_character(one, value.total) for one, value in known]
    best = max(range(len(known)), key=lambda index: weights[index], default=-1)
    best_norm = max(range(len(known)), key=lambda index: per_character[index], default=-1)
    options = find_options([one.continuation for one, _ in known], fields or {})
    return [
        {
            "option": options[index] if options else "",
            "number": one.number,
            "prompt": one.prompt,
            "text": one.continuation,
            "total": value.total,
            "per_character": per_character[index],
            "greedy": value.greedy,
            "share": 100 * weights[index] / whole,
            "best": index == best,
            "best_norm": index == best_norm,
            "is_target": _is_target(one, target),
        }
        for index, (one, value) in enumerate(known)
    ]


_LETTER = re.compile(r"\(?([A-Za-z]|[0-9]{1,2})[).]?")


def find_options(choices: Sequence[str], fields: Mapping[str, Any]) -> list[str]:
    """Return the options of a document whose choices are their letters; empty if it is not clear which they are.

    >>> find_options([" A", " B"], {"question": "Which?", "choices": ["red", "blue"]})
    ['red', 'blue']
    """
    if len(choices) < 2 or not all(_LETTER.fullmatch(choice.strip()) for choice in choices):
        return []
    lists = [value.get("text") if isinstance(value, Mapping) else value for value in fields.values()]
    found = [
        [" ".join(option.split()) for option in listed]
        for listed in lists
        if isinstance(listed, (list, tuple))
        and len(listed) == len(choices)
        and all(isinstance(option, str) for option in listed)
    ]
    return found[0] if len(found) == 1 and not all(map(_LETTER.fullmatch, found[0])) else []


def _compute_per_character(request: RequestRecord, total: float) -> float:
    size = len(request.continuation.removeprefix(" ")) or 1  # without the usual delimiter, as `acc_norm`
    return total / size if math.isfinite(total) else -math.inf


def _is_target(request: RequestRecord, target: Any) -> bool:
    if isinstance(target, bool):
        return False
    if isinstance(target, int):
        return request.number == target
    if isinstance(target, str) and target.strip().isdecimal():
        return request.number == int(target)
    return isinstance(target, str) and request.continuation.strip() == target.strip()
