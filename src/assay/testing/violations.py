"""Contract violations of plugins, and the contract of the tokens of a response."""

from __future__ import annotations

import math

from assay.core.records.requests import Request
from assay.core.records.responses import LogProbability, Response

__all__ = ["ContractViolation", "check_tokens", "require"]


class ContractViolation(AssertionError):
    """A plugin violates the contract of its protocol."""


def require(condition: bool, message: str) -> None:
    """Raise `ContractViolation` if the condition is false."""
    if not condition:
        raise ContractViolation(message)


def check_tokens(request: Request, response: Response) -> None:
    """Check that the tokens of a response form its text and add up to its log probability."""
    asked, value, tokens = type(request).__name__, response.value, response.tokens
    if tokens is None:
        raise ContractViolation(f"the response to a {asked} has no tokens")
    written = "".join(tokens.pieces)
    text = value if isinstance(value, str) else getattr(request, "continuation", request.prompt.text)
    letters = iter(written)  # may contain special tokens between the tokens of the text
    require(
        all(letter in letters for letter in text.strip()),
        f"the tokens of a {asked} form {written!r}, not {text!r}",
    )
    require(all(number < 1e-4 for number in tokens.logprobs), f"{tokens.logprobs} are not log probabilities")
    if isinstance(value, LogProbability):
        total = sum(tokens.logprobs)
        require(
            math.isclose(total, value.total, rel_tol=1e-3, abs_tol=1e-3),
            f"the tokens of a {asked} add up to {total}, but the response says {value.total}",
        )
