"""What came back. A failure is data, not absence: it is kept, counted and shown, never scored as wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.core.quick_records import quickly_made

__all__ = ["Failure", "Finish", "LogProbability", "Outcome", "Response", "Tokens", "Usage"]

Finish = Literal["stop", "length", "refused", ""]
"""Why generation ended: a stop string or end token, the token limit, a content filter, not known."""


@quickly_made
@dataclass(frozen=True, slots=True)
class LogProbability:
    """Natural logarithm of a continuation's probability; whether greedy decoding would have written it."""

    total: float
    greedy: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of an answer one by one: what each wrote, and the natural logarithm of its probability.

    Of a likelihood those of the continuation, of a generated text those that were generated, a stop included. A token
    that only begins a character has an empty piece: the one that ends it has it all.
    """

    pieces: tuple[str, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.pieces) != len(self.logprobs):
            raise ValueError(f"{len(self.pieces)} tokens have {len(self.logprobs)} log-probabilities")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written, and what they cost where somebody charges for them."""

    input_tokens: int = 0
    """Every token read, those the service had in its cache included."""

    output_tokens: int = 0
    """Every token written, thinking included."""

    cached_tokens: int = 0
    """Of the tokens read, those the service had in its cache, which are cheaper."""

    batched: bool = False
    """Whether it was asked through a batch API, which is cheaper, too."""

    cost_usd: float | None = None
    """What it cost; an adapter fills it in where the service says it, else the engine does from its price table.
    None: nobody charges, or nobody knows."""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A model's answer to one request."""

    request_id: str
    value: str | LogProbability
    finish: Finish = ""
    usage: Usage | None = None
    seconds: float | None = None
    reasoning: str | None = None
    """Thinking that the server reported apart from the answer."""

    served: str = ""
    """Who the server said it is as it answered, its model and fingerprint; empty where it says nothing."""

    tokens: Tokens | None = None
    """Its tokens, where the run wants them and the model tells them (`--token_logprobs`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request nobody answered, and why. Asked again when the run is continued."""

    request_id: str
    kind: str
    """A short class of error: `timeout`, `rate limit`, `server error`, `bad media`, `model error`, …"""

    message: str
    attempts: int = 1


Outcome = Response | Failure
