"""Block attention on a CPU, for models that use the `sdpa` attention of transformers.

`sdpa` does two kinds of unnecessary work: it multiplies keys that are masked afterwards, and with a mask it copies keys
that several heads share once per head, for every generated token. Here, blocks of tokens are multiplied only with the
keys they attend to, and the kernel receives the shared keys only once. Results differ only in the order of summation.

Where oneDNN is faster than MKL (`assay.models.hf.onednn`), it also multiplies these blocks. The kernel of `sdpa` uses MKL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.models.hf.onednn import is_onednn_faster, multiply_transposed
from assay.models.hf.prefix_sharing.attention_mask import AttentionBlock

__all__ = ["attach_blocks", "enable_block_attention"]

_IMPLEMENTATION = "assay_sdpa"
_UNSUPPORTED_OPTIONS = ("position_bias", "cache", "softcap", "output_attentions")
"""Options that only the attention function of transformers supports."""


def enable_block_attention(model: Any) -> bool:
    """Use block attention in a model on a CPU. Return False if the model does not support it."""
    import torch

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    can_set = getattr(base, "_can_set_attn_implementation", None)
    if (
        {weight.device.type for weight in base.parameters()} != {"cpu"}
        or getattr(base.config, "_attn_implementation", None) not in ("sdpa", _IMPLEMENTATION)
        or can_set is None
        or not can_set()
        or tuple(int(part) for part in torch.__version__.split(".")[:2])
        < (2, 5)  # no grouped-query attention before 2.5
    ):
        return False
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(_IMPLEMENTATION, _compute_attention)
    AttentionMaskInterface.register(_IMPLEMENTATION, sdpa_mask)
    base.set_attn_implementation(_IMPLEMENTATION)
    return bool(base.config._attn_implementation == _IMPLEMENTATION)


def attach_blocks(mask: Any, blocks: Sequence[AttentionBlock]) -> None:
    """Attach blocks to a mask. If the model replaces the mask, the blocks are lost and everything is computed."""
    import torch

    def cut_mask(block: AttentionBlock) -> Any:
        rows = mask[:, :, block.low : block.high]
        return torch.cat([rows[..., low:high] for low, high in block.spans], -1)

    mask.assay_blocks = [(block, cut_mask(block)) for block in blocks]
    for _, own in mask.assay_blocks:
        own.assay_first_masked = _find_first_masked(own)


def _find_first_masked(mask: Any) -> int:
    """Return the first key that some token does not attend to. Most keys, those of the past, come before it."""
    masked = (mask != 0).flatten(0, -2).any(0).nonzero()
    return int(masked[0]) if len(masked) else int(mask.shape[-1])


def _compute_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[Any, None]:
    """Attention function for transformers: `[rows, heads, tokens, size]` in, `[rows, tokens, heads, size]` out."""
    from torch.nn.functional import scaled_dot_product_attention
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    # compared by identity, because a tensor has no truth value
    is_unsupported = any(
        options.get(name) is not None and options[name] is not False for name in _UNSUPPORTED_OPTIONS
    )
    if attention_mask is None or is_unsupported:
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
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask, **settings)
        return attended.transpose(1, 2).contiguous(), None
    output = query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3]))
    if uses_onednn := _can_use_onednn(query, settings["dropout_p"]):
        key, value = key.contiguous(), value.contiguous()  # oneDNN is very slow with other strides
    for block, mask in blocks:
        rows = query[:, :, block.low : block.high]
        keys, values = _select_spans(key, block.spans), _select_spans(value, block.spans)
        if uses_onednn:
            _attend_with_onednn(
                rows, keys, values, mask, settings["scale"], output[:, block.low : block.high]
            )
        else:
            attended = scaled_dot_product_attention(rows, keys, values, attn_mask=mask, **settings)
            output[:, block.low : block.high] = attended.transpose(1, 2)
    return output, None


def _can_use_onednn(query: Any, dropout: float) -> bool:
    import torch

    return (
        is_onednn_faster()
        and query.dtype == torch.float32
        and query.shape[0] == 1
        and not dropout
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")  # the values would have another type than the query
    )


def _attend_with_onednn(
    query: Any, keys: Any, values: Any, mask: Any, scale: float | None, output: Any
) -> None:
    """Write the attention of one row into `output` (`[1, tokens, heads, size]`), for each head of the keys."""
    heads, tokens, size = query.shape[1:]
    shared = heads // keys.shape[1]
    query = query[0] * (size**-0.5 if scale is None else scale)
    first = mask.assay_first_masked
    partial_mask = mask[0, ..., first:]
    for number in range(keys.shape[1]):
        own = slice(number * shared, (number + 1) * shared)
        scores = multiply_transposed(query[own].reshape(shared * tokens, size), keys[0, number])
        scores.view(shared, tokens, -1)[..., first:].add_(partial_mask)
        weights = scores.softmax(-1)
        attended = multiply_transposed(weights, values[0, number].t())
        output[0, :, own] = attended.view(shared, tokens, -1).transpose(0, 1)


def _select_spans(keys: Any, spans: Sequence[tuple[int, int]]) -> Any:
    import torch

    parts = [keys[:, :, low:high] for low, high in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
