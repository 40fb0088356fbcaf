"""A promise of the `Model` port that was not kept, and what is promised of the tokens of an answer."""

from __future__ import annotations

import math

from assay.core.requests import Request
from assay.core.responses import LogProbability, Response

__all__ = ["ContractBroken", "check_tokens", "promise"]


class ContractBroken(AssertionError):
    """An adapter does not do what the port promises."""


def promise(kept: bool, message: str) -> None:
    """Raise where it was not kept."""
    if not kept:
        raise ContractBroken(message)


def check_tokens(request: Request, response: Response) -> None:
    """The tokens of a response write its answer, and add up to its log-probability."""
    asked, value, tokens = type(request).__name__, response.value, response.tokens
    if tokens is None:
        raise ContractBroken(f"the answer to a {asked} comes without its tokens")
    written = "".join(tokens.pieces)  # with special tokens between those of the text
    text = value if isinstance(value, str) else getattr(request, "continuation", request.prompt.text)
    letters = iter(written)  # special tokens stand between those of the text
    promise(
        all(letter in letters for letter in text.strip()),
        f"the tokens of a {asked} write {written!r}, not {text!r}",
    )
    promise(all(number < 1e-4 for number in tokens.logprobs), f"{tokens.logprobs} are no log-probabilities")
    if isinstance(value, LogProbability):
        total = sum(tokens.logprobs)
        promise(
            math.isclose(total, value.total, rel_tol=1e-3, abs_tol=1e-3),
            f"the tokens of a {asked} add up to {total}, its answer says {value.total}",
        )
