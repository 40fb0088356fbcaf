"""Check whether a model supports prefix sharing by comparing its logits with and without it.

A packed tree needs a model that uses the given positions and attention mask and caches keys and values of every token.
Models with sliding windows, recurrent states or their own attention kernels may not, and some would silently give wrong
results. So a small tree is computed both ways when a model is loaded; if the logits differ, prefix sharing is turned off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.models.hf.batch_budget import BatchBudget, is_out_of_memory
from assay.models.hf.prefix_sharing.kv_cache import make_growing_cache
from assay.models.hf.prefix_sharing.model_runner import ModelRunner
from assay.models.hf.prefix_sharing.pass_execution import PassPrefetcher, run_passes
from assay.models.hf.prefix_sharing.pass_planning import PassPlan
from assay.models.hf.prefix_sharing.prefill import plan_prefill, prefill_prompts
from assay.models.hf.prefix_sharing.prefix_tree import build_tree

__all__ = ["can_share_prefixes"]

_SEQUENCE_LENGTHS = (10, 4, 3, 8)
"""Lengths of a shared prefix, two branches and another sequence. Short, because large models are slow on a CPU."""


def can_share_prefixes(runner: ModelRunner, max_length: int) -> bool:
    """Return whether the model gives the same logits with and without prefix sharing."""
    config = runner.model.config.get_text_config(decoder=True)
    if not _has_full_attention(config, max_length) or max_length <= sum(_SEQUENCE_LENGTHS):
        return False
    try:
        return _matches_unshared_logits(runner, int(config.vocab_size))
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError) as error:
        if is_out_of_memory(error):
            raise
        return False


def _has_full_attention(config: Any, max_length: int) -> bool:
    """Return whether every layer attends to all tokens of the longest sequence."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention", "sliding_attention"} or getattr(config, "attention_chunk_size", None):
        return False
    window: int | None = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return not slides or not window or window >= max_length


def _matches_unshared_logits(runner: ModelRunner, vocabulary: int) -> bool:
    import torch

    draw = np.random.default_rng(0)
    prefix, first, second, other = (draw.integers(0, vocabulary, size).tolist() for size in _SEQUENCE_LENGTHS)
    sequences = [prefix + first, prefix + second, prefix + second[:2] + first, other]
    tree = build_tree(sequences)
    unshared = [_compute_unshared_logits(runner, one) for one in sequences]
    scale = float(torch.cat([one.flatten() for one in unshared]).std())
    tolerance = (1e-3 if runner.dtype == torch.float32 else 0.15) * scale
    for size in (4, 4096):  # in several passes with a cache between them, and in one pass
        ends: dict[int, Any] = {}
        plan = PassPlan(tree, lambda node: np.arange(len(node.tokens)), runner)
        for _, computed in run_passes(PassPrefetcher(plan, BatchBudget(size)), runner):
            logits = runner.compute_logits(computed.states)
            for part in computed.slices:
                row = computed.rows[part.offset + part.high - part.low - 1]
                if part.high == len(part.node.tokens) and row >= 0:
                    ends |= dict.fromkeys(part.node.ends, logits[row].float())
        if any(float((ends[at] - unshared[at][-1]).abs().max()) > tolerance for at in range(len(sequences))):
            return False
    prompts = sorted(
        prefill_prompts(plan_prefill(sequences, runner, BatchBudget(4096)), runner), key=lambda one: one.job
    )
    return all(
        float((found - wanted).abs().max()) <= tolerance
        for found, wanted in zip(
            _compute_next_logits(runner, prompts),
            [_compute_unshared_logits(runner, [*one, 1])[-1] for one in sequences],
            strict=True,
        )
    )


def _compute_unshared_logits(runner: ModelRunner, tokens: list[int]) -> Any:
    import torch

    ids = torch.tensor([tokens], device=runner.device)
    return runner.forward(input_ids=ids, use_cache=False).logits[0].float()


def _compute_next_logits(runner: ModelRunner, prompts: list[Any]) -> Any:
    """Return the logits after one more token, with all sequences in one batch, padded on the left."""
    import torch

    lengths = [one.past.length for one in prompts]
    longest = max(lengths)
    mask = torch.ones((len(prompts), longest + 1), dtype=torch.long, device=runner.device)
    for row, length in enumerate(lengths):
        mask[row, : longest - length] = 0
    output = runner.forward(
        input_ids=torch.ones((len(prompts), 1), dtype=torch.long, device=runner.device),
        attention_mask=mask,
        position_ids=torch.tensor(lengths, device=runner.device)[:, None],
        past_key_values=make_growing_cache([one.past for one in prompts], 1),
        use_cache=True,
    )
    return output.logits[:, -1].float()
