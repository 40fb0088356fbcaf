"""Whether a model can share its work: tried on it, not believed of it.

A packed tree needs a model that takes positions and a mask as given and keeps keys and values of every token. Most do.
Those with sliding windows, recurrent states or attention kernels of their own may not, and some would be wrong in silence;
so a small tree is computed both ways when the model is opened, and a model that differs is computed the plain way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.models.hf.batch_budget import Budget, is_out_of_memory
from assay.models.hf.prefix_sharing.kv_cache import growing_cache
from assay.models.hf.prefix_sharing.model_runner import Runner
from assay.models.hf.prefix_sharing.pass_execution import Ahead, compute
from assay.models.hf.prefix_sharing.pass_planning import Plan
from assay.models.hf.prefix_sharing.prefill import arrange_prompts, prefill
from assay.models.hf.prefix_sharing.prefix_tree import build_tree

__all__ = ["can_share"]

_LENGTHS = (10, 4, 3, 8)
"""Tokens of a trunk, two branches and another sequence: few, since a large model on a processor takes long for each."""


def can_share(runner: Runner, max_length: int) -> bool:
    """Whether the shared computation gives what the plain one gives."""
    config = runner.model.config.get_text_config(decoder=True)
    if not _sees_everything(config, max_length) or max_length <= sum(_LENGTHS):
        return False
    try:
        return _agrees(runner, int(config.vocab_size))
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError) as error:
        if is_out_of_memory(error):
            raise
        return False


def _sees_everything(config: Any, max_length: int) -> bool:
    """No layer forgets or skips tokens within the longest sequence."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention", "sliding_attention"} or getattr(config, "attention_chunk_size", None):
        return False
    window: int | None = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return not slides or not window or window >= max_length


def _agrees(runner: Runner, vocabulary: int) -> bool:
    import torch

    draw = np.random.default_rng(0)
    trunk, first, second, other = (draw.integers(0, vocabulary, size).tolist() for size in _LENGTHS)
    sequences = [trunk + first, trunk + second, trunk + second[:2] + first, other]
    tree = build_tree(sequences)
    plain = [_plain(runner, one) for one in sequences]
    scale = float(torch.cat([one.flatten() for one in plain]).std())
    tolerance = (1e-3 if runner.dtype == torch.float32 else 0.15) * scale
    for size in (4, 4096):  # in several passes with what is kept between them, and in one
        ends: dict[int, Any] = {}
        plan = Plan(tree, lambda node: np.arange(len(node.tokens)), runner)
        for _, computed in compute(Ahead(plan, Budget(size)), runner):
            for piece in computed.pieces:
                row = computed.rows[piece.offset + piece.high - piece.low - 1]
                if piece.high == len(piece.node.tokens) and row >= 0:
                    ends |= dict.fromkeys(piece.node.ends, computed.logits[row].float())
        if any(float((ends[at] - plain[at][-1]).abs().max()) > tolerance for at in range(len(sequences))):
            return False
    begun = sorted(prefill(arrange_prompts(sequences, runner, Budget(4096)), runner), key=lambda one: one.job)
    return all(
        float((found - wanted).abs().max()) <= tolerance
        for found, wanted in zip(
            _next(runner, begun), [_plain(runner, [*one, 1])[-1] for one in sequences], strict=True
        )
    )


def _plain(runner: Runner, tokens: list[int]) -> Any:
    import torch

    ids = torch.tensor([tokens], device=runner.device)
    return runner.forward(input_ids=ids, use_cache=False).logits[0].float()


def _next(runner: Runner, begun: list[Any]) -> Any:
    """The logits after one more token, all sequences in one batch, padded at their left."""
    import torch

    lengths = [one.past.length for one in begun]
    longest = max(lengths)
    mask = torch.ones((len(begun), longest + 1), dtype=torch.long, device=runner.device)
    for row, length in enumerate(lengths):
        mask[row, : longest - length] = 0
    output = runner.forward(
        input_ids=torch.ones((len(begun), 1), dtype=torch.long, device=runner.device),
        attention_mask=mask,
        position_ids=torch.tensor(lengths, device=runner.device)[:, None],
        past_key_values=growing_cache([one.past for one in begun], 1),
        use_cache=True,
    )
    return output.logits[:, -1].float()
