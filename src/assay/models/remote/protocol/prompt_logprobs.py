"""Log-probabilities of prompts from text completions: build payloads and parse replies.

There are two ways: `echo` with `logprobs` (OpenAI, vLLM, SGLang), or `prompt_logprobs` (vLLM, for token ids). If the prompt
is sent as token ids, the continuation starts at a token index; if it is sent as text, at a character offset, and only
the server tokenizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.records.responses import LogProbability, Tokens
from assay.models.finish_reasons import OPENAI, raise_reported_error
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.errors import BadReply
from assay.models.remote.options import Options
from assay.models.tokens import Unanswerable

__all__ = ["PATH", "PromptLikelihood", "ScoringPrompt", "build_scoring_payload", "parse_scores"]

PATH = "/completions"
_MIN_TOKEN_LOG_PROBABILITY = -1e5
_MAX_TOKEN_LOG_PROBABILITY = 1e-3
"""A probability cannot exceed 1; this is room for rounding errors."""


@dataclass(frozen=True, slots=True)
class ScoringPrompt:
    """A prompt whose end is scored."""

    prompt: list[int] | str
    start: int
    """Start of the scored part: a token index, or a character offset in text."""

    window: int = 0
    """Index of the window, for a long text that is split."""


@dataclass(frozen=True, slots=True)
class PromptLikelihood:
    """Log-probability of the end of a prompt, and the number of tokens of the prompt."""

    value: LogProbability
    token_count: int
    tokens: Tokens | None = None
    """The tokens of the scored part, as the server returns them."""


def build_scoring_payload(
    prompts: Sequence[ScoringPrompt], options: Options, capabilities: ServerCapabilities
) -> dict[str, Any]:
    """Return the payload that scores several prompts in one call."""
    texts = [prompt.prompt for prompt in prompts]
    payload: dict[str, Any] = {
        "model": options.model,
        "prompt": texts if len(texts) > 1 else texts[0],
        "temperature": 0,
    }
    if options.seed is not None and "seed" not in capabilities.refused:
        payload["seed"] = options.seed
    if capabilities.prompt_scores == "prompt_logprobs":
        payload |= {"max_tokens": 1, "prompt_logprobs": 1}
    else:
        payload |= {"max_tokens": capabilities.echo_tokens, "logprobs": 1, "echo": True}
    return {**payload, **options.extra_body}


def parse_scores(
    prompts: Sequence[ScoringPrompt], value: Any, *, with_tokens: bool = False
) -> list[PromptLikelihood | Unanswerable]:
    """Return the score of each prompt, in order; with its tokens if requested.

    Raises:
        BadReply: The number of choices differs from the number of prompts, or the choices contain no valid scores.
        GenerationFailed: The reply reports an error.
    """
    raise_reported_error(value)
    choices = value["choices"]
    if len(choices) != len(prompts):
        raise BadReply(f"unexpected response format: {len(choices)} choices for {len(prompts)} prompts")
    if len(prompts) > 1:
        choices = sorted(choices, key=lambda choice: choice["index"])
        if [choice["index"] for choice in choices] != list(range(len(prompts))):
            raise BadReply("unexpected response format: the choice indexes do not match the prompts")
    return [
        _parse_score(prompt, choice, with_tokens) for prompt, choice in zip(prompts, choices, strict=True)
    ]


def _parse_score(
    prompt: ScoringPrompt, choice: Mapping[str, Any], with_tokens: bool
) -> PromptLikelihood | Unanswerable:
    raise_reported_error(choice, " for this choice")
    OPENAI.classify(choice.get("finish_reason"))
    listed, given = choice.get("prompt_logprobs"), choice.get("logprobs")
    if listed is not None and not isinstance(prompt.prompt, str):
        return _score_from_prompt_logprobs(prompt.prompt, prompt.start, listed)
    if not given:  # with echo, vLLM returns both; for text only `logprobs` has token offsets
        if listed is not None:
            raise BadReply("unexpected response format: prompt_logprobs of text have no token offsets")
        raise BadReply("unexpected response format: no log-probabilities of the prompt")
    values, tops = given["token_logprobs"], given.get("top_logprobs") or ()
    if isinstance(prompt.prompt, str):
        start, end = _find_token_range(prompt.prompt, prompt.start, given)
    else:
        start, end = prompt.start, len(prompt.prompt)
    if len(values) < end or len(tops) < end:
        raise BadReply(f"the response scores {len(values)} tokens of {end}")
    scored = values[start:end]
    if not scored:
        return Unanswerable("the continuation has no tokens of its own, so there is nothing to score")
    if None in scored:
        return Unanswerable(
            "the server returns no probability for the first token of a text, and the context is empty: "
            "pass tokenizer=NAME to send a start token"
        )
    _check_log_probabilities(scored)
    greedy = all(own == max(top.values()) for own, top in zip(scored, tops[start:end], strict=True))
    names = (given.get("tokens") or ())[start:end] if with_tokens else ()
    tokens = Tokens(tuple(map(str, names)), tuple(map(float, scored))) if len(names) == len(scored) else None
    return PromptLikelihood(LogProbability(float(sum(scored)), greedy), end, tokens)


def _find_token_range(text: str, offset: int, given: Mapping[str, Any]) -> tuple[int, int]:
    """Return the token range between a character offset and the end of the text.

    Some servers prepend a start token; whether its offsets count as text differs between servers.
    """
    offsets, tokens = given["text_offset"], given["tokens"]
    first = int(bool(tokens) and not (tokens[0] and text.startswith(tokens[0])) and len(tokens) > 1)
    shift = offsets[first]
    last = len(offsets)
    end = next((index for index in range(first, last) if offsets[index] - shift >= len(text)), last)
    start = next((index for index in range(first, end) if offsets[index] - shift >= offset), end)
    return start, end


def _score_from_prompt_logprobs(
    prompt: Sequence[int], start: int, listed: Sequence[Mapping[str, Any] | None]
) -> PromptLikelihood:
    if len(listed) < len(prompt):
        raise BadReply(f"the response scores {len(listed)} tokens of {len(prompt)}")
    total, greedy = 0.0, True
    names, numbers = list[str](), list[float]()
    for index in range(start, len(prompt)):
        entries = listed[index]
        own = entries.get(str(prompt[index])) if entries else None
        if entries is None or own is None:
            raise BadReply(f"the response does not score token {index}")
        total += own["logprob"]
        names.append(str(own.get("decoded_token") or ""))
        numbers.append(float(own["logprob"]))
        greedy = greedy and own["logprob"] == max(entry["logprob"] for entry in entries.values())
    _check_log_probabilities(numbers)
    tokens = Tokens(tuple(names), tuple(numbers)) if any(names) else None  # some servers omit token texts
    return PromptLikelihood(LogProbability(float(total), greedy), len(prompt), tokens)


def _check_log_probabilities(values: Sequence[float]) -> None:
    """Raise `BadReply` for log-probabilities that no model can have, such as NaN, infinity or positive numbers."""
    for value in values:
        if not _MIN_TOKEN_LOG_PROBABILITY <= value <= _MAX_TOKEN_LOG_PROBABILITY:
            shown = "not a number" if math.isnan(value) else f"{value:g}"
            raise BadReply(f"invalid log-probability in the response: {shown}")
