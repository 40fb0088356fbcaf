"""The tokens of responses, each with its probability and a level for its colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.core.records.responses import Tokens
from assay.store.documents.details import RequestRecord

__all__ = [
    "PROBABILITY_LEVELS",
    "ResponseTokens",
    "TokenProbability",
    "build_response_tokens",
    "explain_missing_tokens",
]

_MAX_TOKENS = 2_000
"""The number of tokens of one response on a page; exports have all of them."""

PROBABILITY_LEVELS = (
    (0.9, "90 % or more"),
    (0.5, "50 to 90 %"),
    (0.1, "10 to 50 %"),
    (0.01, "1 to 10 %"),
    (0.001, "0.1 to 1 %"),
    (0.0, "less than 0.1 %"),
)
"""(minimum probability, label) of each level, the most likely first."""

_VISIBLE_CHARACTERS = {"\n": "↵\n", "\t": "⇥\t", "\r": "␍"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenProbability:
    """One token: its text, its level in `PROBABILITY_LEVELS`, its log-probability."""

    text: str
    level: int
    logprob: float
    percent: str
    """The formatted probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTokens:
    """The tokens of one response, and the number of tokens omitted."""

    title: str
    marks: tuple[TokenProbability, ...]
    more: int = 0


def build_response_tokens(requests: Sequence[RequestRecord]) -> list[ResponseTokens]:
    """Return the tokens of each response of a document that has them."""
    found = []
    for number, one in enumerate(requests):
        if one.response is not None and one.response.tokens is not None:
            title = f"choice {one.number}" if one.kind == "likelihood" else f"response {number + 1}"
            found.append(_build_tokens(one.response.tokens, title))
    return found


def explain_missing_tokens(requests: Sequence[RequestRecord], *, wanted: bool) -> str:
    """Return why there are no tokens; empty if there are some, or if there is no response."""
    answered = [one.response for one in requests if one.response is not None]
    if not answered or any(response.tokens is not None for response in answered):
        return ""
    if wanted:
        return "No token log-probabilities: the model did not return them."
    return "No token log-probabilities: the run did not store them (use --token_logprobs)."


def _build_tokens(tokens: Tokens, title: str) -> ResponseTokens:
    pairs = list(zip(tokens.pieces[:_MAX_TOKENS], tokens.logprobs[:_MAX_TOKENS], strict=True))
    marks = tuple(_build_token(piece, logprob) for piece, logprob in pairs)
    return ResponseTokens(title=title, marks=marks, more=len(tokens.pieces) - len(marks))


def _build_token(piece: str, logprob: float) -> TokenProbability:
    chance = 0.0 if math.isnan(logprob) else math.exp(min(logprob, 0.0))
    level = next(index for index, (minimum, _) in enumerate(PROBABILITY_LEVELS) if chance >= minimum)
    text = "".join(_VISIBLE_CHARACTERS.get(character, character) for character in piece) or "∅"
    return TokenProbability(text=text, level=level, logprob=logprob, percent=_format_percent(chance))


def _format_percent(chance: float) -> str:
    """Format a probability with significant digits.

    >>> _format_percent(0.98765), _format_percent(0.0123), _format_percent(0.0000123)
    ('98.8 %', '1.2 %', '0.0012 %')
    """
    if chance >= 0.001:
        return f"{100 * chance:.1f} %"
    return f"{100 * chance:.2g} %"
