"""Keys and values of tokens that were computed: kept, cut, joined. The only place that knows how transformers keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["KeptTokens", "growing_cache", "kept", "seeded_cache"]


@dataclass(frozen=True, slots=True)
class KeptTokens:
    """Keys and values of one sequence, layer by layer: `[1, heads, tokens, size]`."""

    layers: tuple[tuple[Any, Any], ...]
    length: int

    @property
    def token_bytes(self) -> int:
        """Memory that one token takes."""
        each = [
            (keys.shape[1] * keys.shape[3], values.shape[1] * values.shape[3]) for keys, values in self.layers
        ]
        return sum(map(sum, each)) * int(self.layers[0][0].element_size())

    def picked(self, places: Any) -> KeptTokens:
        """Those at some places, in that order: a path through a packed tree becomes a sequence."""
        layers = tuple(
            (keys.index_select(2, places), values.index_select(2, places)) for keys, values in self.layers
        )
        return KeptTokens(layers, len(places))


def seeded_cache(past: KeptTokens | None) -> Any:
    """A cache of transformers that begins with what is kept. What is kept stays as it is."""
    from transformers import DynamicCache

    cache = DynamicCache()
    if past is not None:
        for number, (keys, values) in enumerate(past.layers):
            cache.update(keys, values, number)
    return cache


def kept(cache: Any) -> KeptTokens:
    """What a cache holds.

    Raises:
        TypeError: It does not keep keys and values of every token (a sliding window, a recurrent state).
    """
    layers = []
    for layer in cache.layers:
        if type(layer).__name__ not in ("DynamicLayer", "_GrowingLayer"):
            raise TypeError(f"a cache layer of the kind {type(layer).__name__}")
        layers.append((layer.keys, layer.values))
    return KeptTokens(tuple(layers), int(layers[0][0].shape[2]))


def growing_cache(rows: Sequence[KeptTokens], room: int) -> Any:
    """One cache for several sequences, padded at their left, with room for further tokens.

    The cache of transformers copies everything for every new token; this one writes into room it has.
    """
    import torch
    from transformers import DynamicCache

    length = max(row.length for row in rows)
    cache = DynamicCache()
    cache.layers = [_growing_layer() for _ in rows[0].layers]
    for number, layer in enumerate(cache.layers):
        one = rows[0].layers[number][0]
        shape = (len(rows), one.shape[1], length + room, one.shape[3])
        value_shape = (*shape[:3], rows[0].layers[number][1].shape[3])
        keys = torch.zeros(shape, dtype=one.dtype, device=one.device)
        values = torch.zeros(value_shape, dtype=one.dtype, device=one.device)
        for at, row in enumerate(rows):
            own_keys, own_values = row.layers[number]
            keys[at, :, length - row.length : length] = own_keys[0]
            values[at, :, length - row.length : length] = own_values[0]
        layer.hold(keys, values, length)
    return cache


def _growing_layer() -> Any:
    return _layer_class()()


_made: list[Any] = []


def _layer_class() -> Any:
    """Made when first needed: its parent is transformers'."""
    if _made:
        return _made[0]
    import torch
    from transformers.cache_utils import DynamicLayer

    class _GrowingLayer(DynamicLayer):  # type: ignore[misc]
        """Keys and values in tensors with room to spare."""

        def hold(self, keys: Any, values: Any, length: int) -> None:
            self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
            self._keys, self._values = keys, values
            self.keys, self.values = keys[:, :, :length], values[:, :, :length]

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            start = self.keys.shape[2]
            end = start + key_states.shape[2]
            if end > self._keys.shape[2]:
                more = max(end, 2 * start)
                self.hold(_larger(self._keys, start, more), _larger(self._values, start, more), start)
            self._keys[:, :, start:end] = key_states
            self._values[:, :, start:end] = value_states
            self.keys, self.values = self._keys[:, :, :end], self._values[:, :, :end]
            return self.keys, self.values

        def choose(self, rows: Any, first: int, room: int) -> None:
            """Only some rows, without the padding they all have, with room for more."""
            keys, values = self.keys[rows, :, first:], self.values[rows, :, first:]
            length = keys.shape[2]
            self.hold(_larger(keys, length, length + room), _larger(values, length, length + room), length)

    def _larger(old: Any, length: int, room: int) -> Any:
        new = torch.zeros((*old.shape[:2], room, old.shape[3]), dtype=old.dtype, device=old.device)
        new[:, :, :length] = old[:, :, :length]
        return new

    _made.append(_GrowingLayer)
    return _GrowingLayer
