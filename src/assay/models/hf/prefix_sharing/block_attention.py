"""Attention on a processor, for models that leave it to transformers' `sdpa`.

Two things cost there what they do not have to: keys that a token cannot see are multiplied and then masked, and where several
heads share their keys, these are copied for each of them as soon as there is a mask (for every token that is written, all of
them). Here tokens are taken in blocks with the keys they see, and the kernel is told that keys are shared. The numbers are
the same but for the order in which they are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.models.hf.prefix_sharing.attention_mask import Block

__all__ = ["attach_blocks", "take_over"]

_NAME = "assay_sdpa"
_LEFT_ALONE = ("position_bias", "cache", "softcap", "output_attentions")
"""What only transformers' own function knows about."""


def take_over(model: Any) -> bool:
    """Let a model on a processor compute its attention here; whether it does."""
    import torch

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    is_able = getattr(base, "_can_set_attn_implementation", None)
    if (
        {weight.device.type for weight in base.parameters()} != {"cpu"}
        or getattr(base.config, "_attn_implementation", None) not in ("sdpa", _NAME)
        or is_able is None
        or not is_able()
        or tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 5)  # has no shared keys
    ):
        return False
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    base.set_attn_implementation(_NAME)
    return bool(base.config._attn_implementation == _NAME)


def attach_blocks(mask: Any, blocks: Sequence[Block]) -> None:
    """Let a mask say where it is not dark. A model that changes the mask loses it, and computes everything."""
    import torch

    def lit(block: Block) -> Any:
        rows = mask[:, :, block.low : block.high]
        return torch.cat([rows[..., low:high] for low, high in block.spans], -1)

    mask.assay_blocks = [(block, lit(block)) for block in blocks]


def _attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[Any, None]:
    """As transformers calls it: `[rows, heads, tokens, size]` in, `[rows, tokens, heads, size]` out."""
    from torch.nn.functional import scaled_dot_product_attention
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    # by identity: what is given may be a tensor, which is neither true nor false
    left = any(options.get(name) is not None and options[name] is not False for name in _LEFT_ALONE)
    if attention_mask is None or left:
        found: tuple[Any, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return found
    settings = {
        "dropout_p": options.get("dropout", 0.0),
        "scale": options.get("scaling"),
        "enable_gqa": key.shape[1] != query.shape[1],
    }
    blocks = getattr(attention_mask, "assay_blocks", None)
    if blocks is None or attention_mask.shape[-2:] != (query.shape[2], key.shape[2]):
        mask = attention_mask[..., : key.shape[2]]
        seen = scaled_dot_product_attention(query, key, value, attn_mask=mask, **settings)
        return seen.transpose(1, 2).contiguous(), None
    output = query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3]))
    for block, mask in blocks:
        seen = scaled_dot_product_attention(
            query[:, :, block.low : block.high],
            _chosen(key, block.spans),
            _chosen(value, block.spans),
            attn_mask=mask,
            **settings,
        )
        output[:, block.low : block.high] = seen.transpose(1, 2)
    return output, None


def _chosen(keys: Any, spans: Sequence[tuple[int, int]]) -> Any:
    import torch

    parts = [keys[:, :, low:high] for low, high in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
