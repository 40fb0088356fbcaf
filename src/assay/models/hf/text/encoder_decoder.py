"""Log probabilities from encoder-decoder models: each context is encoded once for all its continuations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory, release_memory
from assay.models.hf.prefix_sharing.prefix_tree import pack
from assay.models.hf.text.scoring import ScoredPair, TokenCallback, read_log_probabilities
from assay.models.tokens import Pair

__all__ = ["score_encoder_decoder"]


def score_encoder_decoder(
    pairs: Sequence[Pair],
    model: Any,
    budget: BatchBudget,
    *,
    softmax_dtype: Any,
    measure: Callable[[Callable[[], Any]], Any],
    on_tokens: TokenCallback | None = None,
) -> Iterator[ScoredPair]:
    """Score pairs: the encoder reads the context, the decoder the continuation.

    A batch holds contexts of one length, so that the encoder input has no padding and a score does not depend on the batch.
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
        batch = next(pack(alike, sizes, budget.size))
        try:
            found = list(_score_batch(batch, by_context, pairs, model, softmax_dtype, measure, on_tokens))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or not budget.halve():
                raise
            release_memory(model.device)
            continue
        budget.record_success()
        waiting = waiting[len(batch) :]
        yield from found


def _score_batch(
    contexts: Sequence[tuple[int, ...]],
    by_context: dict[tuple[int, ...], list[int]],
    pairs: Sequence[Pair],
    model: Any,
    softmax_dtype: Any,
    measure: Callable[[Callable[[], Any]], Any],
    on_tokens: TokenCallback | None,
) -> Iterator[ScoredPair]:
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    device = model.get_input_embeddings().weight.device
    ids = torch.tensor(contexts, device=device)
    rows = [(row, index) for row, context in enumerate(contexts) for index in by_context[context]]
    start = _start_token(model.config)
    width = max(len(pairs[index].continuation) for _, index in rows)
    decoder_inputs = torch.full((len(rows), width), start, dtype=torch.long, device=device)
    for row, (_, index) in enumerate(rows):
        continuation = pairs[index].continuation
        decoder_inputs[row, 1 : len(continuation)] = torch.tensor(
            continuation[:-1], dtype=torch.long, device=device
        )
    encoder_rows = torch.tensor([row for row, _ in rows], device=device)
    with torch.inference_mode():
        encoded = measure(
            lambda: model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        )
        logits = measure(
            lambda: (
                model(
                    encoder_outputs=BaseModelOutput(last_hidden_state=encoded[encoder_rows]),
                    attention_mask=torch.ones_like(ids)[encoder_rows],
                    decoder_input_ids=decoder_inputs,
                    use_cache=False,
                ).logits
            )
        )
    for row, (_, index) in enumerate(rows):
        targets = np.asarray(pairs[index].continuation, np.int64)
        found, best = read_log_probabilities(logits[row], np.arange(len(targets)), targets, softmax_dtype)
        if on_tokens is not None:
            on_tokens(np.full(len(found), index), found)
        yield index, float(found.sum()), bool(best.all())


def _start_token(config: Any) -> int:
    """Return the token that the decoder starts with."""
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        if (token := getattr(config, name, None)) is not None:
            return int(token)
    return 0
