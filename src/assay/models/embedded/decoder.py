"""A Llama decoder in NumPy: one sequence at a time, with a KV cache.

Processing one sequence at a time is deliberate: the shape of every array depends only on that sequence, so results do not
depend on other requests or their order, to the last bit. Elementwise operations process a chunk of tokens at once. Matrix products
process tiles of it, which are too small for the linear algebra library to split them among threads (see weights.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assay.models.embedded.weights import Array, BlockedMatrix, DecoderLayer, DecoderWeights

__all__ = ["Decoder", "KVCache"]

_CHUNK_TOKENS = 256
"""Tokens read together. Larger chunks have intermediate results that do not fit into a processor's own cache."""

_ROW_TILE, _QUERY_TILE, _KEY_TILE = 32, 32, 256
"""Rows of one matrix product; queries and keys of one product of the attention."""


class KVCache:
    """Keys and values of the tokens so far. Lower `length` to drop the latest ones.

    The arrays always have full size, so that strides are the same for every request.
    """

    def __init__(self, weights: DecoderWeights) -> None:
        size = weights.embedding.shape[1] // weights.heads
        shape = (len(weights.layers), weights.heads, weights.context, size)
        self.keys: Array = np.empty(shape, dtype=np.float32)
        self.values: Array = np.empty(shape, dtype=np.float32)
        self.length = 0


class Decoder:
    """Computes hidden vectors and logits of token sequences."""

    def __init__(self, weights: DecoderWeights) -> None:
        self._weights = weights
        later = np.tril(np.ones((_QUERY_TILE, _QUERY_TILE), dtype=bool), k=-1)
        self._mask: Array = np.where(later, np.float32(-np.inf), np.float32(0))[:, None]
        self._rotation: NDArray[np.complex64] = np.tile(weights.rotation, 2 * weights.heads)

    @property
    def context(self) -> int:
        """The context length in tokens."""
        return self._weights.context

    def make_cache(self) -> KVCache:
        """Return an empty KV cache."""
        return KVCache(self._weights)

    def embed(self, ids: list[int]) -> Array:
        """Return one vector per token."""
        return self._weights.embedding[ids]

    def read(self, vectors: Array, cache: KVCache) -> Array:
        """Read the next tokens into the KV cache and return one hidden vector per token."""
        chunks = [
            self._read_chunk(vectors[start : start + _CHUNK_TOKENS], cache, wanted=_CHUNK_TOKENS)
            for start in range(0, len(vectors), _CHUNK_TOKENS)
        ]
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)

    def read_prompt(self, vectors: Array, cache: KVCache) -> Array:
        """Read the next tokens into the KV cache and return the hidden vector of the last one.

        For the other tokens, the last layer computes only keys and values.
        """
        hidden = vectors[:0]
        for start in range(0, len(vectors), _CHUNK_TOKENS):
            chunk = vectors[start : start + _CHUNK_TOKENS]
            hidden = self._read_chunk(chunk, cache, wanted=int(start + len(chunk) == len(vectors)))
        return hidden

    def logits(self, hidden: Array) -> Array:
        """Return the logits of the token after each hidden vector."""
        return _multiply(self._normalize(hidden), self._weights.head)

    def _read_chunk(self, vectors: Array, cache: KVCache, *, wanted: int) -> Array:
        """Return at most `wanted` hidden vectors, those of the last tokens."""
        start, end, width = cache.length, cache.length + len(vectors), vectors.shape[1]
        rotation = self._rotation[start:end]
        hidden = vectors.copy()
        for number, layer in enumerate(self._weights.layers):
            keys, values = cache.keys[number], cache.values[number]
            fused = _multiply(self._normalize(hidden), layer.query_key_value)
            rotated = fused[:, : 2 * width].view(np.complex64)
            np.multiply(rotated, rotation, out=rotated)
            query, keys[:, start:end], values[:, start:end] = self._split_heads(fused)
            if layer is self._weights.layers[-1] and wanted < len(hidden):
                if not wanted:
                    break
                hidden, query = hidden[-wanted:], query[:, -wanted:]
            hidden += _multiply(self._attend(query, keys[:, :end], values[:, :end]), layer.output)
            hidden += self._feed_forward(hidden, layer)
        cache.length = end
        return hidden[-wanted:] if wanted else hidden[:0]

    def _split_heads(self, fused: Array) -> Array:
        """Return queries, keys and values as (3, heads, tokens, channels)."""
        return fused.reshape(len(fused), 3, self._weights.heads, -1).transpose(1, 2, 0, 3)

    def _attend(self, query: Array, keys: Array, values: Array) -> Array:
        """Return the attention output of the last tokens, one row per token."""
        heads, tokens, size = query.shape
        result: Array = np.empty((tokens, heads * size), dtype=np.float32)
        mixed = result.reshape(tokens, heads, size).transpose(1, 0, 2)
        for low in range(0, tokens, _QUERY_TILE):
            tile, part = query[:, low : low + _QUERY_TILE], mixed[:, low : low + _QUERY_TILE]
            count = tile.shape[1]
            end = keys.shape[1] - tokens + low + count
            # keys first if there are many queries, so that the maximum and the sum over the keys are those of long rows
            weights: Array = np.empty((heads, end), dtype=np.float32).T[:, :, None]
            if count > 1:
                weights = np.empty((end, heads, count), dtype=np.float32)
            by_head, columns = weights.transpose(1, 0, 2), np.ascontiguousarray(tile.transpose(0, 2, 1))
            for first in range(0, end, _KEY_TILE):
                block = slice(first, min(first + _KEY_TILE, end))
                np.matmul(keys[:, block], columns, out=by_head[:, block])
            if count > 1:
                weights[end - count :] += self._mask[:count, :, :count]
            weights -= np.maximum.reduce(weights, axis=0)
            np.exp(weights, out=weights)
            by_query = by_head.transpose(0, 2, 1)
            np.matmul(by_query[:, :, :_KEY_TILE], values[:, : min(_KEY_TILE, end)], out=part)
            for first in range(_KEY_TILE, end, _KEY_TILE):
                block = slice(first, min(first + _KEY_TILE, end))
                part += by_query[:, :, block] @ values[:, block]
            part /= np.add.reduce(weights, axis=0)[:, :, None]
        return result

    def _feed_forward(self, hidden: Array, layer: DecoderLayer) -> Array:
        both = _multiply(self._normalize(hidden), layer.gate_up)
        gate, up = both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :]
        active: Array = np.tanh(gate)
        active += np.float32(1)
        active *= gate
        active *= up
        return _multiply(active, layer.down)

    def _normalize(self, hidden: Array) -> Array:
        total: Array = np.add.reduce(hidden * hidden, axis=-1, keepdims=True)
        result: Array = hidden / np.sqrt(total / np.float32(hidden.shape[-1]) + self._weights.epsilon)
        return result


def _multiply(rows: Array, matrix: BlockedMatrix) -> Array:
    """Return rows (tokens x input channels) times a matrix, as (tokens x output channels)."""
    inputs, outputs, size, width = matrix.shape
    if len(rows) == 1:
        return _add_up((rows.reshape(inputs, 1, 1, size) @ matrix).reshape(inputs, 1, -1))
    partial: Array = np.empty((inputs, len(rows), outputs * width), dtype=np.float32)
    rest = len(rows) % _ROW_TILE
    for first, last, count in ((0, len(rows) - rest, _ROW_TILE), (len(rows) - rest, len(rows), rest)):
        if first < last:
            tiles = rows[first:last].reshape(-1, count, inputs, 1, size).transpose(2, 0, 3, 1, 4)
            products = partial[:, first:last].reshape(inputs, -1, count, outputs, width)
            np.matmul(tiles, matrix[:, None], out=products.transpose(0, 1, 3, 2, 4))
    return _add_up(partial)


def _add_up(parts: Array) -> Array:
    """Return the sum over the first axis."""
    total: Array = parts[0] if len(parts) == 1 else np.add.reduce(parts, axis=0)
    return total
