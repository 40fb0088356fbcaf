"""Keys and values of computed tokens. The only module that knows the cache classes of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["SequenceCache", "make_cache", "make_growing_cache", "read_cache"]


@dataclass(frozen=True, slots=True)
class SequenceCache:
    """Keys and values of one sequence, per layer: `[1, heads, tokens, size]`."""

    layers: tuple[tuple[Any, Any], ...]
    length: int

    @property
    def token_bytes(self) -> int:
        """Memory per token in bytes."""
        each = [
            (keys.shape[1] * keys.shape[3], values.shape[1] * values.shape[3]) for keys, values in self.layers
        ]
        return sum(map(sum, each)) * int(self.layers[0][0].element_size())

    def select(self, positions: Any) -> SequenceCache:
        """Return the cache of the tokens at these positions: a path through a packed tree as one sequence."""
        layers = tuple(
            (keys.index_select(2, positions), values.index_select(2, positions))
            for keys, values in self.layers
        )
        return SequenceCache(layers, len(positions))


def make_cache(past: SequenceCache | None) -> Any:
    """Make a transformers cache that starts with `past`, which is not changed."""
    from transformers import DynamicCache

    cache = DynamicCache()
    if past is not None:
        for number, (keys, values) in enumerate(past.layers):
            cache.update(keys, values, number)
    return cache


def read_cache(cache: Any) -> SequenceCache:
    """Return the content of a transformers cache.

    Raises:
        TypeError: The cache does not hold keys and values of every token (sliding window, recurrent state).
    """
    layers = []
    for layer in cache.layers:
        if type(layer).__name__ not in ("DynamicLayer", "_GrowingLayer"):
            raise TypeError(f"unsupported cache layer: {type(layer).__name__}")
        layers.append((layer.keys, layer.values))
    return SequenceCache(tuple(layers), int(layers[0][0].shape[2]))


def make_growing_cache(rows: Sequence[SequenceCache], spare_tokens: int) -> Any:
    """Make one cache for several sequences, padded on the left, with space for `spare_tokens` further tokens.

    The cache of transformers copies everything for every new token; this one writes into preallocated space.
    """
    import torch
    from transformers import DynamicCache

    length = max(row.length for row in rows)
    cache = DynamicCache()
    cache.layers = [_growing_layer() for _ in rows[0].layers]
    for number, layer in enumerate(cache.layers):
        one = rows[0].layers[number][0]
        shape = (len(rows), one.shape[1], length + spare_tokens, one.shape[3])
        value_shape = (*shape[:3], rows[0].layers[number][1].shape[3])
        keys = torch.zeros(shape, dtype=one.dtype, device=one.device)
        values = torch.zeros(value_shape, dtype=one.dtype, device=one.device)
        for index, row in enumerate(rows):
            own_keys, own_values = row.layers[number]
            keys[index, :, length - row.length : length] = own_keys[0]
            values[index, :, length - row.length : length] = own_values[0]
        layer.assign(keys, values, length)
    return cache


def _growing_layer() -> Any:
    return _layer_class()()


_layer_classes: list[Any] = []


def _layer_class() -> Any:
    """Return the layer class, defined on first use because its base class is in transformers."""
    if _layer_classes:
        return _layer_classes[0]
    import torch
    from transformers.cache_utils import DynamicLayer

    class _GrowingLayer(DynamicLayer):  # type: ignore[misc]
        """Keys and values in preallocated tensors."""

        def assign(self, keys: Any, values: Any, length: int) -> None:
            self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
            self._keys, self._values = keys, values
            self.keys, self.values = keys[:, :, :length], values[:, :, :length]

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            start = self.keys.shape[2]
            end = start + key_states.shape[2]
            if end > self._keys.shape[2]:
                more = max(end, 2 * start)
                self.assign(_enlarge(self._keys, start, more), _enlarge(self._values, start, more), start)
            self._keys[:, :, start:end] = key_states
            self._values[:, :, start:end] = value_states
            self.keys, self.values = self._keys[:, :, :end], self._values[:, :, :end]
            return self.keys, self.values

        def select_rows(self, rows: Any, first: int, spare_tokens: int) -> None:
            """Keep only some rows, remove the padding they share, and preallocate space for more tokens."""
            keys, values = self.keys[rows, :, first:], self.values[rows, :, first:]
            length = keys.shape[2]
            self.assign(
                _enlarge(keys, length, length + spare_tokens),
                _enlarge(values, length, length + spare_tokens),
                length,
            )

    def _enlarge(old: Any, length: int, spare_tokens: int) -> Any:
        new = torch.zeros((*old.shape[:2], spare_tokens, old.shape[3]), dtype=old.dtype, device=old.device)
        new[:, :, :length] = old[:, :, :length]
        return new

    _layer_classes.append(_GrowingLayer)
    return _GrowingLayer
