"""Continuous batching: rows are generated together, token by token; finished rows leave and new ones join."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory, release_memory
from assay.models.hf.prefix_sharing.kv_cache import SequenceCache, make_growing_cache
from assay.models.hf.prefix_sharing.model_runner import ModelRunner
from assay.models.hf.prefix_sharing.pass_execution import PassPrefetcher
from assay.models.hf.prefix_sharing.prefill import prefill_prompts
from assay.models.hf.sampling import sample_tokens
from assay.models.hf.text.jobs import AnswerBuilder, GenerationJob
from assay.models.tokens import StopStringDetector

__all__ = ["generate_answers"]

_SPARE_TOKENS = 64
"""Tokens preallocated in a KV cache before it is copied into a larger one."""


class _ActiveRows:
    """The rows of the current batch: their KV cache, padded on the left, and the last token of each."""

    def __init__(self) -> None:
        self.answers: list[AnswerBuilder] = []
        self.tokens: list[int] = []
        self.cache: Any = None
        self.padding: list[int] = []
        """Padding of each row: where it starts in the cache."""

    def keep_rows(self, rows: list[int]) -> None:
        """Remove all other rows."""
        self.answers, self.tokens = [self.answers[row] for row in rows], [self.tokens[row] for row in rows]
        shared_padding = min((self.padding[row] for row in rows), default=0)
        self.padding = [self.padding[row] - shared_padding for row in rows]
        if not rows:
            self.cache = None
            return
        for layer in self.cache.layers:
            layer.select_rows(rows, shared_padding, _SPARE_TOKENS)

    def add_rows(self, joining: Sequence[tuple[AnswerBuilder, int, SequenceCache]]) -> None:
        """Add rows: an answer, its first token, and the KV cache of its prompt."""
        present = [self.slice_cache(row) for row in range(len(self.answers))]
        rows = [*present, *(past for _, _, past in joining)]
        longest = max(row.length for row in rows)
        self.cache = make_growing_cache(rows, _SPARE_TOKENS)
        self.padding = [longest - row.length for row in rows]
        self.answers += [answer for answer, _, _ in joining]
        self.tokens += [token for _, token, _ in joining]

    def slice_cache(self, row: int) -> SequenceCache:
        """Return the KV cache of one row, without padding."""
        padding = self.padding[row]
        layers = tuple(
            (layer.keys[row : row + 1, :, padding:], layer.values[row : row + 1, :, padding:])
            for layer in self.cache.layers
        )
        return SequenceCache(layers, layers[0][0].shape[2])


def generate_answers(
    jobs: Sequence[GenerationJob],
    passes: PassPrefetcher,
    runner: ModelRunner,
    budget: BatchBudget,
    *,
    end_tokens: frozenset[int],
    seed: int,
    make_stop_detector: Any,
    cache_bytes: int = 1 << 62,
) -> Iterator[AnswerBuilder]:
    """Generate answers and yield each as soon as it is complete. `passes` read the prompts of the jobs.

    Rows join while the batch has room (`budget`) and while the KV caches of all rows, at their full length, fit into
    `cache_bytes`.
    """
    waiting = _start_answers(jobs, passes, runner, end_tokens, seed, make_stop_detector)
    active = _ActiveRows()
    exhausted = False
    while not exhausted or active.answers:
        free = budget.size - len(active.answers)
        if not exhausted and (not active.answers or free >= max(1, budget.size // 4)):
            joining: list[tuple[AnswerBuilder, int, SequenceCache]] = []
            while len(joining) < max(free, 1) and (
                not (active.answers or joining) or _estimate_cache_bytes(active, joining) < cache_bytes
            ):
                found = next(waiting, None)
                if found is None:
                    exhausted = True
                    break
                answer, token, past = found
                if answer.add_token(token):
                    yield answer
                else:
                    joining.append((answer, token, past))
            if joining:
                with runner.count_model_time():
                    active.add_rows(joining)
        if active.answers:
            yield from _generate_step(active, runner, budget)


def _estimate_cache_bytes(
    active: _ActiveRows, joining: Sequence[tuple[AnswerBuilder, int, SequenceCache]]
) -> int:
    """Return the size of the KV caches of these rows and one more, if all reach the length of the longest."""
    answers = [*active.answers, *(answer for answer, _, _ in joining)]
    past = joining[0][2] if joining else active.slice_cache(0)
    longest = max(len(answer.job.tokens) + answer.job.limit for answer in answers)
    return (len(answers) + 1) * longest * past.token_bytes


def _start_answers(
    jobs: Sequence[GenerationJob],
    passes: PassPrefetcher,
    runner: ModelRunner,
    end_tokens: frozenset[int],
    seed: int,
    make_stop_detector: Any,
) -> Iterator[tuple[AnswerBuilder, int, SequenceCache]]:
    """Yield new answers with their first token, prompts in the order of the prefix tree."""
    for prompt in prefill_prompts(passes, runner):
        job = jobs[prompt.job]
        groups = [job.requests] if job.sampling.is_greedy else [[request] for request in job.requests]
        for requests in groups:
            generator = None if job.sampling.is_greedy else _make_generator(seed, requests[0])
            stop_detector: StopStringDetector = make_stop_detector(job)
            answer = AnswerBuilder(job, requests, stop_detector, end_tokens, generator, len(job.tokens))
            with runner.count_model_time():
                (token,) = sample_tokens(prompt.logits[None], [job.sampling], [generator])
            yield answer, token, prompt.past


def _make_generator(seed: int, request: Any) -> random.Random:
    """Return the random generator of one answer. It depends on the request and its repeat, not on the batch."""
    own = request.settings.seed
    return random.Random(
        f"{seed if own is None else own} {request.prompt.digest} {request.repeat} {request.round}"
    )


def _generate_step(active: _ActiveRows, runner: ModelRunner, budget: BatchBudget) -> Iterator[AnswerBuilder]:
    """Generate one token for every row; finished rows leave."""
    import torch

    length = active.cache.layers[0].keys.shape[2]
    tokens = torch.tensor(active.tokens, device=runner.device)[:, None]
    positions = torch.tensor([[answer.length - 1] for answer in active.answers], device=runner.device)
    mask = None
    if any(active.padding):
        mask = torch.ones((len(active.padding), length + 1), dtype=torch.long, device=runner.device)
        for row, padding in enumerate(active.padding):
            mask[row, :padding] = 0
    try:
        output = runner.forward(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=active.cache,
            use_cache=True,
            wanted=_FIRST_POSITION,
        )
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        yield from _generate_in_halves(active, runner, budget, length)
        return
    with runner.count_model_time():
        chosen = sample_tokens(
            output.logits[:, -1],
            [answer.job.sampling for answer in active.answers],
            [answer.generator for answer in active.answers],
        )
    unfinished = []
    for row, (answer, token) in enumerate(zip(active.answers, chosen, strict=True)):
        active.tokens[row] = token
        if answer.add_token(token):
            yield answer
        else:
            unfinished.append(row)
    if len(unfinished) < len(chosen):
        with runner.count_model_time():
            active.keep_rows(unfinished)


_FIRST_POSITION = np.zeros(1, np.int64)


def _generate_in_halves(
    active: _ActiveRows, runner: ModelRunner, budget: BatchBudget, length: int
) -> Iterator[AnswerBuilder]:
    """Out of memory: finish the rows in two halves, one after the other, and use smaller batches from now on."""
    if len(active.answers) < 2:
        raise MemoryError("a single answer does not fit into memory")
    budget.size = min(budget.size, len(active.answers))
    budget.halve()
    for layer in active.cache.layers:  # the failed step may have updated some layers
        layer.assign(layer.keys[:, :, :length], layer.values[:, :, :length], length)
    release_memory(runner.device)
    middle = len(active.answers) // 2
    first, second = _ActiveRows(), _ActiveRows()
    pasts = [active.slice_cache(row) for row in range(len(active.answers))]
    parts = list(zip(active.answers, active.tokens, pasts, strict=True))
    active.keep_rows([])
    for part, members in ((first, parts[:middle]), (second, parts[middle:])):
        part.add_rows(members)
        while part.answers:
            yield from _generate_step(part, runner, budget)
