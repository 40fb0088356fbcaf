"""Log-probabilities of a prompt out of text completions: what to ask for, and where in the reply they are.

Two ways: `echo` with `logprobs` (OpenAI's own, vLLM, SGLang), or `prompt_logprobs` (vLLM, of token numbers). A prompt goes
as token numbers, then the border between context and continuation is a count; or as text, then it is a place in the
text, and the server's tokenizer is the only one there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.responses import LogProbability, Tokens
from assay.models.remote.faults import BadReply
from assay.models.remote.options import Options
from assay.models.remote.seen import Seen
from assay.models.tokens import Unanswerable

__all__ = ["PATH", "Piece", "Scored", "read_scores", "scores_payload"]

PATH = "/completions"


@dataclass(frozen=True, slots=True)
class Piece:
    """A prompt of which the end is scored."""

    prompt: list[int] | str
    begin: int
    """Where the scored part begins: a number of tokens, or of characters."""

    number: int = 0
    """Which of the windows of a long text this is."""


@dataclass(frozen=True, slots=True)
class Scored:
    """How likely the end of a piece is, and how many tokens the piece has."""

    value: LogProbability
    tokens: int
    told: Tokens | None = None
    """The tokens of the scored part, as the server names them."""


def scores_payload(pieces: Sequence[Piece], options: Options, seen: Seen) -> dict[str, Any]:
    """One call for several pieces."""
    prompts = [piece.prompt for piece in pieces]
    payload: dict[str, Any] = {
        "model": options.model,
        "prompt": prompts if len(prompts) > 1 else prompts[0],
        "temperature": 0,
    }
    if options.seed is not None and "seed" not in seen.refused:
        payload["seed"] = options.seed
    if seen.prompt_scores == "prompt_logprobs":
        payload |= {"max_tokens": 1, "prompt_logprobs": 1}
    else:
        payload |= {"max_tokens": seen.echo_tokens, "logprobs": 1, "echo": True}
    return {**payload, **options.extra_body}


def read_scores(pieces: Sequence[Piece], value: Any, *, tokens: bool = False) -> list[Scored | Unanswerable]:
    """A score for each piece, in their order; with its tokens, where somebody wants to know them.

    Raises:
        BadReply: There are not as many choices as pieces, or they hold no scores.
    """
    choices = value["choices"]
    if len(choices) != len(pieces):
        raise BadReply(f"the reply has {len(choices)} choices to {len(pieces)} prompts")
    if len(pieces) > 1:
        choices = sorted(choices, key=lambda choice: choice["index"])
        if [choice["index"] for choice in choices] != list(range(len(pieces))):
            raise BadReply("the choices are not numbered as the prompts are")
    return [_score(piece, choice, tokens) for piece, choice in zip(pieces, choices, strict=True)]


def _score(piece: Piece, choice: Mapping[str, Any], tokens: bool) -> Scored | Unanswerable:
    listed, given = choice.get("prompt_logprobs"), choice.get("logprobs")
    if listed is not None and not isinstance(piece.prompt, str):
        return _of_prompt_logprobs(piece.prompt, piece.begin, listed)
    if not given:  # asked to echo, vLLM gives both; of a text only these say where its tokens are
        if listed is not None:
            raise BadReply("prompt_logprobs of a text cannot be told apart")
        raise BadReply("the reply has no log-probabilities of the prompt")
    values, tops = given["token_logprobs"], given.get("top_logprobs") or ()
    if isinstance(piece.prompt, str):
        begin, end = _places(piece.prompt, piece.begin, given)
    else:
        begin, end = piece.begin, len(piece.prompt)
    if len(values) < end or len(tops) < end:
        raise BadReply(f"the reply scores {len(values)} tokens of {end}")
    scored = values[begin:end]
    if not scored:
        return Unanswerable("the continuation has no tokens of its own, so there is nothing to score")
    if None in scored:
        return Unanswerable(
            "the server gives the first token of a text no probability, and there is no context: "
            "tokenizer=NAME lets a start token be sent"
        )
    greedy = all(own == max(top.values()) for own, top in zip(scored, tops[begin:end], strict=True))
    names = (given.get("tokens") or ())[begin:end] if tokens else ()
    told = Tokens(tuple(map(str, names)), tuple(map(float, scored))) if len(names) == len(scored) else None
    return Scored(LogProbability(float(sum(scored)), greedy), end, told)


def _places(text: str, begin: int, given: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of the tokens between a place in a text and its end.

    A start token that the server put in front has a name of its own or none; whether it counts as text or not differs.
    """
    offsets, tokens = given["text_offset"], given["tokens"]
    first = int(bool(tokens) and not (tokens[0] and text.startswith(tokens[0])) and len(tokens) > 1)
    shift = offsets[first]
    last = len(offsets)
    end = next((at for at in range(first, last) if offsets[at] - shift >= len(text)), last)
    start = next((at for at in range(first, end) if offsets[at] - shift >= begin), end)
    return start, end


def _of_prompt_logprobs(
    prompt: Sequence[int], begin: int, listed: Sequence[Mapping[str, Any] | None]
) -> Scored:
    if len(listed) < len(prompt):
        raise BadReply(f"the reply scores {len(listed)} tokens of {len(prompt)}")
    total, greedy = 0.0, True
    names, numbers = list[str](), list[float]()
    for at in range(begin, len(prompt)):
        entries = listed[at]
        own = entries.get(str(prompt[at])) if entries else None
        if entries is None or own is None:
            raise BadReply(f"the reply does not score token {at}")
        total += own["logprob"]
        names.append(str(own.get("decoded_token") or ""))
        numbers.append(float(own["logprob"]))
        greedy = greedy and own["logprob"] == max(entry["logprob"] for entry in entries.values())
    told = Tokens(tuple(names), tuple(numbers)) if any(names) else None  # not every server names them
    return Scored(LogProbability(float(total), greedy), len(prompt), told)
