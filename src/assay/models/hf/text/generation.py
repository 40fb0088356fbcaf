"""Answers written token by token, many rows at once: prompts share their prefixes, rows leave when done and others join."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from assay.models.hf.batch_budget import Budget, free_memory, is_out_of_memory
from assay.models.hf.prefix_sharing.kv_cache import KeptTokens, growing_cache
from assay.models.hf.prefix_sharing.model_runner import Runner
from assay.models.hf.prefix_sharing.pass_execution import Ahead
from assay.models.hf.prefix_sharing.prefill import prefill
from assay.models.hf.sampling import choose_tokens
from assay.models.hf.text.jobs import Job, Writer
from assay.models.tokens import StopWatch

__all__ = ["write"]

_ROOM = 64
"""Tokens a cache has room for before it is copied into a larger one."""


class _Rows:
    """Rows being written: their cache, padded at the left, and the token each has chosen last."""

    def __init__(self) -> None:
        self.writers: list[Writer] = []
        self.tokens: list[int] = []
        self.cache: Any = None
        self.first: list[int] = []
        """Where in the cache each row begins."""

    def keep(self, rows: list[int]) -> None:
        """Only these rows stay."""
        self.writers, self.tokens = [self.writers[row] for row in rows], [self.tokens[row] for row in rows]
        least = min((self.first[row] for row in rows), default=0)
        self.first = [self.first[row] - least for row in rows]
        if not rows:
            self.cache = None
            return
        for layer in self.cache.layers:
            layer.choose(rows, least, _ROOM)

    def join(self, begun: Sequence[tuple[Writer, int, KeptTokens]]) -> None:
        """Further rows beside those that are there."""
        present = [self._past(row) for row in range(len(self.writers))]
        rows = [*present, *(past for _, _, past in begun)]
        longest = max(row.length for row in rows)
        self.cache = growing_cache(rows, _ROOM)
        self.first = [longest - row.length for row in rows]
        self.writers += [writer for writer, _, _ in begun]
        self.tokens += [token for _, token, _ in begun]

    def _past(self, row: int) -> KeptTokens:
        first = self.first[row]
        layers = tuple(
            (layer.keys[row : row + 1, :, first:], layer.values[row : row + 1, :, first:])
            for layer in self.cache.layers
        )
        return KeptTokens(layers, layers[0][0].shape[2])


def write(
    jobs: Sequence[Job],
    arranged: Ahead,
    runner: Runner,
    rows: Budget,
    *,
    ends: frozenset[int],
    seed: int,
    watch: Any,
    cache_bytes: int = 1 << 62,
) -> Iterator[Writer]:
    """Every answer as soon as it is written. `arranged` are their prompts, `watch(job)` listens for stop strings.

    Rows join while there are fewer than `rows`, and while the caches of all, grown to their limits, fit into `cache_bytes`.
    """
    waiting = _begin(jobs, arranged, runner, ends, seed, watch)
    active = _Rows()
    exhausted = False
    while not exhausted or active.writers:
        free = rows.size - len(active.writers)
        if not exhausted and (not active.writers or free >= max(1, rows.size // 4)):
            joining: list[tuple[Writer, int, KeptTokens]] = []
            while len(joining) < max(free, 1) and (
                not (active.writers or joining) or _bytes(active, joining) < cache_bytes
            ):
                found = next(waiting, None)
                if found is None:
                    exhausted = True
                    break
                writer, token, past = found
                if writer.hear(token):
                    yield writer
                else:
                    joining.append((writer, token, past))
            if joining:
                with runner.computing():
                    active.join(joining)
        if active.writers:
            yield from _step(active, runner, rows)


def _bytes(active: _Rows, joining: Sequence[tuple[Writer, int, KeptTokens]]) -> int:
    """What the caches of these rows, and of one more like the longest, take when all are written to their limits."""
    writers = [*active.writers, *(writer for writer, _, _ in joining)]
    past = joining[0][2] if joining else active._past(0)
    longest = max(len(writer.job.tokens) + writer.job.limit for writer in writers)
    return (len(writers) + 1) * longest * past.token_bytes


def _begin(
    jobs: Sequence[Job], arranged: Ahead, runner: Runner, ends: frozenset[int], seed: int, watch: Any
) -> Iterator[tuple[Writer, int, KeptTokens]]:
    """Writers with their first token, prompts in the order of the tree."""
    for begun in prefill(arranged, runner):
        job = jobs[begun.job]
        together = [job.requests] if job.choice.is_greedy else [[request] for request in job.requests]
        for requests in together:
            draw = None if job.choice.is_greedy else _draw(seed, requests[0])
            listener: StopWatch = watch(job)
            writer = Writer(job, requests, listener, ends, draw, len(job.tokens))
            with runner.computing():
                (token,) = choose_tokens(begun.logits[None], [job.choice], [draw])
            yield writer, token, begun.past


def _draw(seed: int, request: Any) -> random.Random:
    """The numbers of one answer: they depend on what is asked and on which repeat it is, not on the company."""
    own = request.settings.seed
    return random.Random(
        f"{seed if own is None else own} {request.prompt.digest} {request.repeat} {request.round}"
    )


def _step(active: _Rows, runner: Runner, rows: Budget) -> Iterator[Writer]:
    """One token for every row; rows that are done leave."""
    import torch

    length = active.cache.layers[0].keys.shape[2]
    tokens = torch.tensor(active.tokens, device=runner.device)[:, None]
    positions = torch.tensor([[writer.length - 1] for writer in active.writers], device=runner.device)
    mask = None
    if any(active.first):
        mask = torch.ones((len(active.first), length + 1), dtype=torch.long, device=runner.device)
        for row, first in enumerate(active.first):
            mask[row, :first] = 0
    try:
        output = runner.forward(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=active.cache,
            use_cache=True,
            wanted=_FIRST,
        )
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        yield from _in_halves(active, runner, rows, length)
        return
    with runner.computing():
        chosen = choose_tokens(
            output.logits[:, -1],
            [writer.job.choice for writer in active.writers],
            [writer.draw for writer in active.writers],
        )
    stay = []
    for row, (writer, token) in enumerate(zip(active.writers, chosen, strict=True)):
        active.tokens[row] = token
        if writer.hear(token):
            yield writer
        else:
            stay.append(row)
    if len(stay) < len(chosen):
        with runner.computing():
            active.keep(stay)


_FIRST = np.zeros(1, np.int64)


def _in_halves(active: _Rows, runner: Runner, rows: Budget, length: int) -> Iterator[Writer]:
    """Memory ran out: the rows are written in two parts, one after the other, and fewer join from now on."""
    if len(active.writers) < 2:
        raise MemoryError("not even one answer fits into memory")
    rows.size = min(rows.size, len(active.writers))
    rows.halve()
    for layer in active.cache.layers:  # the step may have got through some layers
        layer.hold(layer.keys[:, :, :length], layer.values[:, :, :length], length)
    free_memory(runner.device)
    middle = len(active.writers) // 2
    first, second = _Rows(), _Rows()
    pasts = [active._past(row) for row in range(len(active.writers))]
    parts = list(zip(active.writers, active.tokens, pasts, strict=True))
    active.keep([])
    for part, members in ((first, parts[:middle]), (second, parts[middle:])):
        part.join(members)
        while part.writers:
            yield from _step(part, runner, rows)
