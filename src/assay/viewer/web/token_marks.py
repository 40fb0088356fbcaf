"""Tokens as a page shows them: the text they wrote, each marked by how likely it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.core.responses import Tokens
from assay.store.one_document import Asked

__all__ = ["LEVELS", "ShownTokens", "TokenMark", "shown_tokens", "why_unknown"]

_MOST = 2_000
"""Tokens of one answer that a page shows; the export has all of them."""

LEVELS = (
    (0.9, "90 % and more"),
    (0.5, "50 to 90 %"),
    (0.1, "10 to 50 %"),
    (0.01, "1 to 10 %"),
    (0.001, "0.1 to 1 %"),
    (0.0, "below 0.1 %"),
)
"""The least probability of each level, the surest first, and what a legend says of it."""

_VISIBLE = {"\n": "↵\n", "\t": "⇥\t", "\r": "␍"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMark:
    """One token: what it wrote, its level among `LEVELS`, its number in words."""

    text: str
    level: int
    logprob: float
    chance: str
    """Its probability, in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTokens:
    """The tokens of one answer, and how many more it has than are shown."""

    title: str
    marks: tuple[TokenMark, ...]
    more: int = 0


def shown_tokens(asked: Sequence[Asked]) -> list[ShownTokens]:
    """The tokens of everything that was asked about a document, where they are known."""
    found = []
    for number, one in enumerate(asked):
        if one.response is not None and one.response.tokens is not None:
            title = f"choice {one.number}" if one.kind == "likelihood" else f"response {number + 1}"
            found.append(_shown(one.response.tokens, title))
    return found


def why_unknown(asked: Sequence[Asked], *, wanted: bool) -> str:
    """Why there are no tokens to show; empty where there are, or where nothing was answered."""
    answered = [one.response for one in asked if one.response is not None]
    if not answered or any(response.tokens is not None for response in answered):
        return ""
    if wanted:
        return "The log-probabilities of its tokens are not known: the model did not tell them."
    return "The log-probabilities of its tokens are not known: the run did not keep them (--token_logprobs does)."


def _shown(tokens: Tokens, title: str) -> ShownTokens:
    pairs = list(zip(tokens.pieces[:_MOST], tokens.logprobs[:_MOST], strict=True))
    marks = tuple(_mark(piece, logprob) for piece, logprob in pairs)
    return ShownTokens(title=title, marks=marks, more=len(tokens.pieces) - len(marks))


def _mark(piece: str, logprob: float) -> TokenMark:
    chance = 0.0 if math.isnan(logprob) else math.exp(min(logprob, 0.0))
    level = next(at for at, (least, _) in enumerate(LEVELS) if chance >= least)
    text = "".join(_VISIBLE.get(character, character) for character in piece) or "∅"
    return TokenMark(text=text, level=level, logprob=logprob, chance=_percent(chance))


def _percent(chance: float) -> str:
    """A probability with as many digits as say something.

    >>> _percent(0.98765), _percent(0.0123), _percent(0.0000123)
    ('98.8 %', '1.2 %', '0.0012 %')
    """
    if chance >= 0.001:
        return f"{100 * chance:.1f} %"
    return f"{100 * chance:.2g} %"
