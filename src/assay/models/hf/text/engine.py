"""A loaded text model: scores pairs and generates answers, with or without prefix sharing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast

from assay.core.records.responses import Failure, Outcome, Tokens
from assay.models.hf.arguments import HfArguments
from assay.models.hf.batch_budget import BatchBudget
from assay.models.hf.free_memory import find_free_bytes
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.loaded_objects import ForeignModel, adapt_module
from assay.models.hf.loading.tokenizer import CheckpointTokenizer
from assay.models.hf.loading.weights import find_text_class, find_torch_dtype, load_config, load_weights
from assay.models.hf.prefix_sharing.check import can_share_prefixes
from assay.models.hf.prefix_sharing.model_runner import ModelRunner
from assay.models.hf.prefix_sharing.prefill import plan_prefill
from assay.models.hf.text.encoder_decoder import score_encoder_decoder
from assay.models.hf.text.generation import generate_answers
from assay.models.hf.text.jobs import AnswerBuilder, GenerationJob
from assay.models.hf.text.scoring import TokenCallback, plan_scoring, score_shared, score_unshared
from assay.models.hf.text.transformers_generation import generate_with_transformers
from assay.models.reasoning import ReasoningSplitter
from assay.models.tokens import Pair, StopStringDetector, build_tokens

__all__ = ["CONTEXT_LENGTH_KEYS", "TextEngine", "find_max_length"]

CONTEXT_LENGTH_KEYS = ("n_positions", "max_position_embeddings", "n_ctx")
"""Keys of `config.json` with the context length, in the order of lm-eval."""

_DEFAULT_MAX_LENGTH = 2048
_UNSET_LENGTH = 10**12
"""Lengths from this on mean that the tokenizer has no limit configured."""

_MAX_LOGITS = 1 << 26
"""Maximum number of logits in memory at once."""


class TextEngine:
    """Runs a text model on tokens. The backend has already converted requests and texts."""

    def __init__(
        self,
        arguments: HfArguments,
        checkpoint: Checkpoint,
        tokenizer: CheckpointTokenizer,
        *,
        has_encoder: bool,
    ) -> None:
        self._arguments = arguments
        self._tokenizer = tokenizer
        self._has_encoder = has_encoder
        self.reports_tokens = False
        self._measured_seconds = 0.0
        config = load_config(arguments, checkpoint)
        self._changes_layers = checkpoint.model is None
        """Whether layers may be replaced by faster ones; a model that a script loaded stays as it is."""

        if checkpoint.model is not None:
            self.model = adapt_module(checkpoint.model)
        else:
            auto_class = find_text_class(config, has_encoder=has_encoder)
            self.model = load_weights(arguments, config, auto_class, tokenizer.tokenizer)
        self.max_length = arguments.max_length or find_max_length(config, tokenizer.tokenizer)
        self.generation_defaults = self.model.generation_config
        self._end_tokens = find_end_tokens(self.model, tokenizer.tokenizer)
        self._softmax_dtype = (
            find_torch_dtype(arguments.softmax_dtype, "softmax_dtype") if arguments.softmax_dtype else None
        )
        self._configure(config)
        # during generation, one or two tokens are decoded at a time, and they often repeat
        self._decode_cached = lru_cache(1 << 14)(partial(tokenizer.decode, special=True))

    def _configure(self, config: Any) -> None:
        arguments = self._arguments
        mixed = arguments.mixed_precision_dtype
        self._runner = ModelRunner(
            self.model,
            autocast_dtype=find_torch_dtype(mixed, "mixed_precision_dtype") if mixed else None,
            block_attention=self._changes_layers and "attn_implementation" not in arguments.loading,
        )
        self.shares_prefixes = (
            not self._has_encoder
            and arguments.work_once
            and not isinstance(self.model, ForeignModel)
            and can_share_prefixes(self._runner, self.max_length)
        )
        if self.shares_prefixes:
            self._runner.separate_head()
        on_gpu = self._runner.device.type != "cpu"
        batch = arguments.batch_size
        usual = 4096 if on_gpu else 512
        tokens = usual if batch == "auto" else min(usual, max(512, int(batch) * 512))
        self._token_budget = BatchBudget(tokens, minimum=8)
        self._row_budget = BatchBudget(
            (arguments.max_batch_size if on_gpu else 16) if batch == "auto" else int(batch)
        )
        vocabulary = int(getattr(config.get_text_config(decoder=True), "vocab_size", 1 << 15))
        self._logit_rows = max(64, _MAX_LOGITS // vocabulary)
        self._cache_bytes = (arguments.cache_memory_mb or 0) << 20 or _find_cache_budget(self._runner.device)

    @property
    def model_seconds(self) -> float:
        return self._runner.model_seconds + self._measured_seconds

    def interrupt(self) -> None:
        """Make the next pass raise `InterruptedError`."""
        self._runner.interrupted = True

    def plan_scoring(self, pairs: Sequence[Pair]) -> Any:
        """Plan the passes of `score` in advance, while the model computes something else."""
        if not pairs or not self.shares_prefixes:
            return None
        max_logit_rows = sys.maxsize if self._runner.separates_head else self._logit_rows
        return plan_scoring(pairs, self._runner, self._token_budget, max_logit_rows=max_logit_rows)

    def score(
        self, pairs: Sequence[Pair], passes: Any, on_tokens: TokenCallback | None = None
    ) -> Iterator[tuple[int, float, bool]]:
        """Yield the index, log probability and greediness of each pair, in any order. `on_tokens` gets every token."""
        if not pairs:
            return iter(())
        softmax_dtype = self._softmax_dtype
        if self._has_encoder:
            return score_encoder_decoder(
                pairs,
                self.model,
                self._token_budget,
                softmax_dtype=softmax_dtype,
                measure=self._measure,
                on_tokens=on_tokens,
            )
        runner, budget = self._runner, self._token_budget
        if self.shares_prefixes:
            return score_shared(pairs, passes, runner, softmax_dtype=softmax_dtype, on_tokens=on_tokens)
        return score_unshared(pairs, runner, budget, softmax_dtype=softmax_dtype, on_tokens=on_tokens)

    def plan_prompts(self, jobs: Sequence[GenerationJob]) -> Any:
        """Plan the passes that read the prompts of `generate` in advance."""
        shared_jobs, _ = self._split_jobs(jobs)
        return (
            plan_prefill([job.tokens for job in shared_jobs], self._runner, self._token_budget)
            if shared_jobs
            else None
        )

    def _split_jobs(self, jobs: Sequence[GenerationJob]) -> tuple[list[GenerationJob], list[GenerationJob]]:
        """Split jobs into those with prefix sharing and those for the `generate` method of transformers."""
        parts: tuple[list[GenerationJob], list[GenerationJob]] = [], []
        for job in jobs:
            parts[not (self.shares_prefixes and job.transformers_settings is None and job.limit > 0)].append(
                job
            )
        return parts

    def generate(self, jobs: Sequence[GenerationJob], passes: Any) -> Iterator[Outcome]:
        """Generate the answers of all jobs. Jobs that use up their thinking budget continue with their answer."""
        started = time.perf_counter()
        continued: list[GenerationJob] = []
        for result in self._generate(jobs, passes):
            job = (
                result.continue_after_reasoning(self._tokenizer)
                if isinstance(result, AnswerBuilder)
                else None
            )
            if job is not None:
                continued.append(job)
            elif isinstance(result, AnswerBuilder):
                yield from self._build_responses(result, started)
            else:
                yield result
        if continued:
            yield from self.generate(continued, self.plan_prompts(continued))

    def _generate(self, jobs: Sequence[GenerationJob], passes: Any) -> Iterator[AnswerBuilder | Failure]:
        shared_jobs, other_jobs = self._split_jobs(jobs)
        if shared_jobs:
            yield from generate_answers(
                shared_jobs,
                passes,
                self._runner,
                self._row_budget,
                end_tokens=self._end_tokens,
                seed=self._arguments.seed,
                make_stop_detector=self._make_stop_detector,
                cache_bytes=self._cache_bytes,
            )
        if other_jobs:
            for result in generate_with_transformers(
                other_jobs,
                self.model,
                self._row_budget,
                end_tokens=self._end_tokens,
                pad_token=find_pad_token(self._tokenizer.tokenizer),
                seed=self._arguments.seed,
                has_encoder=self._has_encoder,
                make_stop_detector=self._make_stop_detector,
                measure=self._measure,
                raise_if_interrupted=self._runner.raise_if_interrupted,
            ):
                if isinstance(result, AnswerBuilder):
                    yield result
                else:
                    job, error = result
                    for request in job.requests:
                        yield Failure(request_id=request.id, kind="bad request", message=str(error))

    def _build_responses(self, answer: AnswerBuilder, started: float) -> Iterator[Outcome]:
        think_end = self._arguments.think_end_token
        seconds = time.perf_counter() - started
        found = answer.build_responses(self._tokenizer, think_end, seconds)
        if not self.reports_tokens or not answer.tokens:
            yield from found
            return
        tokens = self.build_response_tokens(
            Pair(answer.job.tokens, answer.tokens), self._score_answer(answer)
        )
        yield from (replace(response, tokens=tokens) for response in found)

    def _score_answer(self, answer: AnswerBuilder) -> list[float]:
        """Return the log probability of each token of an answer, by scoring the answer after generation."""
        log_probabilities: list[float] = []
        pair = [Pair(answer.job.tokens, answer.tokens)]
        for _ in self.score(
            pair, self.plan_scoring(pair), lambda _, numbers: log_probabilities.extend(numbers.tolist())
        ):
            pass
        return log_probabilities

    def build_response_tokens(self, pair: Pair, log_probabilities: Sequence[float]) -> Tokens:
        """Return the tokens of a continuation with their log probabilities. Special tokens appear by name."""
        return build_tokens(
            pair.continuation, log_probabilities, self._decode_with_special, before=pair.context
        )

    def _decode_with_special(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens, special=True)

    def _make_stop_detector(self, job: GenerationJob) -> StopStringDetector:
        """Return a detector that looks for stop strings in the answer, not in the reasoning before it."""
        think_end = self._arguments.think_end_token
        splitter = ReasoningSplitter() if job.written else job.splitter  # the reasoning has ended
        marks = (
            (self._tokenizer.decode([think_end], special=True),)
            if isinstance(think_end, int)
            else splitter.end_marks
        )
        return StopStringDetector(
            job.stops,
            lambda tokens: self._decode_cached(tuple(tokens)),
            after=marks,
            can_begin=None if splitter.format is None or splitter.is_open else splitter.can_begin,
        )

    def _measure(self, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return call()
        finally:
            self._measured_seconds += time.perf_counter() - started


def find_max_length(config: Any, tokenizer: Any) -> int:
    """Return the context length of a model: that of its config, else of its tokenizer, else 2048."""
    text = getattr(config, "text_config", None) or config
    for name in CONTEXT_LENGTH_KEYS:
        if (value := getattr(text, name, None)) is not None:
            return int(value)
    configured = getattr(tokenizer, "model_max_length", None)
    return int(configured) if configured is not None and configured < _UNSET_LENGTH else _DEFAULT_MAX_LENGTH


def find_end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end an answer: those of the generation config and of the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    found = {*configured} if isinstance(configured, (list, tuple)) else {configured}
    found.add(tokenizer.eos_token_id)
    return frozenset(int(token) for token in found if token is not None)


def find_pad_token(tokenizer: Any) -> int:
    """Return the padding token. Any token works, because padding is masked."""
    for name in ("pad_token_id", "unk_token_id", "eos_token_id"):
        if (token := getattr(tokenizer, name, None)) is not None:
            return int(token)
    return 0


def _find_cache_budget(device: Any) -> int:
    """Return a quarter of the free memory."""
    import torch

    if device.type == "cuda":
        return cast(int, torch.cuda.mem_get_info(device)[0]) // 4
    free_bytes = find_free_bytes()
    return 4 << 30 if free_bytes is None else free_bytes // 4
