"""Requests to what the engine is asked, and what it says to outcomes. Each mishap is the failure of its own request."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from assay.core.errors import MediaError
from assay.core.messages import Prompt
from assay.core.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.responses import Failure, Finish, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.hf.loading.tokenizer import Vocabulary
from assay.models.tokens import (
    Pair,
    Unanswerable,
    cut_at_stops,
    encode_pair,
    encode_pairs,
    fit_pair,
    rolling_windows,
    split_thinking,
    told_tokens,
)
from assay.models.vllm.arguments import VllmArguments
from assay.models.vllm.engine import Engine, Read
from assay.models.vllm.sampling import SCORING, Sampling, sampling_of

__all__ = ["Answering", "Habits", "Job", "LaysMedia"]

_MEDIA_AT_ONCE = 32
"""Requests with media that are decoded or with the engine at the same time: decoded pictures are large."""

_TRIAL_TEXT = "one two three four five six seven eight nine ten "


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a model does under a name where the command line and the task say nothing."""

    heeds_stops: bool = True
    """lmms-eval's adapter tells vLLM no stop strings; answers end where the model ends them."""

    least_tokens: int | None = None
    top_p: float = 1.0
    """Where a task samples and does not say."""


class LaysMedia(Protocol):
    """Prompts of a checkpoint that sees or hears."""

    def text(self, prompt: Prompt) -> str:
        """What the model reads, media as the marks that stand for them."""
        ...

    def lay(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """That text, and the decoded media as vLLM names them.

        Raises:
            Unanswerable: The checkpoint has no sense for a part.
            MediaError: A part cannot be decoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work for the engine, and the requests it answers."""

    requests: tuple[Request, ...]
    work: Callable[[], Awaitable[Outcome]]


class Answering:
    """Answers windows of requests with one running engine."""

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        arguments: VllmArguments,
        media: LaysMedia | None,
        habits: Habits,
    ) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._arguments = arguments
        self._media = media
        self._habits = habits
        self._media_gate = asyncio.Semaphore(_MEDIA_AT_ONCE)
        self._trial = asyncio.Lock()
        self._shares: bool | None = None
        self.gives_tokens = False

    def arrange(self, window: Sequence[Request]) -> list[Job | Failure]:
        """What is to be done, texts already as tokens. Called in a thread."""
        plain = [request for request in window if not (self._media and request.prompt.has_media)]
        seen = [request for request in window if self._media and request.prompt.has_media]
        jobs: list[Job | Failure] = []
        jobs += self._writings([one for one in plain if isinstance(one, Generate)])
        jobs += self._scorings([one for one in plain if isinstance(one, Likelihood)])
        jobs += [self._rolling(one) for one in plain if isinstance(one, RollingLikelihood)]
        jobs += [Job((one,), lambda one=one: self._with_media(one)) for one in seen]  # type: ignore[misc]
        return jobs

    async def outcomes(self, job: Job) -> list[Outcome]:
        """Do a piece of work; everyone who asked for it gets the outcome under their own name."""
        started = time.monotonic()
        first = job.requests[0]
        try:
            outcome = await job.work()
        except Unanswerable as error:
            outcome = _failure(first, str(error))
        except MediaError as error:
            outcome = _failure(first, str(error), "bad media")
        return [_named(outcome, request, time.monotonic() - started) for request in job.requests]

    # --- writing -----------------------------------------------------------------------------------

    def _writings(self, requests: Sequence[Generate]) -> list[Job | Failure]:
        """Greedy repeats of a prompt are one piece of work."""
        alike: dict[Any, list[Generate]] = {}
        for request in requests:
            own = request.id if request.settings.temperature > 0 else ""
            alike.setdefault((request.prompt.digest, request.settings.digest, own), []).append(request)
        groups = list(alike.values())
        texts: list[str | Unanswerable] = [self._text(group[0]) for group in groups]
        tokens = iter(self._vocabulary.scoring([text for text in texts if isinstance(text, str)]))
        jobs: list[Job | Failure] = []
        for group, text in zip(groups, texts, strict=True):
            if isinstance(text, Unanswerable):
                jobs += [_failure(request, str(text)) for request in group]
                continue
            read = next(tokens)
            jobs.append(Job(tuple(group), lambda one=group[0], read=read: self._write(one, read)))  # type: ignore[misc]
        return jobs

    def _text(self, request: Request) -> str | Unanswerable:
        try:
            if self._media is not None and request.prompt.chat:
                return self._media.text(request.prompt)
            return self._vocabulary.read(request.prompt)
        except Unanswerable as error:
            return error

    async def _write(self, request: Generate, tokens: list[int]) -> Outcome:
        sampling = self._sampling(request)
        tokens = self._cut(tokens or [self._vocabulary.prefix_token], sampling)
        return await self._written(request, {"prompt_token_ids": tokens}, sampling)

    def _sampling(self, request: Generate) -> Sampling:
        habits, arguments = self._habits, self._arguments
        values = request.settings.values
        for key in ("n", "num_beams"):
            if values.get(key) not in (None, 1):
                raise Unanswerable(f"`{key}: {values[key]}` is not done with vLLM: one answer, one beam")
        return sampling_of(
            request,
            end_text=self._vocabulary.end_text,
            default_tokens=arguments.max_gen_toks,
            least_tokens=arguments.max_new_tokens or habits.least_tokens,
            seed=arguments.seed,
            heeds_stops=habits.heeds_stops,
            top_p=habits.top_p,
            thinks=bool(arguments.think_end_token),
        )

    def _cut(self, tokens: list[int], sampling: Sampling) -> list[int]:
        """The prompt as far as there is room for it beside its answer; with lmms-eval's habits the answer gives way."""
        limit, most = sampling.parameters["max_tokens"], self._engine.max_length
        if len(tokens) + limit <= most or self._arguments.max_new_tokens or self._habits.least_tokens:
            return tokens
        room = most - limit
        if room <= 0:
            raise Unanswerable(
                f"{limit} new tokens are asked for, and the model holds {most} in all: no room for the prompt"
            )
        match self._arguments.truncation_side:
            case "right":
                return tokens[:room]
            case "middle":
                left = room // 2
                return tokens[:left] + tokens[len(tokens) - (room - left) :]
            case _:
                return tokens[-room:]

    async def _written(self, request: Generate, prompt: Mapping[str, Any], sampling: Sampling) -> Outcome:
        wanted = {"logprobs": 0} if self.gives_tokens else {}  # of the token that is written, and of no other
        written = await self._engine.write(prompt, {**sampling.parameters, **wanted})
        thought, answer = split_thinking(written.text, self._arguments.think_end_token or "")
        text = cut_at_stops(answer, sampling.stops)
        finish: Finish = "length" if written.cut_off else "stop"
        return Response(
            request_id=request.id,
            value=text,
            finish="stop" if len(text) < len(answer) else finish,
            usage=Usage(written.read, written.written, cached_tokens=written.cached),
            reasoning=thought,
            tokens=self._told(*zip(*written.tokens, strict=True)) if written.tokens else self._told((), ()),
        )

    def _told(
        self, tokens: Sequence[int], chances: Sequence[float], context: Sequence[int] = ()
    ) -> Tokens | None:
        """Tokens with their log-probabilities, where somebody wants to know them."""
        if not self.gives_tokens:
            return None
        return told_tokens(
            tokens, chances, lambda some: self._vocabulary.decode(some, special=True), before=context
        )

    # --- likelihoods -------------------------------------------------------------------------------

    def _scorings(self, requests: Sequence[Likelihood]) -> list[Job | Failure]:
        texts = [self._text(request) for request in requests]
        asked = [
            (text, request.continuation)
            for text, request in zip(texts, requests, strict=True)
            if isinstance(text, str)
        ]
        pairs = iter(encode_pairs(asked, self._vocabulary.scoring))
        jobs: list[Job | Failure] = []
        for request, text in zip(requests, texts, strict=True):
            pair = text if isinstance(text, Unanswerable) else next(pairs)
            if isinstance(pair, Unanswerable):
                jobs.append(_failure(request, str(pair)))
            else:
                jobs.append(Job((request,), lambda one=request, pair=pair: self._score(one, pair)))  # type: ignore[misc]
        return jobs

    async def _score(self, request: Request, pair: Pair) -> Outcome:
        read = await self._read(
            fit_pair(pair, self._engine.max_length - 2)
        )  # and a token that has to be written
        told = self._told(pair.continuation, read.chances, pair.context)
        return _answered(request, [read], len(pair.continuation), told, greedy=read.greedy)

    def _rolling(self, request: RollingLikelihood) -> Job | Failure:
        text = self._text(request)
        if isinstance(text, Unanswerable):
            return _failure(request, str(text))
        [tokens] = self._vocabulary.scoring([text])
        windows = rolling_windows(
            tokens, prefix_token=self._vocabulary.prefix_token, max_length=self._engine.max_length - 2
        )

        async def work() -> Outcome:
            reads = await asyncio.gather(*[self._read(window) for window in windows])
            told = self._told(tokens, [number for read in reads for number in read.chances])
            return _answered(request, reads, len(tokens), told)

        return Job((request,), work)

    async def _read(self, pair: Pair, media: Mapping[str, Any] | None = None) -> Read:
        """How likely a continuation is, its context taken from the engine's cache where that is known to work."""
        prompt = {"prompt_token_ids": pair.context + pair.continuation, **(media or {})}
        if await self._may_share():
            shared = await self._engine.read(prompt, pair.continuation, _SHARING)
            if shared is not None:
                return shared
        read = await self._engine.read(prompt, pair.continuation, SCORING)
        if read is None:
            raise RuntimeError("vLLM gave no likelihoods for the tokens of a prompt")
        return read

    async def _may_share(self) -> bool:
        """Whether likelihoods behind a cached prefix are those of the plain computation: tried once, then known.

        vLLM computes the whole prompt again for every likelihood, for it cannot give those of cached tokens. Only those of
        the continuation are wanted; but what it then returns is nowhere promised, so it is compared.
        """
        if self._shares is None:
            async with self._trial:
                if self._shares is None:
                    self._shares = await self._try_sharing()
        return self._shares

    async def _try_sharing(self) -> bool:
        block, most = self._engine.block_size, self._engine.max_length
        length = 2 * block + 9
        if not self._arguments.share_prefixes or not self._engine.caches_prefixes or length > most - 1:
            return False
        [tokens] = self._vocabulary.scoring([_TRIAL_TEXT * (length // 8 + 1)])
        tokens = (tokens * length)[:length]
        prompt, continuation = {"prompt_token_ids": tokens}, tokens[-4:]
        plain = await self._engine.read(prompt, continuation, SCORING)
        shared = await self._engine.read(prompt, continuation, _SHARING)
        if plain is None or shared is None or not shared.cached:
            return False
        return math.isclose(plain.total, shared.total, rel_tol=0.02, abs_tol=0.1)

    # --- media -------------------------------------------------------------------------------------

    async def _with_media(self, request: Request) -> Outcome:
        if self._media is None or isinstance(request, RollingLikelihood):
            raise Unanswerable(
                "the likelihood of a whole text is asked for, and the prompt has more than text"
            )
        async with self._media_gate:
            text, data = await asyncio.to_thread(self._media.lay, request.prompt)
            media = {"multi_modal_data": data}
            if isinstance(request, Generate):
                [tokens] = self._vocabulary.scoring([text])
                return await self._written(
                    request, {"prompt_token_ids": tokens, **media}, self._sampling(request)
                )
            pair = encode_pair(text, request.continuation, self._vocabulary.scoring)
            read = await self._read(pair, media)
            told = self._told(pair.continuation, read.chances, pair.context)
            return _answered(request, [read], len(pair.continuation), told, greedy=read.greedy)


_SHARING: Mapping[str, Any] = {**SCORING, "skip_reading_prefix_cache": False}


def _answered(
    request: Request, reads: Sequence[Read], scored: int, tokens: Tokens | None, *, greedy: bool = False
) -> Response:
    usage = Usage(sum(one.read for one in reads), scored, cached_tokens=sum(one.cached for one in reads))
    total = float(sum(one.total for one in reads))
    value = LogProbability(total, greedy)
    return Response(request_id=request.id, value=value, usage=usage, tokens=tokens)


def _failure(request: Request, message: str, kind: str = "bad request") -> Failure:
    return Failure(request_id=request.id, kind=kind, message=message)


def _named(outcome: Outcome, request: Request, seconds: float) -> Outcome:
    if isinstance(outcome, Failure):
        return replace(outcome, request_id=request.id)
    return replace(outcome, request_id=request.id, seconds=seconds)
