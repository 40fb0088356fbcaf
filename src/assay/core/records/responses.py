"""Outcomes of requests. A failure is stored, counted and shown; it is never scored as wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from assay.core.records.tools import ToolAnswer, ToolCall

__all__ = [
    "Failure",
    "Finish",
    "LogProbability",
    "Outcome",
    "Response",
    "Tokens",
    "Usage",
    "describe_invalid_log_probability",
]

Finish = Literal["stop", "length", "refused", ""]
"""Why generation ended: stop string or end token, token limit, content filter, unknown."""


@dataclass(frozen=True, slots=True)
class LogProbability:
    """Natural logarithm of the probability of a continuation, and whether greedy decoding would generate it."""

    total: float
    greedy: bool = False


MAX_LOG_PROBABILITY = 1e-3
"""A probability cannot exceed 1; this is room for rounding errors."""

MIN_LOG_PROBABILITY_PER_BYTE = -1e4
"""vLLM reports a token of probability 0 as -9999, and a token has at least one byte."""


def describe_invalid_log_probability(total: float, text: str) -> str:
    """Return what is wrong with the log probability of a text; empty if it is valid.

    `-inf` is valid: a model can exclude a token.

    >>> describe_invalid_log_probability(-12.5, " Paris"), describe_invalid_log_probability(3.0, " Paris")
    ('', 'the log probability is positive: 3')
    """
    if math.isnan(total):
        return "the log probability is not a number"
    if total > MAX_LOG_PROBABILITY:
        return f"the log probability is positive: {total:g}"
    lowest = MIN_LOG_PROBABILITY_PER_BYTE
    if -math.inf < total < lowest and total < lowest * (len(text.encode("utf-8", "replace")) + 2):
        return f"the log probability is impossibly low: {total:g}"
    return ""


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

    reasoning_tokens: int = 0
    """The generated tokens that are reasoning, if known."""

    cost_usd: float | None = None
    """The cost: reported by the service, else computed by the engine from its price table. None: free or unknown."""

    truncated_tokens: int = 0
    """Prompt tokens that were removed because the prompt exceeds the context length. `input_tokens` excludes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A model's answer to one request."""

    request_id: str
    value: str | LogProbability
    finish: Finish = ""
    usage: Usage | None = None
    seconds: float | None = None
    reasoning: str | None = None
    """The reasoning before the answer; None: there is none, or the model does not show it. `value` does not contain it."""

    served: str = ""
    """The model and system fingerprint the server reported with the response, if any."""

    tokens: Tokens | None = None
    """The tokens, if requested (`--token_logprobs`) and supported by the model."""

    tool_calls: tuple[ToolCall, ...] = ()
    """The tool calls, in order. `value` is the text beside them, which may be empty."""

    @property
    def scored_value(self) -> str | LogProbability:
        """What filters and metrics get: the value, or the tool calls as JSON text if there are any."""
        if not self.tool_calls or not isinstance(self.value, str):
            return self.value
        return ToolAnswer.from_calls(self.value, self.tool_calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request that failed. It is retried when the run is resumed."""

    request_id: str
    kind: str
    """A short error class: `timeout`, `rate limit`, `server error`, `bad media`, `model error`, …"""

    message: str
    attempts: int = 1


Outcome = Response | Failure
