"""`openai-completions`: texts to go on with, and how likely texts are, by any server of text completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from assay.core.ports import Ability, Traits
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.prices import billed_name
from assay.models.remote.chat import (
    FINISHES,
    Said,
    further_settings,
    read_tokens,
    read_usage,
    response_of,
    seed_of,
    served_name,
    stops_of,
)
from assay.models.remote.completions_probe import look_at_completions
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.faults import BadReply, NotAnswered
from assay.models.remote.gathering import as_done
from assay.models.remote.openai import identity_of, no_server, preview_of, seen_model
from assay.models.remote.options import read_options
from assay.models.remote.probe import NoServer
from assay.models.remote.scores import PATH, Piece, Scored, read_scores, scores_payload
from assay.models.remote.seen import Seen
from assay.models.remote.tokenizing import Tokenizer, backend_of, load_tokenizer
from assay.models.tokens import Unanswerable, encode_pairs, fit_pair, fit_prompt, rolling_windows

__all__ = ["CompletionsModel", "openai_completions"]

_WINDOW = 32
_PROMPTS_PER_CALL = 16
_DEFAULT_LENGTH = 2048
_ALONE = frozenset({"bad request", "too long", "too large"})
"""What may be one prompt's fault: the others of its call are asked without it."""


@dataclass(slots=True)
class _Sum:
    """A request whose pieces are being scored."""

    request: Request
    missing: int
    total: float = 0.0
    greedy: bool = True
    tokens: int = 0
    failure: Failure | None = None
    told: list[tuple[int, Tokens | None]] = field(default_factory=list)
    """The number of each piece, and its tokens where the server tells them."""


@dataclass(slots=True)
class _Work:
    """Pieces that wait for their scores, each with the request it belongs to."""

    pieces: list[tuple[_Sum, Piece]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    """What is known already."""


class CompletionsModel:
    """A model behind text completions.

    >>> CompletionsModel(model="m", base_url="http://localhost:8000/v1/completions").name
    'm'
    """

    def __init__(self, *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any) -> None:
        given = {"batch_size": batch_size, "rpm": rpm, "tpm": tpm, **arguments}
        self._options = read_options("openai-completions", given, ())
        self._seen = Seen()
        self._endpoint: Endpoint | None = None
        self._tokenizer: Tokenizer | None = None
        self._gives_tokens = False

    @property
    def name(self) -> str:
        """The model as the server calls it."""
        return self._options.model

    @property
    def billed_as(self) -> str:
        """What the price table calls it; a server of one's own costs nothing."""
        return billed_name(self._options.address().url, self._options.model)

    @property
    def traits(self) -> Traits:
        """What was seen; where nobody looked, everything such servers may do. Chats need a tokenizer with a template."""
        abilities: set[Ability] = {"generate", "likelihood", "rolling"}
        if self._seen.generates and not self._scores:
            abilities -= {"likelihood", "rolling"}
        if backend_of(self._options) == "huggingface":
            abilities |= {"chat"}
        return Traits(
            abilities=frozenset(abilities),
            window=_WINDOW,
            in_flight=self._options.most_at_once,
            tokens=bool(self._seen.prompt_scores),
        )

    def give_tokens(self) -> None:
        """Responses bring their tokens: those who score prompts tell them, and those of what they write."""
        self._gives_tokens = True

    @property
    def _scores(self) -> str:
        """How prompts are scored: as `tokens`, as `text`, or not at all."""
        seen = self._seen
        tokens = seen.token_prompts and backend_of(self._options) != "none"
        if seen.prompt_scores and tokens and self._options.tokenized_requests is not False:
            return "tokens"
        return "text" if seen.prompt_scores == "echo" else ""

    async def identify(self) -> Mapping[str, str]:
        """Server, model and every argument that shapes an answer. Asks nobody."""
        return identity_of(self._options, "openai completions")

    def preview(self, request: Request) -> str:
        """The text; a chat as its messages."""
        return preview_of(request)

    async def probe(self) -> Sequence[str]:
        """Try what the server can do; afterwards `traits` says what was seen."""
        self._seen, notes = await seen_model(self._options, self._seen, look_at_completions)
        if self._seen.prompt_scores == "prompt_logprobs" and not self._scores:
            notes.append(
                "the server scores prompts only as token numbers: give tokenizer=NAME for likelihoods"
            )
        return notes

    @property
    def seen(self) -> Mapping[str, Any]:
        """What the server was seen to do."""
        return self._seen.facts()

    async def open(self) -> None:
        """Connect, and load the tokenizer if there is one on this side."""
        endpoint = self._options.endpoint()
        try:
            if not self._seen.generates:
                if self._options.probe:
                    self._seen = await look_at_completions(endpoint, self._options)
                else:  # as lm-eval asks
                    self._seen = Seen(prompt_scores="echo", token_prompts=True, many_prompts=True)
            self._tokenizer = await asyncio.to_thread(load_tokenizer, self._options)
        except NoServer as error:
            await endpoint.close()
            raise no_server(self._options, error) from None
        except BaseException:
            await endpoint.close()
            raise
        self._endpoint = endpoint

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Texts each on their own, scores several prompts to a call."""
        works = [self._generate(request) for request in window if isinstance(request, Generate)]
        scored = [request for request in window if not isinstance(request, Generate)]
        if scored:
            work = await self._cut(scored)
            for outcome in work.outcomes:
                yield outcome
            size = self._prompts_per_call
            chunks = [work.pieces[at : at + size] for at in range(0, len(work.pieces), size)]
            works += [self._score(chunk) for chunk in chunks]
        async for outcome in as_done(works):
            yield outcome

    async def close(self) -> None:
        """Close the connections."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    # --- scores ------------------------------------------------------------------------------------

    @property
    def _prompts_per_call(self) -> int:
        if self._options.batch_size > 1:
            return self._options.batch_size
        return _PROMPTS_PER_CALL if self._seen.many_prompts else 1

    @property
    def _max_length(self) -> int:
        return self._options.max_length or self._seen.max_length or _DEFAULT_LENGTH

    async def _cut(self, requests: Sequence[Request]) -> _Work:
        """What is to be scored of each request; what cannot be is its failure."""
        if self._scores == "tokens" and self._tokenizer is not None:
            return await asyncio.to_thread(self._cut_tokens, requests, self._tokenizer)
        work = _Work()
        for request in requests:
            if not self._scores or request.prompt.has_media or request.prompt.chat:
                why = "the server gives no log-probabilities of a prompt"
                if self._scores:
                    why = "chats need tokenizer=NAME, and media are not for text completions"
                work.outcomes.append(Failure(request_id=request.id, kind="bad request", message=why))
                continue
            text = request.prompt.text
            begin = len(text.rstrip()) if isinstance(request, Likelihood) else 0
            whole = text + request.continuation if isinstance(request, Likelihood) else text
            work.pieces.append((_Sum(request, 1), Piece(whole, begin)))
        return work

    def _cut_tokens(self, requests: Sequence[Request], tokenizer: Tokenizer) -> _Work:
        """By lm-eval's rules: one token of the length is for the server to write."""
        work, room = _Work(), self._max_length - 2
        pairs = [one for one in requests if isinstance(one, Likelihood)]
        texts = [(self._text(one, tokenizer), one.continuation) for one in pairs]
        for request, pair in zip(pairs, encode_pairs(texts, tokenizer.encoder), strict=True):
            try:
                if isinstance(pair, Unanswerable):
                    raise pair
                fitted = fit_pair(pair, room)
            except Unanswerable as error:
                work.outcomes.append(_unanswerable(request, error))
                continue
            piece = Piece(fitted.context + fitted.continuation, len(fitted.context))
            work.pieces.append((_Sum(request, 1), piece))
        for whole in requests:
            if isinstance(whole, RollingLikelihood):
                self._cut_rolling(whole, tokenizer, room, work)
        return work

    def _cut_rolling(self, request: RollingLikelihood, tokenizer: Tokenizer, room: int, work: _Work) -> None:
        encoder = tokenizer.encoder
        (tokens,) = encoder([request.prompt.text])
        windows = rolling_windows(tokens, prefix_token=encoder.prefix_token, max_length=room)
        if not windows:
            nothing = Tokens((), ()) if self._gives_tokens else None
            outcome = Response(
                request_id=request.id, value=LogProbability(0.0), usage=Usage(), tokens=nothing
            )
            work.outcomes.append(outcome)
        waiting = _Sum(request, len(windows))
        for number, pair in enumerate(windows):
            piece = Piece(pair.context + pair.continuation, len(pair.context), number)
            work.pieces.append((waiting, piece))

    async def _score(self, chunk: Sequence[tuple[_Sum, Piece]]) -> list[Outcome]:
        """Score some pieces in one call; the outcomes of the requests that are complete with it."""
        endpoint = self._connected()
        pieces = [piece for _, piece in chunk]
        payload = scores_payload(pieces, self._options, self._seen)
        tokens = sum(len(piece.prompt) for piece in pieces) if endpoint.lane.tokens else 0
        try:
            read = partial(_read_scores, pieces, told=self._gives_tokens)
            answered = await endpoint.post(PATH, payload, read, tokens=tokens)
        except NotAnswered as error:
            if len(chunk) > 1 and error.fault.kind in _ALONE:
                found = await asyncio.gather(*[self._score([one]) for one in chunk])
                return [outcome for outcomes in found for outcome in outcomes]
            return [
                outcome
                for waiting, _ in chunk
                if (outcome := _failed(waiting, error.failure(waiting.request.id))) is not None
            ]
        scores, served = answered.value
        outcomes = [
            _added(waiting, piece, score, answered.seconds, served)
            for (waiting, piece), score in zip(chunk, scores, strict=True)
        ]
        return [outcome for outcome in outcomes if outcome is not None]

    # --- texts -------------------------------------------------------------------------------------

    async def _generate(self, request: Generate) -> list[Outcome]:
        endpoint = self._connected()
        if request.prompt.has_media or (request.prompt.chat and self._tokenizer is None):
            why = "chats need tokenizer=NAME, and media are not for text completions"
            return [Failure(request_id=request.id, kind="bad request", message=why)]
        try:
            payload = self._payload(request)
            answered = await endpoint.post(PATH, payload, _read_text)
        except Unanswerable as error:
            return [_unanswerable(request, error)]
        except NotAnswered as error:
            return [error.failure(request.id)]
        said, usage, served = answered.value
        return [response_of(request, said, usage, self._options, answered.seconds, served=served)]

    def _payload(self, request: Generate) -> dict[str, Any]:
        options, settings = self._options, request.settings
        limit = options.max_gen_toks if settings.max_tokens is None else settings.max_tokens
        payload: dict[str, Any] = {
            "model": options.model,
            "prompt": self._prompt(request, limit),
            "max_tokens": limit,
            "temperature": settings.temperature,
        }
        if stops := stops_of(settings, options):
            payload["stop"] = list(stops[:4])
        if (seed := seed_of(settings, options, request.repeat)) is not None:
            payload["seed"] = seed
        if self._gives_tokens and self._seen.prompt_scores:
            payload["logprobs"] = 1
        return {**payload, **further_settings(settings), **options.extra_body}

    def _prompt(self, request: Generate, limit: int) -> list[int] | str:
        tokenizer = self._tokenizer
        if tokenizer is None:
            return request.prompt.text
        text = self._text(request, tokenizer)
        if not self._seen.token_prompts or self._options.tokenized_requests is False:
            return text
        (tokens,) = tokenizer.encoder([text])
        return fit_prompt(tokens, self._max_length - 1, limit)

    def _text(self, request: Request, tokenizer: Tokenizer) -> str:
        return tokenizer.chat(request.prompt) if request.prompt.chat else request.prompt.text

    def _connected(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError("answer() was called before open()")
        return self._endpoint


def openai_completions(
    *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> CompletionsModel:
    """OpenAI's own completions: the tokenizer is tiktoken's, as in lm-eval, where no server is named."""
    if "base_url" not in arguments:
        arguments = {"tokenizer_backend": "tiktoken", **arguments}
    return CompletionsModel(batch_size=batch_size, rpm=rpm, tpm=tpm, **arguments)


def _read_scores(
    pieces: Sequence[Piece], value: Any, *, told: bool
) -> tuple[list[Scored | Unanswerable], str]:
    served = served_name(value.get("model"), value.get("system_fingerprint"))
    return read_scores(pieces, value, tokens=told), served


def _read_text(value: Any) -> tuple[Said, Usage | None, str]:
    choices = value["choices"]
    if not choices:
        raise BadReply("the reply has no choices")
    text = choices[0]["text"]
    if not isinstance(text, str):
        raise BadReply(f"the answer is a {type(text).__name__}, not a text")
    finish = FINISHES.get(str(choices[0].get("finish_reason") or ""), "")
    served = served_name(value.get("model"), value.get("system_fingerprint"))
    return (
        Said(text, finish, tokens=read_tokens(choices[0].get("logprobs"))),
        read_usage(value.get("usage")),
        served,
    )


def _added(
    waiting: _Sum, piece: Piece, score: Scored | Unanswerable, seconds: float, served: str
) -> Outcome | None:
    """Count a piece; the outcome when it was the last."""
    if isinstance(score, Unanswerable):
        return _failed(waiting, _unanswerable(waiting.request, score))
    waiting.missing -= 1
    waiting.total += score.value.total
    waiting.greedy = waiting.greedy and score.value.greedy
    waiting.tokens += score.tokens
    waiting.told.append((piece.number, score.told))
    if waiting.missing or waiting.failure is not None:
        return None
    greedy = waiting.greedy and isinstance(waiting.request, Likelihood)
    return Response(
        request_id=waiting.request.id,
        value=LogProbability(waiting.total, greedy),
        usage=Usage(waiting.tokens, 0),
        seconds=seconds,
        served=served,
        tokens=_told(waiting.told),
    )


def _told(told: list[tuple[int, Tokens | None]]) -> Tokens | None:
    """The tokens of all pieces in their order; none where one is not known."""
    known = [one for _, one in sorted(told, key=itemgetter(0)) if one is not None]
    if len(known) < len(told):
        return None
    pieces = tuple(piece for one in known for piece in one.pieces)
    return Tokens(pieces, tuple(number for one in known for number in one.logprobs))


def _failed(waiting: _Sum, failure: Failure) -> Failure | None:
    """A piece that failed fails its request, once."""
    waiting.missing -= 1
    first, waiting.failure = waiting.failure is None, failure
    return failure if first else None


def _unanswerable(request: Request, error: Unanswerable) -> Failure:
    return Failure(request_id=request.id, kind="bad request", message=str(error))
