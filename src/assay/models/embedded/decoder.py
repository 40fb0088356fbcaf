"""A Llama decoder in NumPy: one sequence at a time, with a KV cache.

Processing one sequence at a time is deliberate: the shape of every array depends only on that sequence, so results do not
depend on other requests or their order, to the last bit. Tokens are read in small chunks, so that no matrix product is large
enough for the linear algebra library to split it among threads (see weights.py).
"""

from __future__ import annotations

import numpy as np

from assay.models.embedded.weights import Array, DecoderLayer, DecoderWeights

__all__ = ["Decoder", "KVCache"]

_CHUNK_TOKENS, _LONG_CONTEXT, _LONG_CONTEXT_CHUNK_TOKENS = 16, 512, 8
"""Tokens read together: 16, but 8 with more than 512 keys."""


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
        later = np.triu(np.ones((weights.context, weights.context), dtype=bool), k=1)
        self._mask: Array = np.where(later, np.float32(-np.inf), np.float32(0))

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
        chunks = []
        start = 0
        while start < len(vectors):
            size = (
                _CHUNK_TOKENS if cache.length + _CHUNK_TOKENS <= _LONG_CONTEXT else _LONG_CONTEXT_CHUNK_TOKENS
            )
            chunks.append(self._read_chunk(vectors[start : start + size], cache))
            start += size
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)

    def logits(self, hidden: Array) -> Array:
        """Return the logits of the token after each hidden vector."""
        chunks = [
            (self._normalize(hidden[start : start + _CHUNK_TOKENS]) @ self._weights.head).transpose(1, 0, 2)
            for start in range(0, len(hidden), _CHUNK_TOKENS)
        ]
        return np.concatenate(chunks).reshape(len(hidden), -1)

    def _read_chunk(self, hidden: Array, cache: KVCache) -> Array:
        start, end = cache.length, cache.length + len(hidden)
        rotation = self._weights.rotation[start:end]
        heads = self._weights.heads
        for number, layer in enumerate(self._weights.layers):
            fused = self._normalize(hidden) @ layer.query_key_value
            rotated = (fused[: 2 * heads].view(np.complex64) * rotation).view(np.float32)
            keys, values = cache.keys[number], cache.values[number]
            keys[:, start:end] = rotated[heads:]
            values[:, start:end] = fused[2 * heads :]
            mixed = self._attend(rotated[:heads], keys[:, :end], values[:, :end])
            hidden = hidden + np.add.reduce(mixed @ layer.output, axis=0)
            hidden = hidden + self._feed_forward(hidden, layer)
        cache.length = end
        return hidden

    def _attend(self, query: Array, keys: Array, values: Array) -> Array:
        """Return the attention output of each head."""
        count, end = query.shape[1], keys.shape[1]
        scores: Array = query @ keys.transpose(0, 2, 1)
        if count > 1:
            scores += self._mask[end - count : end, :end]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= np.add.reduce(scores, axis=-1, keepdims=True)
        return scores @ values

    def _feed_forward(self, hidden: Array, layer: DecoderLayer) -> Array:
        both = self._normalize(hidden) @ layer.gate_up
        gate, up = both[: len(both) // 2], both[len(both) // 2 :]
        with np.errstate(over="ignore"):  # exp(-gate) may overflow to infinity; the quotient is then zero
            active = gate / (np.float32(1) + np.exp(-gate))
        active *= up
        result: Array = np.add.reduce(active @ layer.down, axis=0)
        return result

    def _normalize(self, hidden: Array) -> Array:
        total: Array = np.add.reduce(hidden * hidden, axis=-1, keepdims=True)
        result: Array = hidden / np.sqrt(total / np.float32(hidden.shape[-1]) + self._weights.epsilon)
        return result
