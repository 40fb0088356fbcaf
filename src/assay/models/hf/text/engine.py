"""A loaded model of text and everything that decides how it computes: what it shares, how much at once, how long it may read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast

from assay.core.responses import Failure, Outcome, Tokens
from assay.models.hf.arguments import HfArguments
from assay.models.hf.batch_budget import Budget
from assay.models.hf.loading.checkpoint import Checkpoint
from assay.models.hf.loading.tokenizer import Vocabulary
from assay.models.hf.loading.weights import load_config, load_weights, text_class, torch_dtype
from assay.models.hf.prefix_sharing.check import can_share
from assay.models.hf.prefix_sharing.model_runner import Runner
from assay.models.hf.prefix_sharing.prefill import arrange_prompts
from assay.models.hf.text.encoder_decoder import score_encoded
from assay.models.hf.text.generation import write
from assay.models.hf.text.jobs import Job, Writer
from assay.models.hf.text.scoring import Tell, arrange, score_plainly, score_shared
from assay.models.hf.text.transformers_generation import write_plainly
from assay.models.tokens import Pair, StopWatch, told_tokens

__all__ = ["Engine"]

_DEFAULT_MAX_LENGTH = 2048
_UNSAID = 10**12
"""Longer than this a tokenizer means: nobody said."""

_LOGITS = 1 << 26
"""Numbers of logits that are held at once."""


class Engine:
    """Computes. Everything about requests and texts is decided before."""

    def __init__(
        self, arguments: HfArguments, checkpoint: Checkpoint, vocabulary: Vocabulary, *, has_encoder: bool
    ) -> None:
        self._arguments = arguments
        self._vocabulary = vocabulary
        self._has_encoder = has_encoder
        self.gives_tokens = False
        self._timed_seconds = 0.0
        config = load_config(arguments, checkpoint)
        auto_class = text_class(config, has_encoder=has_encoder)
        self.model = load_weights(arguments, config, auto_class, vocabulary.tokenizer)
        self.max_length = arguments.max_length or max_length_of(config, vocabulary.tokenizer)
        self.defaults = self.model.generation_config
        self._ends = end_tokens(self.model, vocabulary.tokenizer)
        self._softmax_dtype = (
            torch_dtype(arguments.softmax_dtype, "softmax_dtype") if arguments.softmax_dtype else None
        )
        self._prepare(config)
        # what is decoded while an answer is written is one or two tokens, often the same ones
        self._spelled = lru_cache(1 << 14)(partial(vocabulary.decode, special=True))

    def _prepare(self, config: Any) -> None:
        arguments = self._arguments
        mixed = arguments.mixed_precision_dtype
        self._runner = Runner(
            self.model,
            autocast_dtype=torch_dtype(mixed, "mixed_precision_dtype") if mixed else None,
            own_attention="attn_implementation" not in arguments.loading,
        )
        self.shares = (
            not self._has_encoder and arguments.work_once and can_share(self._runner, self.max_length)
        )
        on_gpu = self._runner.device.type != "cpu"
        batch = arguments.batch_size
        usual = 4096 if on_gpu else 512
        tokens = usual if batch == "auto" else min(usual, max(512, int(batch) * 512))
        self._tokens = Budget(tokens, least=8)
        self._rows = Budget((arguments.max_batch_size if on_gpu else 16) if batch == "auto" else int(batch))
        vocabulary = int(getattr(config.get_text_config(decoder=True), "vocab_size", 1 << 15))
        self._logit_rows = max(64, _LOGITS // vocabulary)
        self._cache_bytes = (arguments.cache_memory_mb or 0) << 20 or _spare_bytes(self._runner.device)

    @property
    def model_seconds(self) -> float:
        return self._runner.model_seconds + self._timed_seconds

    def halt(self) -> None:
        """Let the next pass raise; the model is not used again."""
        self._runner.halted = True

    def arrange(self, pairs: Sequence[Pair]) -> Any:
        """What `score` can be spared: done while the model computes something else."""
        if not pairs or not self.shares:
            return None
        return arrange(pairs, self._runner, self._tokens, rows=self._logit_rows)

    def score(
        self, pairs: Sequence[Pair], arranged: Any, tell: Tell | None = None
    ) -> Iterator[tuple[int, float, bool]]:
        """Log-probability of each pair, and whether it is greedy; in any order. `tell` hears of every token."""
        if not pairs:
            return iter(())
        softmax_dtype = self._softmax_dtype
        if self._has_encoder:
            return score_encoded(
                pairs, self.model, self._tokens, softmax_dtype=softmax_dtype, timed=self._timed, tell=tell
            )
        runner, tokens, rows = self._runner, self._tokens, self._logit_rows
        if self.shares:
            return score_shared(pairs, arranged, runner, softmax_dtype=softmax_dtype, tell=tell)
        return score_plainly(pairs, runner, tokens, rows=rows, softmax_dtype=softmax_dtype, tell=tell)

    def arrange_prompts(self, jobs: Sequence[Job]) -> Any:
        """What `write` can be spared: done while the model computes something else."""
        own, _ = self._parted(jobs)
        return arrange_prompts([job.tokens for job in own], self._runner, self._tokens) if own else None

    def _parted(self, jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
        """Jobs that are written here, and those left to transformers."""
        parts: tuple[list[Job], list[Job]] = [], []
        for job in jobs:
            parts[not (self.shares and job.others is None and job.limit > 0)].append(job)
        return parts

    def write(self, jobs: Sequence[Job], arranged: Any) -> Iterator[Outcome]:
        """The answers of each job."""
        own, rest = self._parted(jobs)
        started = time.perf_counter()
        if own:
            for writer in write(
                own,
                arranged,
                self._runner,
                self._rows,
                ends=self._ends,
                seed=self._arguments.seed,
                watch=self._watch,
                cache_bytes=self._cache_bytes,
            ):
                yield from self._responses(writer, started)
        if rest:
            for result in write_plainly(
                rest,
                self.model,
                self._rows,
                ends=self._ends,
                pad_token=pad_token(self._vocabulary.tokenizer),
                seed=self._arguments.seed,
                has_encoder=self._has_encoder,
                watch=self._watch,
                timed=self._timed,
                check=self._runner.check,
            ):
                if isinstance(result, Writer):
                    yield from self._responses(result, started)
                else:
                    job, error = result
                    for request in job.requests:
                        yield Failure(request_id=request.id, kind="bad request", message=str(error))

    def _responses(self, writer: Writer, started: float) -> Iterator[Outcome]:
        mark = self._arguments.think_end_token
        seconds = time.perf_counter() - started
        found = writer.responses(self._vocabulary, mark, seconds)
        if not self.gives_tokens or not writer.tokens:
            yield from found
            return
        told = self.tokens_of(Pair(writer.job.tokens, writer.tokens), self._read_again(writer))
        yield from (replace(response, tokens=told) for response in found)

    def _read_again(self, writer: Writer) -> list[float]:
        """How likely each token of an answer was. What writes it does not say, so the answer is read once more."""
        chances: list[float] = []
        pair = [Pair(writer.job.tokens, writer.tokens)]
        for _ in self.score(pair, self.arrange(pair), lambda _, numbers: chances.extend(numbers.tolist())):
            pass
        return chances

    def tokens_of(self, pair: Pair, chances: Sequence[float]) -> Tokens:
        """The tokens of a continuation with their log-probabilities, special ones by their names."""
        return told_tokens(pair.continuation, chances, self._spell, before=pair.context)

    def _spell(self, tokens: Sequence[int]) -> str:
        return self._vocabulary.decode(tokens, special=True)

    def _watch(self, job: Job) -> StopWatch:
        """Stop strings count in the answer, not in the thinking before it."""
        mark = self._arguments.think_end_token
        text = self._vocabulary.decode([mark], special=True) if isinstance(mark, int) else mark or ""
        return StopWatch(job.stops, lambda tokens: self._spelled(tuple(tokens)), after=text)

    def _timed(self, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return call()
        finally:
            self._timed_seconds += time.perf_counter() - started


def max_length_of(config: Any, tokenizer: Any) -> int:
    """How many tokens a model can hold: what its config says, else its tokenizer, else 2048."""
    text = getattr(config, "text_config", None) or config
    for name in ("n_positions", "max_position_embeddings", "n_ctx"):
        if (value := getattr(text, name, None)) is not None:
            return int(value)
    said = getattr(tokenizer, "model_max_length", None)
    return int(said) if said is not None and said < _UNSAID else _DEFAULT_MAX_LENGTH


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer: those of the generation config, and the tokenizer's own."""
    said = getattr(model.generation_config, "eos_token_id", None)
    found = {*said} if isinstance(said, (list, tuple)) else {said}
    found.add(tokenizer.eos_token_id)
    return frozenset(int(token) for token in found if token is not None)


def pad_token(tokenizer: Any) -> int:
    """What rows are filled up with; any token does, since it is masked."""
    for name in ("pad_token_id", "unk_token_id", "eos_token_id"):
        if (token := getattr(tokenizer, name, None)) is not None:
            return int(token)
    return 0


def _spare_bytes(device: Any) -> int:
    """A quarter of the memory that is free now."""
    import os

    import torch

    if device.type == "cuda":
        return cast(int, torch.cuda.mem_get_info(device)[0]) // 4
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    except (ValueError, OSError, AttributeError):  # not every system says
        return 4 << 30
