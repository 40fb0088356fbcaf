"""Deterministic model responses: a function of the request's key, so that any replay can repeat them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

__all__ = ["MAX_RESPONSES", "cut_at_stops", "draw_loglikelihood", "draw_rolling", "draw_texts"]

MAX_RESPONSES = 8
"""Repeats beyond this number get the same responses again."""

_WRONG_ANSWERS = (
    "",
    "I do not know.",
    "42",
    "(B)",
    "no",
    "The answer is (C).",
    "#### -7",
    "yes. Yes, 3 of them",
)
_TEMPLATES = (
    "{gold}",
    " {gold}\n",
    "The answer is {gold}.",
    "Let me think. 1 + 1 = 2.\nThe final answer is: {gold}",
    "Final Answer: The final answer is ${gold}$. I hope it is correct. \\boxed{{{gold}}}",
    "({gold})",
    "#### {gold}",
    "{gold} {gold}",
    "<answer>{gold}</answer>",
)


def _digest(key: str, salt: str = "") -> bytes:
    return hashlib.sha256(f"{key}{salt}".encode("ascii")).digest()


def draw_loglikelihood(key: str) -> list[Any]:
    """Return `[log probability, is_greedy]` for a request.

    >>> draw_loglikelihood("0" * 64)
    [-17.4357, True]
    """
    digest = _digest(key)
    return [-round(0.01 + int.from_bytes(digest[:5], "big") % 200000 / 10000, 4), bool(digest[5] & 1)]


def draw_rolling(key: str) -> float:
    """Return the log probability of a whole text."""
    return -round(1 + int.from_bytes(_digest(key)[:5], "big") % 3000000 / 10000, 4)


def draw_texts(key: str, count: int, golds: Sequence[str], stops: Sequence[str]) -> list[str]:
    """Return the generated texts for `count` repeats: about half contain a gold answer, none contains a stop string."""
    texts = []
    for repeat in range(min(count, MAX_RESPONSES)):
        digest = _digest(key, f":{repeat}")
        if golds and digest[0] < 150:
            template = _TEMPLATES[digest[1] % len(_TEMPLATES)]
            text = template.format(gold=golds[digest[2] % len(golds)])
        else:
            text = _WRONG_ANSWERS[digest[1] % len(_WRONG_ANSWERS)]
        texts.append(cut_at_stops(text, stops))
    return texts


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """Cut a text at the first stop string.

    >>> cut_at_stops("one two three", ["three", " two"])
    'one'
    """
    for stop in stops:
        if stop:
            text = text.partition(stop)[0]
    return text
