"""Outcomes of requests. A failure is stored, counted and shown; it is never scored as wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.core.fast_init import fast_init

__all__ = ["Failure", "Finish", "LogProbability", "Outcome", "Response", "Tokens", "Usage"]

Finish = Literal["stop", "length", "refused", ""]
"""Why generation ended: stop string or end token, token limit, content filter, unknown."""


@fast_init
@dataclass(frozen=True, slots=True)
class LogProbability:
    """Natural logarithm of the probability of a continuation, and whether greedy decoding would generate it."""

    total: float
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """The text and the log probability (natural logarithm) of every token of a response.

    For a likelihood these are the tokens of the continuation; for generated text, the generated tokens including the
    stop token. The text of a multi-token character belongs to its last token; the other tokens have an empty piece.
    """

    pieces: tuple[str, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.pieces) != len(self.logprobs):
            raise ValueError(f"{len(self.pieces)} tokens have {len(self.logprobs)} log-probabilities")


@dataclass(frozen=True, slots=True)
class Usage:
    """Input and output tokens, and their cost if the model charges for them."""

    input_tokens: int = 0
    """All input tokens, including those in the cache of the service."""

    output_tokens: int = 0
    """All generated tokens, including reasoning."""

    cached_tokens: int = 0
    """Input tokens in the cache of the service, which are cheaper."""

    batched: bool = False
    """Whether the request went through a batch API, which is cheaper."""

    cost_usd: float | None = None
    """The cost: reported by the service, else computed by the engine from its price table. None: free or unknown."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A model's answer to one request."""

    request_id: str
    value: str | LogProbability
    finish: Finish = ""
    usage: Usage | None = None
    seconds: float | None = None
    reasoning: str | None = None
    """Reasoning that the server reports separately from the response text."""

    served: str = ""
    """The model and system fingerprint the server reported with the response, if any."""

    tokens: Tokens | None = None
    """The tokens, if requested (`--token_logprobs`) and supported by the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request that failed. It is retried when the run is resumed."""

    request_id: str
    kind: str
    """A short error class: `timeout`, `rate limit`, `server error`, `bad media`, `model error`, …"""

    message: str
    attempts: int = 1


Outcome = Response | Failure
