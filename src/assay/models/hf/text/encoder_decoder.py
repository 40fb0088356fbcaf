"""Likelihoods from models with an encoder: each context is encoded once, its continuations are decoded together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from assay.models.hf.batch_budget import Budget, free_memory, is_out_of_memory
from assay.models.hf.prefix_sharing.prefix_tree import packed
from assay.models.hf.text.scoring import Scored, Tell, look_up
from assay.models.tokens import Pair

__all__ = ["score_encoded"]


def score_encoded(
    pairs: Sequence[Pair],
    model: Any,
    budget: Budget,
    *,
    softmax_dtype: Any,
    timed: Callable[[Callable[[], Any]], Any],
    tell: Tell | None = None,
) -> Iterator[Scored]:
    """Each pair: the encoder reads the context, the decoder is given the continuation.

    Contexts of one length go together, so that nothing is padded in the encoder: an answer does not depend on its company.
    """
    by_context: dict[tuple[int, ...], list[int]] = {}
    for index, pair in enumerate(pairs):
        by_context.setdefault(tuple(pair.context), []).append(index)
    waiting = sorted(by_context, key=lambda tokens: (-len(tokens), tokens))
    while waiting:
        length = len(waiting[0])
        alike = [context for context in waiting if len(context) == length]
        sizes = [
            length + sum(len(pairs[index].continuation) for index in by_context[context]) for context in alike
        ]
        batch = next(packed(alike, sizes, budget.size))
        try:
            found = list(_scored(batch, by_context, pairs, model, softmax_dtype, timed, tell))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or not budget.halve():
                raise
            free_memory(model.device)
            continue
        budget.succeeded()
        waiting = waiting[len(batch) :]
        yield from found


def _scored(
    contexts: Sequence[tuple[int, ...]],
    by_context: dict[tuple[int, ...], list[int]],
    pairs: Sequence[Pair],
    model: Any,
    softmax_dtype: Any,
    timed: Callable[[Callable[[], Any]], Any],
    tell: Tell | None,
) -> Iterator[Scored]:
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    device = model.get_input_embeddings().weight.device
    ids = torch.tensor(contexts, device=device)
    rows = [(row, index) for row, context in enumerate(contexts) for index in by_context[context]]
    start = _start_token(model.config)
    width = max(len(pairs[index].continuation) for _, index in rows)
    given = torch.full((len(rows), width), start, dtype=torch.long, device=device)
    for at, (_, index) in enumerate(rows):
        continuation = pairs[index].continuation
        given[at, 1 : len(continuation)] = torch.tensor(continuation[:-1], dtype=torch.long, device=device)
    of = torch.tensor([row for row, _ in rows], device=device)
    with torch.inference_mode():
        encoded = timed(
            lambda: model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        )
        logits = timed(
            lambda: (
                model(
                    encoder_outputs=BaseModelOutput(last_hidden_state=encoded[of]),
                    attention_mask=torch.ones_like(ids)[of],
                    decoder_input_ids=given,
                    use_cache=False,
                ).logits
            )
        )
    for at, (_, index) in enumerate(rows):
        targets = np.asarray(pairs[index].continuation, np.int64)
        found, best = look_up(logits[at], np.arange(len(targets)), targets, softmax_dtype)
        if tell is not None:
            tell(np.full(len(found), index), found)
        yield index, float(found.sum()), bool(best.all())


def _start_token(config: Any) -> int:
    """What the decoder begins with."""
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        if (token := getattr(config, name, None)) is not None:
            return int(token)
    return 0
