"""Convert requests to engine calls and their results to outcomes. An error fails only its own request."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from assay.core.errors import MediaError
from assay.core.records.messages import Prompt
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, Finish, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.finish_reasons import GenerationFailed
from assay.models.hf.loading.tokenizer import CheckpointTokenizer
from assay.models.reasoning import ReasoningSplitter
from assay.models.tokens import (
    Pair,
    Unanswerable,
    build_tokens,
    cut_at_stops,
    encode_pair,
    encode_pairs,
    fit_pair,
    split_rolling_windows,
)
from assay.models.tool_calls.separation import separate_calls
from assay.models.vllm.arguments import VllmArguments
from assay.models.vllm.engine import GeneratedText, PromptScore, VllmEngine
from assay.models.vllm.sampling import SCORING_PARAMETERS, SamplingPlan, build_sampling

__all__ = ["EngineJob", "GenerationPreset", "MediaPromptBuilder", "RequestProcessor"]

_MAX_MEDIA_REQUESTS = 32
"""Maximum number of requests whose media are in memory at once: decoded images are large."""

_CHECK_TEXT = "one two three four five six seven eight nine ten "


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPreset:
    """Defaults of a model name, used where the command line and the task set nothing."""

    uses_stops: bool = True
    """Whether stop strings apply. The adapter of lmms-eval does not pass them to vLLM."""

    min_token_limit: int | None = None
    top_p: float = 1.0
    """The default of tasks that sample."""


class MediaPromptBuilder(Protocol):
    """Renders the prompts of a multimodal checkpoint."""

    def render_text(self, prompt: Prompt, effort: str = "") -> str:
        """Return the text that the model reads, with media as placeholders."""
        ...

    def build_inputs(self, prompt: Prompt, effort: str = "") -> tuple[str, dict[str, Any]]:
        """Return the text and the decoded media under vLLM's names.

        Raises:
            Unanswerable: The checkpoint does not read a medium.
            MediaError: A medium cannot be decoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineJob:
    """A call of the engine and the requests it answers."""

    requests: tuple[Request, ...]
    run: Callable[[], Awaitable[Outcome]]


class RequestProcessor:
    """Answers windows of requests with one running engine."""

    def __init__(
        self,
        engine: VllmEngine,
        tokenizer: CheckpointTokenizer,
        arguments: VllmArguments,
        media: MediaPromptBuilder | None,
        preset: GenerationPreset,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._arguments = arguments
        self._media = media
        self._preset = preset
        self._media_semaphore = asyncio.Semaphore(_MAX_MEDIA_REQUESTS)
        self._check_lock = asyncio.Lock()
        self._shares_prefixes: bool | None = None
        self.reports_tokens = False

    def plan_jobs(self, window: Sequence[Request]) -> list[EngineJob | Failure]:
        """Return the jobs of a window, with texts tokenized. Called in a thread."""
        plain = [request for request in window if not (self._media and request.prompt.has_media)]
        with_media = [request for request in window if self._media and request.prompt.has_media]
        jobs: list[EngineJob | Failure] = []
        jobs += self._plan_generations([one for one in plain if isinstance(one, Generate)])
        jobs += self._plan_likelihoods([one for one in plain if isinstance(one, Likelihood)])
        jobs += [self._plan_rolling(one) for one in plain if isinstance(one, RollingLikelihood)]
        jobs += [EngineJob((one,), lambda one=one: self._answer_with_media(one)) for one in with_media]  # type: ignore[misc]
        return jobs

    async def run_job(self, job: EngineJob) -> list[Outcome]:
        """Run a job and return its outcome once per request."""
        started = time.monotonic()
        first = job.requests[0]
        try:
            outcome = await job.run()
        except Unanswerable as error:
            outcome = _failure(first, str(error))
        except MediaError as error:
            outcome = _failure(first, str(error), "bad media")
        except GenerationFailed as error:
            outcome = _failure(first, str(error), error.kind)
        return [_with_request_id(outcome, request, time.monotonic() - started) for request in job.requests]

    # --- generation --------------------------------------------------------------------------------

    def _plan_generations(self, requests: Sequence[Generate]) -> list[EngineJob | Failure]:
        """Plan generation. Greedy repeats of a prompt are one job."""
        alike: dict[Any, list[Generate]] = {}
        for request in requests:
            own = request.id if request.settings.temperature > 0 else ""
            tools = "" if request.tools is None else request.tools.digest
            alike.setdefault((request.prompt.digest, request.settings.digest, tools, own), []).append(request)
        groups = list(alike.values())
        texts: list[str | Unanswerable] = [self._render(group[0]) for group in groups]
        tokens = iter(self._tokenizer.scoring_encoder([text for text in texts if isinstance(text, str)]))
        jobs: list[EngineJob | Failure] = []
        for group, text in zip(groups, texts, strict=True):
            if isinstance(text, Unanswerable):
                jobs += [_failure(request, str(text)) for request in group]
                continue
            read = next(tokens)
            jobs.append(EngineJob(tuple(group), lambda one=group[0], read=read: self._generate(one, read)))  # type: ignore[misc]
        return jobs

    def _render(self, request: Request) -> str | Unanswerable:
        try:
            if self._media is not None and request.prompt.chat:
                return self._media.render_text(request.prompt, _find_effort(request))
            return self._tokenizer.render_request(request)
        except Unanswerable as error:
            return error

    async def _generate(self, request: Generate, tokens: list[int]) -> Outcome:
        sampling = self._sampling(request)
        whole = tokens or [self._tokenizer.prefix_token]
        tokens = self._truncate_prompt(whole, sampling, self._count_reasoning_tokens(request))
        return await self._build_generated_response(
            request, {"prompt_token_ids": tokens}, sampling, truncated=len(whole) - len(tokens)
        )

    def _sampling(self, request: Generate) -> SamplingPlan:
        preset, arguments = self._preset, self._arguments
        values = request.settings.values
        for key in ("n", "num_beams"):
            if values.get(key) not in (None, 1):
                raise Unanswerable(f"`{key}: {values[key]}` is not supported with vLLM")
        return build_sampling(
            request,
            end_text=self._tokenizer.end_text,
            default_tokens=arguments.max_gen_toks,
            min_token_limit=arguments.max_new_tokens or preset.min_token_limit,
            seed=arguments.seed,
            uses_stops=preset.uses_stops,
            top_p=preset.top_p,
            thinks=self._make_splitter(request).is_active,
        )

    async def _generate_within_budget(
        self,
        prompt: Mapping[str, Any],
        parameters: Mapping[str, Any],
        splitter: ReasoningSplitter,
        budget: int,
    ) -> GeneratedText:
        """Generate at most `budget` tokens of reasoning, end the reasoning, and generate the answer."""
        limits = {**parameters, "max_tokens": max(1, budget)}
        first = await self._engine.generate(prompt, limits)
        if not first.hit_limit:
            return first
        written = first.text + splitter.end_reasoning(first.text)
        (more,) = self._tokenizer.encode([written], False)
        tokens = [*prompt["prompt_token_ids"], *more]
        second = await self._engine.generate({**prompt, "prompt_token_ids": tokens}, parameters)
        return replace(
            second,
            text=written + second.text,
            prompt_tokens=first.prompt_tokens,
            generated_tokens=len(more) + second.generated_tokens,
            tokens=(*first.tokens, *second.tokens),
        )

    def _make_splitter(self, request: Generate) -> ReasoningSplitter:
        """Return how to separate the reasoning from the answer. The prompt is rendered for chats of reasoning models only."""
        rendered = ""
        if request.prompt.chat and self._tokenizer.reasoning_format is not None:
            rendered = (
                self._tokenizer.render_request(request)
                if self._media is None
                else self._media.render_text(request.prompt, _find_effort(request))
            )
        return self._tokenizer.make_splitter(request.prompt, rendered)

    def _count_reasoning_tokens(self, request: Generate) -> int:
        """Return the tokens that a thinking budget adds to the token limit of the answer: the budget and the end mark."""
        splitter, budget = self._make_splitter(request), request.settings.thinking_budget
        if splitter.format is None or budget is None:
            return 0
        return max(1, budget) + len(self._tokenizer.encode([splitter.format.closing_text], False)[0])

    def _truncate_prompt(self, tokens: list[int], sampling: SamplingPlan, reasoning_tokens: int) -> list[int]:
        """Truncate the prompt so that its answer and the reasoning before it fit. With the preset of lmms-eval, the answer is shortened instead."""
        limit, max_length = sampling.parameters["max_tokens"] + reasoning_tokens, self._engine.max_length
        if (
            len(tokens) + limit <= max_length
            or self._arguments.max_new_tokens
            or self._preset.min_token_limit
        ):
            return tokens
        max_tokens = max_length - limit
        if max_tokens <= 0:
            raise Unanswerable(
                f"no room for the prompt: {limit} new tokens requested, the context length is {max_length}"
            )
        match self._arguments.truncation_side:
            case "right":
                return tokens[:max_tokens]
            case "middle":
                left = max_tokens // 2
                return tokens[:left] + tokens[len(tokens) - (max_tokens - left) :]
            case _:
                return tokens[-max_tokens:]

    async def _build_generated_response(
        self, request: Generate, prompt: Mapping[str, Any], sampling: SamplingPlan, *, truncated: int = 0
    ) -> Outcome:
        logprob_parameters = {"logprobs": 0} if self.reports_tokens else {}  # only of the generated token
        splitter, budget = self._make_splitter(request), request.settings.thinking_budget
        parameters = {**sampling.parameters, **logprob_parameters}
        if splitter.format is None or budget is None:
            generated = await self._engine.generate(prompt, parameters)
        else:
            generated = await self._generate_within_budget(prompt, parameters, splitter, budget)
        found, calls = separate_calls(generated.text, splitter, self._tokenizer.find_call_format(request))
        reasoning_tokens = len(self._tokenizer.encode([found.reasoning], False)[0]) if found.reasoning else 0
        text = cut_at_stops(found.answer, sampling.stops)
        finish: Finish = "length" if generated.hit_limit else "stop"
        return Response(
            request_id=request.id,
            value=text,
            finish="stop" if len(text) < len(found.answer) else finish,
            usage=Usage(
                generated.prompt_tokens,
                generated.generated_tokens,
                cached_tokens=generated.cached_tokens,
                reasoning_tokens=reasoning_tokens,
                truncated_tokens=truncated,
            ),
            reasoning=found.reasoning,
            tool_calls=calls,
            tokens=self._build_tokens(*zip(*generated.tokens, strict=True))
            if generated.tokens
            else self._build_tokens((), ()),
        )

    def _build_tokens(
        self, tokens: Sequence[int], log_probabilities: Sequence[float], context: Sequence[int] = ()
    ) -> Tokens | None:
        """Return tokens with their log probabilities, or None if they are not requested."""
        if not self.reports_tokens:
            return None
        return build_tokens(
            tokens, log_probabilities, lambda some: self._tokenizer.decode(some, special=True), before=context
        )

    # --- likelihoods -------------------------------------------------------------------------------

    def _plan_likelihoods(self, requests: Sequence[Likelihood]) -> list[EngineJob | Failure]:
        texts = [self._render(request) for request in requests]
        asked = [
            (text, request.continuation)
            for text, request in zip(texts, requests, strict=True)
            if isinstance(text, str)
        ]
        pairs = iter(encode_pairs(asked, self._tokenizer.scoring_encoder))
        jobs: list[EngineJob | Failure] = []
        for request, text in zip(requests, texts, strict=True):
            pair = text if isinstance(text, Unanswerable) else next(pairs)
            if isinstance(pair, Unanswerable):
                jobs.append(_failure(request, str(pair)))
            else:
                jobs.append(EngineJob((request,), lambda one=request, pair=pair: self._score(one, pair)))  # type: ignore[misc]
        return jobs

    async def _score(self, request: Request, pair: Pair) -> Outcome:
        fitted = fit_pair(pair, self._engine.max_length - 2)  # vLLM always generates one token
        read = await self._score_pair(fitted)
        tokens_found = self._build_tokens(pair.continuation, read.log_probabilities, pair.context)
        return _build_likelihood_response(
            request,
            [read],
            len(pair.continuation),
            tokens_found,
            greedy=read.greedy,
            truncated=fitted.truncated,
        )

    def _plan_rolling(self, request: RollingLikelihood) -> EngineJob | Failure:
        text = self._render(request)
        if isinstance(text, Unanswerable):
            return _failure(request, str(text))
        [tokens] = self._tokenizer.scoring_encoder([text])
        windows = split_rolling_windows(
            tokens, prefix_token=self._tokenizer.prefix_token, max_length=self._engine.max_length - 2
        )

        async def run() -> Outcome:
            reads = await asyncio.gather(*[self._score_pair(window) for window in windows])
            tokens_found = self._build_tokens(
                tokens, [number for read in reads for number in read.log_probabilities]
            )
            return _build_likelihood_response(request, reads, len(tokens), tokens_found)

        return EngineJob((request,), run)

    async def _score_pair(self, pair: Pair, media: Mapping[str, Any] | None = None) -> PromptScore:
        """Score a continuation, with its context from the engine's prefix cache if that is known to work."""
        prompt = {"prompt_token_ids": pair.context + pair.continuation, **(media or {})}
        if await self._can_share_prefixes():
            shared = await self._engine.score_prompt(prompt, pair.continuation, _SHARED_SCORING_PARAMETERS)
            if shared is not None:
                return shared
        read = await self._engine.score_prompt(prompt, pair.continuation, SCORING_PARAMETERS)
        if read is None:
            raise RuntimeError("vLLM returned no log probabilities for the tokens of a prompt")
        return read

    async def _can_share_prefixes(self) -> bool:
        """Return whether scores after a cached prefix equal those without the cache. Checked once.

        vLLM recomputes the whole prompt for every likelihood, because it has no log probabilities of cached tokens. Only
        those of the continuation are needed here; but vLLM does not document what it returns then, so they are compared.
        """
        if self._shares_prefixes is None:
            async with self._check_lock:
                if self._shares_prefixes is None:
                    self._shares_prefixes = await self._check_prefix_sharing()
        return self._shares_prefixes

    async def _check_prefix_sharing(self) -> bool:
        block, max_length = self._engine.block_size, self._engine.max_length
        length = 2 * block + 9
        if not self._arguments.share_prefixes or not self._engine.caches_prefixes or length > max_length - 1:
            return False
        [tokens] = self._tokenizer.scoring_encoder([_CHECK_TEXT * (length // 8 + 1)])
        tokens = (tokens * length)[:length]
        prompt, continuation = {"prompt_token_ids": tokens}, tokens[-4:]
        plain = await self._engine.score_prompt(prompt, continuation, SCORING_PARAMETERS)
        shared = await self._engine.score_prompt(prompt, continuation, _SHARED_SCORING_PARAMETERS)
        if plain is None or shared is None or not shared.cached_tokens:
            return False
        return math.isclose(plain.total, shared.total, rel_tol=0.02, abs_tol=0.1)

    # --- media -------------------------------------------------------------------------------------

    async def _answer_with_media(self, request: Request) -> Outcome:
        if self._media is None or isinstance(request, RollingLikelihood):
            raise Unanswerable("rolling likelihoods are not supported for prompts with media")
        async with self._media_semaphore:
            text, data = await asyncio.to_thread(
                self._media.build_inputs, request.prompt, _find_effort(request)
            )
            media = {"multi_modal_data": data}
            if isinstance(request, Generate):
                [tokens] = self._tokenizer.scoring_encoder([text])
                return await self._build_generated_response(
                    request, {"prompt_token_ids": tokens, **media}, self._sampling(request)
                )
            pair = encode_pair(text, request.continuation, self._tokenizer.scoring_encoder)
            read = await self._score_pair(pair, media)
            tokens_found = self._build_tokens(pair.continuation, read.log_probabilities, pair.context)
            return _build_likelihood_response(
                request, [read], len(pair.continuation), tokens_found, greedy=read.greedy
            )


_SHARED_SCORING_PARAMETERS: Mapping[str, Any] = {**SCORING_PARAMETERS, "skip_reading_prefix_cache": False}


def _build_likelihood_response(
    request: Request,
    reads: Sequence[PromptScore],
    scored: int,
    tokens: Tokens | None,
    *,
    greedy: bool = False,
    truncated: int = 0,
) -> Response:
    usage = Usage(
        sum(one.prompt_tokens for one in reads),
        scored,
        cached_tokens=sum(one.cached_tokens for one in reads),
        truncated_tokens=truncated,
    )
    total = float(sum(one.total for one in reads))
    value = LogProbability(total, greedy)
    return Response(request_id=request.id, value=value, usage=usage, tokens=tokens)


def _find_effort(request: Request) -> str:
    return request.settings.reasoning_effort if isinstance(request, Generate) else ""


def _failure(request: Request, message: str, kind: str = "bad request") -> Failure:
    return Failure(request_id=request.id, kind=kind, message=message)


def _with_request_id(outcome: Outcome, request: Request, seconds: float) -> Outcome:
    if isinstance(outcome, Failure):
        return replace(outcome, request_id=request.id)
    return replace(outcome, request_id=request.id, seconds=seconds)
