"""`TextBackend`: the backend of `HfModel` for causal and encoder-decoder text models."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from assay.core.ports import Ability, ComputeMeter, TruncatedPrompt
from assay.core.records.messages import Media
from assay.core.records.requests import Generate, Likelihood, Request, RollingLikelihood
from assay.core.records.responses import Failure, LogProbability, Outcome, Response, Tokens, Usage
from assay.models.hf.arguments import HfArguments
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.tokenizer import CheckpointTokenizer
from assay.models.hf.loading.weights import load_config
from assay.models.hf.sampling import sampling_from_request
from assay.models.hf.text.engine import CONTEXT_LENGTH_KEYS, TextEngine, find_max_length
from assay.models.hf.text.jobs import GenerationJob, find_transformers_settings
from assay.models.reasoning import ReasoningSplitter
from assay.models.tokens import (
    Pair,
    Unanswerable,
    encode_pair,
    encode_pairs,
    fit_pair,
    fit_prompt,
    split_rolling_windows,
)
from assay.models.tool_calls import supports_tools

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["TextBackend"]

_MAX_SPECIAL_TOKENS = 64
"""Room for tokens that a tokenizer adds to a text."""


@dataclass(slots=True)
class _EncodedWindow:
    """A window of requests as tokens."""

    pairs: list[Pair] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    """The request that each pair belongs to. A long text has several pairs."""

    scoring_plan: Any = None
    """The planned passes that score the pairs."""

    prompt_plan: Any = None
    """The planned passes that read the prompts of the jobs."""

    scored: list[Likelihood | RollingLikelihood] = field(default_factory=list)
    jobs: list[GenerationJob] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    """Answers that need no model: the log probability of an empty text."""


class TextBackend:
    """Answers text requests with generated text or log probabilities."""

    needs: frozenset[Ability] = frozenset()
    window = 512

    def __init__(self, arguments: HfArguments, checkpoint: Checkpoint) -> None:
        self._arguments = arguments
        self._checkpoint = checkpoint
        kind = checkpoint.kind if arguments.backend == "default" else arguments.backend
        self._has_encoder = kind == "seq2seq"
        self._tokenizer = CheckpointTokenizer(arguments, checkpoint, has_encoder=self._has_encoder)
        self._engine: TextEngine | None = None
        self._previous_seconds = 0.0
        self.reports_tokens = False

    @cached_property
    def abilities(self) -> frozenset[Ability]:
        """With thinking enabled, the model gives no likelihoods; without a chat template, it does not chat."""
        found: set[Ability] = {"generate", "likelihood", "rolling"}
        if self._arguments.enable_thinking:
            found -= {"likelihood"}
        if self._arguments.chat_template or self._checkpoint.has_chat_template:
            found |= {"chat"}
        if supports_tools(self._checkpoint.find_template(self._arguments.chat_template, tools=True)):
            found |= {"tools"}
        return frozenset(found)

    @property
    def model_seconds(self) -> float:
        return self._previous_seconds + (0.0 if self._engine is None else self._engine.model_seconds)

    def to_identity(self) -> dict[str, str]:
        """Return nothing: answers depend only on the files and the shared arguments."""
        return {}

    def prepare(self, part: Media) -> None:
        """Do nothing: a request with media is a failure."""

    def load(self) -> None:
        if self._engine is None:
            self._engine = TextEngine(
                self._arguments, self._checkpoint, self._tokenizer, has_encoder=self._has_encoder
            )
            self._engine.reports_tokens = self.reports_tokens

    def unload(self) -> None:
        self._previous_seconds = self.model_seconds
        self._engine = None

    def start_meter(self) -> ComputeMeter:
        """Count the tokens that the model computes."""
        from assay.models.hf.compute_meter import TorchComputeMeter

        return TorchComputeMeter(self.engine.model, lambda: self.model_seconds)

    def interrupt(self) -> None:
        """Stop at the next pass."""
        if self._engine is not None:
            self._engine.interrupt()

    def preview(self, request: Request) -> str:
        """Return the text that the model will read, with its chat template applied."""
        return self._tokenizer.render_request(request)

    def preview_truncation(self, request: Request) -> TruncatedPrompt | None:
        """Return what remains of a prompt that exceeds the context length. Loads the tokenizer if the prompt may."""
        if isinstance(request, RollingLikelihood) or self._surely_fits(request):
            return None
        try:
            tokens, truncated = self._fit_request(request)
        except Unanswerable:
            return None  # the run reports it as a failure
        if not truncated:
            return None
        return TruncatedPrompt(
            text=self._tokenizer.decode(tokens, special=True), tokens=len(tokens), truncated_tokens=truncated
        )

    def count_input_tokens(self, request: Request) -> int | None:
        """Return the tokens of the prompt that the model will read; unknown for long texts that are split into windows."""
        if isinstance(request, RollingLikelihood):
            return None
        try:
            return len(self._fit_request(request)[0])
        except Unanswerable:
            return 0  # the run reports it as a failure

    def _fit_request(self, request: Generate | Likelihood) -> tuple[list[int], int]:
        """Return the tokens of a prompt that the model reads, and the number of removed ones."""
        text = self._tokenizer.render_request(request)
        if isinstance(request, Likelihood):
            encoder = self._tokenizer.scoring_encoder
            pair = self._fit_pair(
                encode_pair(text, request.continuation, encoder, separate=self._has_encoder)
            )
            return pair.context, pair.truncated
        (whole,) = self._tokenizer.prompt_encoder([text])
        splitter, limit, budget = self._find_limits(request, text)
        return self._fit_prompt(whole, limit + self._count_reasoning_tokens(splitter, budget))

    def _surely_fits(self, request: Generate | Likelihood) -> bool:
        """Return whether a prompt fits by its size, which needs no tokenizer: a token has at least one byte."""
        if request.prompt.chat:
            return False  # the template adds text
        config = self._checkpoint.config
        known = (config.get("text_config") or config).get
        lengths = (known(key) for key in CONTEXT_LENGTH_KEYS)
        room = self._arguments.max_length or next((int(one) for one in lengths if one is not None), 0)
        if isinstance(request, Likelihood):
            answer = len(request.continuation.encode("utf-8", "replace"))
        else:
            limit = request.settings.max_tokens
            answer = self._arguments.max_gen_toks if limit is None else limit
        size = len(request.prompt.text.encode("utf-8", "replace"))
        return size + answer + _MAX_SPECIAL_TOKENS <= room

    def encode(self, window: Sequence[Request]) -> _EncodedWindow:
        """Tokenize a window, with one call of the tokenizer per kind of request."""
        found = _EncodedWindow()
        texts: list[tuple[Request, str]] = []
        for request in window:
            if isinstance(request, Likelihood) and "likelihood" not in self.abilities:
                found.failures.append(_failure(request, "likelihoods are not available with enable_thinking"))
                continue
            try:
                texts.append((request, self._tokenizer.render_request(request)))
            except Unanswerable as error:
                found.failures.append(_failure(request, str(error)))
        self._encode_likelihoods([(one, text) for one, text in texts if isinstance(one, Likelihood)], found)
        self._encode_rolling(
            [(one, text) for one, text in texts if isinstance(one, RollingLikelihood)], found
        )
        self._encode_prompts([(one, text) for one, text in texts if isinstance(one, Generate)], found)
        found.scoring_plan = self.engine.plan_scoring(found.pairs)
        found.prompt_plan = self.engine.plan_prompts(found.jobs)
        return found

    def _encode_likelihoods(self, requests: Sequence[tuple[Likelihood, str]], found: _EncodedWindow) -> None:
        texts = [(text, request.continuation) for request, text in requests]
        pairs = encode_pairs(texts, self._tokenizer.scoring_encoder, separate=self._has_encoder)
        for (request, _), pair in zip(requests, pairs, strict=True):
            try:
                if isinstance(pair, Unanswerable):
                    raise pair
                self._add_pairs(request, [self._fit_pair(pair)], found)
            except Unanswerable as error:
                found.failures.append(_failure(request, str(error)))

    def _encode_rolling(
        self, requests: Sequence[tuple[RollingLikelihood, str]], found: _EncodedWindow
    ) -> None:
        encoder, max_length = self._tokenizer.scoring_encoder, self._max_length
        for (request, _), tokens in zip(requests, encoder([text for _, text in requests]), strict=True):
            windows = split_rolling_windows(tokens, prefix_token=encoder.prefix_token, max_length=max_length)
            if windows:
                self._add_pairs(request, windows, found)
            else:
                no_tokens = Tokens((), ()) if self.reports_tokens else None
                found.responses.append(
                    Response(request_id=request.id, value=LogProbability(0.0, True), tokens=no_tokens)
                )

    def _encode_prompts(self, requests: Sequence[tuple[Generate, str]], found: _EncodedWindow) -> None:
        """Make one job per prompt and settings: greedy repeats are generated once, sampled ones share their prompt."""
        engine = self.engine
        jobs: dict[tuple[str, str], GenerationJob] = {}
        prompts = self._tokenizer.prompt_encoder([text for _, text in requests])
        for (request, text), tokens in zip(requests, prompts, strict=True):
            job = jobs.get((text, request.settings.digest))
            if job is not None:
                job.requests.append(request)
                continue
            splitter, limit, budget = self._find_limits(request, text)
            try:
                fitted, truncated = self._fit_prompt(
                    tokens, limit + self._count_reasoning_tokens(splitter, budget)
                )
            except Unanswerable as error:
                found.failures.append(_failure(request, str(error)))
                continue
            job = GenerationJob(
                tokens=fitted,
                requests=[request],
                sampling=sampling_from_request(request, engine.generation_defaults),
                limit=limit if budget is None else max(1, budget),
                answer_limit=None if budget is None else limit,
                stops=tuple(dict.fromkeys((*request.settings.stop, self._tokenizer.end_text))),
                splitter=splitter,
                transformers_settings=find_transformers_settings(request, engine.generation_defaults),
                truncated=truncated,
            )
            jobs[text, request.settings.digest] = job
            found.jobs.append(job)

    def _find_limits(self, request: Generate, text: str) -> tuple[ReasoningSplitter, int, int | None]:
        """Return how to find the reasoning, the token limit of the answer, and that of the reasoning if it has one."""
        limit = request.settings.max_tokens
        limit = self._arguments.max_gen_toks if limit is None else limit
        splitter = self._tokenizer.make_splitter(request.prompt, text)
        return splitter, limit, request.settings.thinking_budget if splitter.format is not None else None

    def _count_reasoning_tokens(self, splitter: ReasoningSplitter, budget: int | None) -> int:
        """Return the tokens that a thinking budget adds to the token limit of the answer: the budget and the end mark."""
        if budget is None or splitter.format is None:
            return 0
        return max(1, budget) + len(self._tokenizer.encode([splitter.format.closing_text], False)[0])

    @property
    def _max_length(self) -> int:
        """The context length, from the small files of the checkpoint if the model is not loaded."""
        return self._configured_max_length if self._engine is None else self._engine.max_length

    @cached_property
    def _configured_max_length(self) -> int:
        if self._arguments.max_length:
            return self._arguments.max_length
        return find_max_length(load_config(self._arguments, self._checkpoint), self._tokenizer.tokenizer)

    def _fit_prompt(self, tokens: list[int], max_new_tokens: int) -> tuple[list[int], int]:
        """Return the tokens of a prompt that fit before the answer, and the number of removed ones."""
        whole = tokens or [self._tokenizer.prefix_token]
        max_length = self._max_length + (max_new_tokens if self._has_encoder else 0)
        fitted = fit_prompt(whole, max_length, max_new_tokens)
        return fitted, len(whole) - len(fitted)

    def _fit_pair(self, pair: Pair) -> Pair:
        max_length = self._max_length
        if self._has_encoder:
            context = pair.context[-max_length:]
            excess = len(pair.context) - len(context)
            return Pair(context, pair.continuation[-max_length:], pair.truncated + excess)
        return fit_pair(pair, max_length)

    def _add_pairs(
        self, request: Likelihood | RollingLikelihood, pairs: Sequence[Pair], found: _EncodedWindow
    ) -> None:
        found.owners.extend([len(found.scored)] * len(pairs))
        found.pairs.extend(pairs)
        found.scored.append(request)

    @property
    def engine(self) -> TextEngine:
        """The loaded model."""
        if self._engine is None:
            raise RuntimeError("encode() was called before load()")
        return self._engine

    def answer(self, encoded: _EncodedWindow) -> Iterator[Outcome]:
        """Yield failures first, then likelihoods, then generated answers."""
        yield from encoded.failures
        yield from encoded.responses
        yield from self._score(encoded)
        yield from self.engine.generate(encoded.jobs, encoded.prompt_plan)

    def _score(self, encoded: _EncodedWindow) -> Iterator[Response]:
        """Score all pairs. A long text is complete when the last of its windows is scored."""
        totals = [0.0] * len(encoded.scored)
        greedy = [True] * len(encoded.scored)
        missing = [0] * len(encoded.scored)
        for owner in encoded.owners:
            missing[owner] += 1
        log_probabilities: list[list[float]] = [[] for _ in encoded.pairs] if self.reports_tokens else []
        on_tokens = partial(_record_log_probabilities, log_probabilities) if log_probabilities else None
        started = time.perf_counter()
        for index, total, is_greedy in self.engine.score(encoded.pairs, encoded.scoring_plan, on_tokens):
            owner = encoded.owners[index]
            totals[owner] += total
            greedy[owner] &= is_greedy
            missing[owner] -= 1
            if not missing[owner]:
                pair = encoded.pairs[index]
                yield Response(
                    request_id=encoded.scored[owner].id,
                    value=LogProbability(totals[owner], greedy[owner]),
                    usage=Usage(len(pair.context), len(pair.continuation), truncated_tokens=pair.truncated),
                    seconds=time.perf_counter() - started,
                    tokens=self._collect_tokens(encoded, owner, log_probabilities)
                    if log_probabilities
                    else None,
                )

    def _collect_tokens(
        self, encoded: _EncodedWindow, owner: int, log_probabilities: Sequence[Sequence[float]]
    ) -> Tokens:
        """Return the tokens of a request, over all its windows."""
        tokens = [
            self.engine.build_response_tokens(pair, log_probabilities[index])
            for index, (pair, pair_owner) in enumerate(zip(encoded.pairs, encoded.owners, strict=True))
            if pair_owner == owner
        ]
        pieces, logprobs = zip(*((one.pieces, one.logprobs) for one in tokens), strict=True)
        return Tokens(tuple(chain.from_iterable(pieces)), tuple(chain.from_iterable(logprobs)))


def _record_log_probabilities(
    log_probabilities: list[list[float]], pair_indexes: NDArray[np.int64], values: NDArray[np.float64]
) -> None:
    for index, value in zip(pair_indexes.tolist(), values.tolist(), strict=True):
        log_probabilities[index].append(value)


def _failure(request: Request, message: str) -> Failure:
    return Failure(request_id=request.id, kind="bad request", message=message)
