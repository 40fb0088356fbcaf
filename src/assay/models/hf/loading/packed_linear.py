"""Compute the linear layers of a model with oneDNN, from packed copies of their weights."""

from __future__ import annotations

from functools import cache
from typing import Any

from assay.models.hf.free_memory import find_free_bytes
from assay.models.hf.onednn import is_onednn_faster, multiply_transposed, pack_weight

__all__ = ["pack_linear_layers"]

_MAX_MEMORY_SHARE = 0.25
"""Share of the free memory that packed copies of the weights may use."""


def pack_linear_layers(model: Any, *, max_bytes: int | None = None) -> int:
    """Compute the float32 linear layers of a model on a CPU with oneDNN, if that is faster here; return their number.

    The layers keep their weights, because some models read them. Beyond `max_bytes` of copies (by default a quarter of the
    free memory), a layer is computed from its own weights, which is slower for few rows.
    """
    import torch

    if not is_onednn_faster():
        return 0
    free_bytes = int((find_free_bytes() or 0) * _MAX_MEMORY_SHARE) if max_bytes is None else max_bytes
    found: dict[int, Any] = {}
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if not _can_pack(layer):
                continue
            if id(layer) not in found:  # a layer can have several parents
                free_bytes -= layer.weight.numel() * layer.weight.element_size()
                with torch.inference_mode():
                    packed = pack_weight(layer.weight) if free_bytes >= 0 else None
                found[id(layer)] = _find_layer_class()(layer, packed)
            setattr(parent, name, found[id(layer)])
    return len(found)


def _can_pack(layer: Any) -> bool:
    """Return whether a module is a plain float32 linear layer on a CPU, and nothing moves or computes its weights."""
    import torch

    return (
        type(layer) is torch.nn.Linear
        and type(layer.weight) is torch.nn.Parameter
        and layer.weight.dtype == torch.float32
        and layer.weight.device.type == "cpu"
        and not hasattr(layer, "_hf_hook")
    )


@cache
def _find_layer_class() -> Any:
    """Return the layer class, defined on first use because its base class is in torch."""
    import torch

    class PackedLinear(torch.nn.Linear):  # type: ignore[misc]
        """A linear layer with the parameters of the layer it replaces and a packed copy of its weight, if any."""

        def __init__(self, layer: Any, packed: Any) -> None:
            torch.nn.Module.__init__(self)
            self.in_features, self.out_features = layer.in_features, layer.out_features
            self.weight, self.bias = layer.weight, layer.bias
            self.packed = packed
            self.train(layer.training)

        def forward(self, rows: Any) -> Any:
            return multiply_transposed(rows, self.weight if self.packed is None else self.packed, self.bias)

    return PackedLinear
