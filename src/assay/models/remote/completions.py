"""`openai-completions`: generation and log-probabilities from a text completions server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

from assay.core.ports import Ability, Traits, TruncatedPrompt
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.finish_reasons import OPENAI, raise_reported_error
from assay.models.prices import build_billed_name
from assay.models.remote.capabilities.cache import ServerCapabilities
from assay.models.remote.capabilities.chat_probe import ServerUnreachable
from assay.models.remote.capabilities.completions_probe import probe_completions
from assay.models.remote.concurrency import iterate_completed
from assay.models.remote.endpoint import Endpoint
from assay.models.remote.errors import BadReply, CallFailed
from assay.models.remote.openai import (
    build_identity,
    build_unreachable_error,
    describe_probe,
    format_preview,
    probe_server,
)
from assay.models.remote.options import read_options
from assay.models.remote.output_limits import compute_output_limit
from assay.models.remote.protocol.chat import (
    MAX_STOPS,
    Choice,
    build_response,
    collect_stop_strings,
    compute_seed,
    format_served_name,
    parse_tokens,
    parse_usage,
    select_extra_settings,
)
from assay.models.remote.protocol.prompt_logprobs import (
    PATH,
    PromptLikelihood,
    ScoringPrompt,
    build_scoring_payload,
    parse_scores,
)
from assay.models.remote.token_bounds import TokenBound, TokenBounds, count_bytes
from assay.models.remote.tokenizer import Tokenizer, choose_tokenizer_backend, load_tokenizer
from assay.models.tokens import (
    Unanswerable,
    encode_pair,
    encode_pairs,
    fit_pair,
    fit_prompt,
    split_rolling_windows,
)

__all__ = ["CompletionsModel", "openai_completions", "parse_text_reply"]

_WINDOW = 32
_DEFAULT_PROMPTS_PER_CALL = 16
_DEFAULT_MAX_LENGTH = 2048
_SINGLE_PROMPT_ERRORS = frozenset({"bad request", "too long", "too large"})
"""Errors that one prompt of a call may cause: each prompt is then sent in a call of its own."""


@dataclass(slots=True)
class _PendingScore:
    """A request with unscored prompts."""

    request: Request
    missing: int
    total: float = 0.0
    greedy: bool = True
    token_count: int = 0
    truncated: int = 0
    """Tokens removed from the prompt so that it fits the model."""

    failure: Failure | None = None
    tokens_by_window: list[tuple[int, Tokens | None]] = field(default_factory=list)
    """The index of each window, and its tokens if the server returns them."""


@dataclass(slots=True)
class _ScoringWork:
    """Prompts to score, each with the request it belongs to."""

    prompts: list[tuple[_PendingScore, ScoringPrompt]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    """Outcomes that need no call."""


class CompletionsModel:
    """A model behind text completions.

    >>> CompletionsModel(model="m", base_url="http://localhost:8000/v1/completions").name
    'm'
    """

    def __init__(self, *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any) -> None:
        given = {"batch_size": batch_size, "rpm": rpm, "tpm": tpm, **arguments}
        self._options = read_options("openai-completions", given, ())
        self._capabilities = ServerCapabilities()
        self._probe_calls: Counter[str] = Counter()
        self._endpoint: Endpoint | None = None
        self._tokenizer: Tokenizer | None = None
        self._bounds = TokenBounds(self._options.model)
        self._gives_tokens = False
        self._has_planned = False

    @property
    def name(self) -> str:
        """The server's name of the model."""
        return self._options.model

    @property
    def billed_as(self) -> str:
        """The name of the model in price tables; a self-hosted server costs nothing."""
        return build_billed_name(self._options.address().url, self._options.model)

    def find_output_limit(self, request: Generate) -> int | None:
        """Return the largest number of tokens of the answer, with the limits in `extra_body`."""
        return compute_output_limit(request.settings, self._options)

    @property
    def traits(self) -> Traits:
        """Probed capabilities; without a probe, everything such servers may support. Chats need a tokenizer with a template."""
        abilities: set[Ability] = {"generate", "likelihood", "rolling"}
        if self._capabilities.generates and not self._scoring_input:
            abilities -= {"likelihood", "rolling"}
        if self._tokenizer_backend == "huggingface":
            abilities |= {"chat"}
        return Traits(
            abilities=frozenset(abilities),
            window=_WINDOW,
            in_flight=self._options.max_concurrency,
            tokens=bool(self._capabilities.prompt_scores),
        )

    def give_tokens(self) -> None:
        """Return tokens with responses: scored ones, and generated ones if the server scores prompts."""
        self._gives_tokens = True

    @cached_property
    def _tokenizer_backend(self) -> str:
        """Computed once: the engine asks for the traits several times per request, and the answer takes a file access."""
        return choose_tokenizer_backend(self._options)

    @property
    def _scoring_input(self) -> str:
        """The form in which prompts are scored: `tokens`, `text`; empty: the server cannot score them."""
        capabilities = self._capabilities
        tokens = capabilities.token_prompts and self._tokenizer_backend != "none"
        if capabilities.prompt_scores and tokens and self._options.tokenized_requests is not False:
            return "tokens"
        return "text" if capabilities.prompt_scores == "echo" else ""

    async def identify(self) -> Mapping[str, str]:
        """Server, model and all arguments that affect answers. Makes no call."""
        return build_identity(self._options, "openai completions")

    def preview(self, request: Request) -> str:
        """Return the text; for a chat, its messages."""
        return format_preview(request)

    def preview_truncation(self, request: Request) -> TruncatedPrompt | None:
        """Return what remains of a prompt that exceeds the context length; None if only the server tokenizes."""
        tokenizer = self._load_planning_tokenizer()
        if tokenizer is None or isinstance(request, RollingLikelihood):
            return None
        try:
            tokens, continuation, truncated = self._fit_request(request, tokenizer)
        except Unanswerable:
            return None  # the run reports it as a failure
        if not truncated:
            return None
        return TruncatedPrompt(
            text=tokenizer.decode(tokens),
            tokens=len(tokens) + len(continuation),
            truncated_tokens=truncated,
        )

    def count_input_tokens(self, request: Request) -> int | None:
        """Return the tokens that are sent, with those of a continuation to score; None if only the server tokenizes."""
        tokenizer = self._load_planning_tokenizer()
        if tokenizer is None:
            return None
        if isinstance(request, RollingLikelihood):
            (tokens,) = tokenizer.encoder([request.prompt.text])
            return len(tokens)
        try:
            tokens, continuation, _ = self._fit_request(request, tokenizer)
        except Unanswerable:
            return 0  # the run reports it as a failure
        return len(tokens) + len(continuation)

    def _load_planning_tokenizer(self) -> Tokenizer | None:
        """Return the tokenizer before `open`; None if only the server tokenizes, or if it cannot be downloaded."""
        if self._tokenizer is None and not self._has_planned:
            self._has_planned = True
            self._assume_capabilities()
            try:
                self._tokenizer = load_tokenizer(self._options)
            except OSError:
                self._tokenizer = None
        return self._tokenizer

    def _fit_request(
        self, request: Generate | Likelihood, tokenizer: Tokenizer
    ) -> tuple[list[int], list[int], int]:
        """Return the tokens of the prompt and of the continuation that the server reads, and the number of removed ones.

        Raises:
            Unanswerable: The answer or the continuation leaves no room for the prompt.
        """
        text = self._render_text(request, tokenizer)
        if isinstance(request, Likelihood):
            pair = encode_pair(text, request.continuation, tokenizer.encoder)
            if self._scoring_input == "tokens":
                pair = fit_pair(pair, self._max_length - 2)
            return pair.context, pair.continuation, pair.truncated
        prompt, truncated = self._build_prompt(request, self._find_answer_limit(request))
        if isinstance(prompt, str):
            (prompt,) = tokenizer.encoder([prompt])
        return prompt, [], truncated

    async def probe(self) -> Sequence[str]:
        """Find out what the server supports and update `traits`."""
        self._capabilities, notes, calls = await probe_server(
            self._options, self._capabilities, probe_completions
        )
        self._probe_calls += calls
        if self._capabilities.prompt_scores == "prompt_logprobs" and not self._scoring_input:
            notes.append("the server scores prompts only as token ids: pass tokenizer=NAME for likelihoods")
        return notes

    @property
    def seen(self) -> Mapping[str, Any]:
        """Probed capabilities and the number of calls that probing took, for the manifest."""
        return describe_probe(self._capabilities, self._probe_calls)

    async def open(self) -> None:
        """Connect, and load the client-side tokenizer if there is one."""
        endpoint = self._options.open_endpoint()
        try:
            if not self._capabilities.generates:
                if self._options.probe:
                    self._capabilities = await probe_completions(endpoint, self._options)
                    self._probe_calls += endpoint.posts
                else:
                    self._assume_capabilities()
            if self._tokenizer is None:
                self._tokenizer = await asyncio.to_thread(load_tokenizer, self._options)
        except ServerUnreachable as error:
            await endpoint.close()
            raise build_unreachable_error(self._options, error) from None
        except BaseException:
            await endpoint.close()
            raise
        self._endpoint = endpoint

    def _assume_capabilities(self) -> None:
        """Without a probe, assume that the server scores prompts and accepts token ids, as lm-eval does."""
        if not self._capabilities.generates and not self._options.probe:
            self._capabilities = ServerCapabilities(
                prompt_scores="echo", token_prompts=True, many_prompts=True
            )

    async def answer(self, window: Sequence[Request]) -> AsyncIterator[Outcome]:
        """Generate texts in one call each; score several prompts per call."""
        works = [self._generate(request) for request in window if isinstance(request, Generate)]
        scored = [request for request in window if not isinstance(request, Generate)]
        if scored:
            work = await self._plan_scoring(scored)
            for outcome in work.outcomes:
                yield outcome
            size = self._prompts_per_call
            chunks = [work.prompts[start : start + size] for start in range(0, len(work.prompts), size)]
            works += [self._score(chunk) for chunk in chunks]
        async for outcome in iterate_completed(works):
            yield outcome

    def hold_requests(self, held: bool) -> None:
        """Start no calls while `held`."""
        if self._endpoint is not None:
            self._endpoint.limiter.hold(held)

    def count_queued(self) -> int:
        """Return how many calls wait for a slot."""
        return 0 if self._endpoint is None else self._endpoint.limiter.queued

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
        return _DEFAULT_PROMPTS_PER_CALL if self._capabilities.many_prompts else 1

    @property
    def _max_length(self) -> int:
        return self._options.max_length or self._capabilities.max_length or _DEFAULT_MAX_LENGTH

    async def _plan_scoring(self, requests: Sequence[Request]) -> _ScoringWork:
        """Return the prompts to score for each request; a request that cannot be scored fails."""
        if self._scoring_input == "tokens" and self._tokenizer is not None:
            return await asyncio.to_thread(self._plan_token_scoring, requests, self._tokenizer)
        work = _ScoringWork()
        for request in requests:
            if not self._scoring_input or request.prompt.has_media or request.prompt.chat:
                why = "the server returns no log-probabilities of prompts"
                if self._scoring_input:
                    why = "text completions do not support media, and chats need tokenizer=NAME"
                work.outcomes.append(Failure(request_id=request.id, kind="bad request", message=why))
                continue
            text = request.prompt.text
            begin = len(text.rstrip()) if isinstance(request, Likelihood) else 0
            whole = text + request.continuation if isinstance(request, Likelihood) else text
            work.prompts.append((_PendingScore(request, 1), ScoringPrompt(whole, begin)))
        return work

    def _plan_token_scoring(self, requests: Sequence[Request], tokenizer: Tokenizer) -> _ScoringWork:
        """Encode prompts by lm-eval's rules: one token of the length is reserved for generation."""
        work, room = _ScoringWork(), self._max_length - 2
        pairs = [one for one in requests if isinstance(one, Likelihood)]
        texts = [(self._render_text(one, tokenizer), one.continuation) for one in pairs]
        for request, pair in zip(pairs, encode_pairs(texts, tokenizer.encoder), strict=True):
            try:
                if isinstance(pair, Unanswerable):
                    raise pair
                fitted = fit_pair(pair, room)
            except Unanswerable as error:
                work.outcomes.append(_failure_from_unanswerable(request, error))
                continue
            prompt = ScoringPrompt(fitted.context + fitted.continuation, len(fitted.context))
            work.prompts.append((_PendingScore(request, 1, truncated=fitted.truncated), prompt))
        for whole in requests:
            if isinstance(whole, RollingLikelihood):
                self._plan_rolling(whole, tokenizer, room, work)
        return work

    def _plan_rolling(
        self, request: RollingLikelihood, tokenizer: Tokenizer, room: int, work: _ScoringWork
    ) -> None:
        encoder = tokenizer.encoder
        (tokens,) = encoder([request.prompt.text])
        windows = split_rolling_windows(tokens, prefix_token=encoder.prefix_token, max_length=room)
        if not windows:
            nothing = Tokens((), ()) if self._gives_tokens else None
            outcome = Response(
                request_id=request.id, value=LogProbability(0.0), usage=Usage(), tokens=nothing
            )
            work.outcomes.append(outcome)
        pending = _PendingScore(request, len(windows))
        for index, pair in enumerate(windows):
            prompt = ScoringPrompt(pair.context + pair.continuation, len(pair.context), index)
            work.prompts.append((pending, prompt))

    async def _score(self, chunk: Sequence[tuple[_PendingScore, ScoringPrompt]]) -> list[Outcome]:
        """Score some prompts in one call; return the outcomes of the requests that are complete."""
        endpoint = self._require_endpoint()
        prompts = [prompt for _, prompt in chunk]
        payload = build_scoring_payload(prompts, self._options, self._capabilities)
        bound = self._bound_scoring(prompts) if endpoint.rate_limit.tokens is not None else None
        try:
            read = partial(_parse_scores_reply, prompts, with_tokens=self._gives_tokens)
            answered = await endpoint.post(PATH, payload, read, tokens=bound)
        except CallFailed as error:
            if len(chunk) > 1 and error.cause.kind in _SINGLE_PROMPT_ERRORS:
                found = await asyncio.gather(*[self._score([one]) for one in chunk])
                return [outcome for outcomes in found for outcome in outcomes]
            return [
                outcome
                for pending, _ in chunk
                if (outcome := _record_failure(pending, error.to_failure(pending.request.id))) is not None
            ]
        scores, served = answered.value
        outcomes = [
            _add_score(pending, prompt, score, answered.seconds, served)
            for (pending, prompt), score in zip(chunk, scores, strict=True)
        ]
        return [outcome for outcome in outcomes if outcome is not None]

    def _bound_scoring(self, prompts: Sequence[ScoringPrompt]) -> TokenBound:
        """Return the largest number of tokens of a call that scores prompts and generates one token for each at most."""
        counts = [self._count_prompt_tokens(one.prompt) for one in prompts]
        characters = sum(len(one.prompt) for one in prompts if isinstance(one.prompt, str))
        return self._bounds.compute_plain(sum(counts), len(prompts), characters)

    def _bound_generation(self, request: Generate, prompt: Sequence[int] | str) -> TokenBound:
        tokens, characters = self._count_prompt_tokens(prompt), len(prompt) if isinstance(prompt, str) else 0
        return self._bounds.compute_plain(tokens, self.find_output_limit(request), characters)

    def _count_prompt_tokens(self, prompt: Sequence[int] | str) -> int:
        """Return the tokens of a prompt if the tokenizer is known, else the largest number: its bytes."""
        if not isinstance(prompt, str):
            return len(prompt)
        if self._tokenizer is None:
            return count_bytes(prompt) + 1  # the server may add a start token
        (tokens,) = self._tokenizer.encoder([prompt])
        return len(tokens) + 1

    # --- texts -------------------------------------------------------------------------------------

    async def _generate(self, request: Generate) -> list[Outcome]:
        endpoint = self._require_endpoint()
        if request.prompt.has_media or (request.prompt.chat and self._tokenizer is None):
            why = "text completions do not support media, and chats need tokenizer=NAME"
            return [Failure(request_id=request.id, kind="bad request", message=why)]
        try:
            payload, truncated = self._build_payload(request)
            bound = None
            if endpoint.rate_limit.tokens is not None:
                bound = self._bound_generation(request, payload["prompt"])
            answered = await endpoint.post(PATH, payload, parse_text_reply, tokens=bound)
        except Unanswerable as error:
            return [_failure_from_unanswerable(request, error)]
        except CallFailed as error:
            return [error.to_failure(request.id)]
        choice, usage, served = answered.value
        if bound is not None:
            self._bounds.learn(bound, usage)
        if truncated:  # then the prompt is a list of tokens
            usage = replace(usage or Usage(len(payload["prompt"])), truncated_tokens=truncated)
        return [build_response(request, choice, usage, self._options, answered.seconds, served=served)]

    def _build_payload(self, request: Generate) -> tuple[dict[str, Any], int]:
        """Return the payload and the number of tokens removed from the prompt."""
        options, settings = self._options, request.settings
        limit = self._find_answer_limit(request)
        prompt, truncated = self._build_prompt(request, limit)
        payload: dict[str, Any] = {
            "model": options.model,
            "prompt": prompt,
            "max_tokens": limit,
            "temperature": settings.temperature,
        }
        if stops := collect_stop_strings(settings, options):
            payload["stop"] = list(stops[:MAX_STOPS])
        if (seed := compute_seed(settings, options, request.repeat)) is not None:
            payload["seed"] = seed
        if self._gives_tokens and self._capabilities.prompt_scores:
            payload["logprobs"] = 1
        return {**payload, **select_extra_settings(settings), **options.extra_body}, truncated

    def _find_answer_limit(self, request: Generate) -> int:
        limit = request.settings.max_tokens
        return self._options.max_gen_toks if limit is None else limit

    def _build_prompt(self, request: Generate, limit: int) -> tuple[list[int] | str, int]:
        """Return the prompt as tokens if the server accepts them, and the number of removed tokens."""
        tokenizer = self._tokenizer
        if tokenizer is None:
            return request.prompt.text, 0
        text = self._render_text(request, tokenizer)
        if not self._capabilities.token_prompts or self._options.tokenized_requests is False:
            return text, 0
        (tokens,) = tokenizer.encoder([text])
        fitted = fit_prompt(tokens, self._max_length - 1, limit)
        return fitted, len(tokens) - len(fitted)

    def _render_text(self, request: Request, tokenizer: Tokenizer) -> str:
        return tokenizer.apply_chat_template(request.prompt) if request.prompt.chat else request.prompt.text

    def _require_endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError("answer() was called before open()")
        return self._endpoint


def openai_completions(
    *, batch_size: Any = None, rpm: Any = None, tpm: Any = None, **arguments: Any
) -> CompletionsModel:
    """OpenAI's text completions. Uses tiktoken, as lm-eval does, unless `base_url` is given."""
    if "base_url" not in arguments:
        arguments = {"tokenizer_backend": "tiktoken", **arguments}
    return CompletionsModel(batch_size=batch_size, rpm=rpm, tpm=tpm, **arguments)


def _parse_scores_reply(
    prompts: Sequence[ScoringPrompt], value: Any, *, with_tokens: bool
) -> tuple[list[PromptLikelihood | Unanswerable], str]:
    served = format_served_name(value.get("model"), value.get("system_fingerprint"))
    return parse_scores(prompts, value, with_tokens=with_tokens), served


def parse_text_reply(value: Any) -> tuple[Choice, Usage | None, str]:
    """Parse the reply to one prompt: its choice, the usage and the name of the model."""
    raise_reported_error(value)
    choices = value["choices"]
    if not choices:
        raise BadReply('unexpected response format: no "choices"')
    raise_reported_error(choices[0], " for this choice")
    finish = OPENAI.classify(choices[0].get("finish_reason"))
    text = choices[0]["text"]
    if not isinstance(text, str):
        raise BadReply(f"unexpected response format: the answer is a {type(text).__name__}, not text")
    if not (text or finish):
        raise BadReply("unexpected response format: neither text nor `finish_reason`")
    served = format_served_name(value.get("model"), value.get("system_fingerprint"))
    return (
        Choice(text, finish, tokens=parse_tokens(choices[0].get("logprobs"))),
        parse_usage(value.get("usage")),
        served,
    )


def _add_score(
    pending: _PendingScore,
    prompt: ScoringPrompt,
    score: PromptLikelihood | Unanswerable,
    seconds: float,
    served: str,
) -> Outcome | None:
    """Add the score of a prompt; return the outcome if it was the last prompt of its request."""
    if isinstance(score, Unanswerable):
        return _record_failure(pending, _failure_from_unanswerable(pending.request, score))
    pending.missing -= 1
    pending.total += score.value.total
    pending.greedy = pending.greedy and score.value.greedy
    pending.token_count += score.token_count
    pending.tokens_by_window.append((prompt.window, score.tokens))
    if pending.missing or pending.failure is not None:
        return None
    greedy = pending.greedy and isinstance(pending.request, Likelihood)
    return Response(
        request_id=pending.request.id,
        value=LogProbability(pending.total, greedy),
        usage=Usage(pending.token_count, 0, truncated_tokens=pending.truncated),
        seconds=seconds,
        served=served,
        tokens=_join_tokens(pending.tokens_by_window),
    )


def _join_tokens(tokens_by_window: list[tuple[int, Tokens | None]]) -> Tokens | None:
    """Return the tokens of all windows in order; None if those of one window are unknown."""
    known = [one for _, one in sorted(tokens_by_window, key=itemgetter(0)) if one is not None]
    if len(known) < len(tokens_by_window):
        return None
    pieces = tuple(piece for one in known for piece in one.pieces)
    return Tokens(pieces, tuple(number for one in known for number in one.logprobs))


def _record_failure(pending: _PendingScore, failure: Failure) -> Failure | None:
    """Fail the request of a prompt; return the failure only once per request."""
    pending.missing -= 1
    first, pending.failure = pending.failure is None, failure
    return failure if first else None


def _failure_from_unanswerable(request: Request, error: Unanswerable) -> Failure:
    return Failure(request_id=request.id, kind="bad request", message=str(error))
