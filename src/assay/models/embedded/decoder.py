"""The Llama decoder in NumPy: one sequence at a time, with a key-value memory.

One sequence at a time is a choice: every array's shape depends on that sequence alone, so the bits of a result
do not depend on what else is asked, in which order, or what was asked before. Tokens are read in pieces of a
few, so that no product is large enough for the linear algebra library to split it among threads (see weights.py).
"""

from __future__ import annotations

import numpy as np

from assay.models.embedded.weights import Array, DecoderLayer, DecoderWeights

__all__ = ["Decoder", "Memory"]

_PIECE, _FAR, _FAR_PIECE = 16, 512, 8
"""Tokens read together: 16, but 8 where more than 512 keys are looked back on."""


class Memory:
    """Keys and values of the tokens read so far. `length` may be set back to forget the latest ones.

    Always of full size: the strides, too, are the same for every request.
    """

    def __init__(self, weights: DecoderWeights) -> None:
        size = weights.embedding.shape[1] // weights.heads
        shape = (len(weights.layers), weights.heads, weights.context, size)
        self.keys: Array = np.empty(shape, dtype=np.float32)
        self.values: Array = np.empty(shape, dtype=np.float32)
        self.length = 0


class Decoder:
    """Reads token vectors, remembers them, and tells what may come next."""

    def __init__(self, weights: DecoderWeights) -> None:
        self._weights = weights
        later = np.triu(np.ones((weights.context, weights.context), dtype=bool), k=1)
        self._mask: Array = np.where(later, np.float32(-np.inf), np.float32(0))

    @property
    def context(self) -> int:
        """How many tokens the decoder can look back on."""
        return self._weights.context

    def new_memory(self) -> Memory:
        """An empty memory."""
        return Memory(self._weights)

    def embed(self, ids: list[int]) -> Array:
        """One vector per token."""
        return self._weights.embedding[ids]

    def read(self, vectors: Array, memory: Memory) -> Array:
        """Read the next tokens into the memory; returns one hidden vector per token."""
        pieces = []
        start = 0
        while start < len(vectors):
            size = _PIECE if memory.length + _PIECE <= _FAR else _FAR_PIECE
            pieces.append(self._read_piece(vectors[start : start + size], memory))
            start += size
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def logits(self, hidden: Array) -> Array:
        """Unnormalised log-probabilities of the token after each hidden vector."""
        pieces = [
            (self._normed(hidden[start : start + _PIECE]) @ self._weights.head).transpose(1, 0, 2)
            for start in range(0, len(hidden), _PIECE)
        ]
        return np.concatenate(pieces).reshape(len(hidden), -1)

    def _read_piece(self, hidden: Array, memory: Memory) -> Array:
        start, end = memory.length, memory.length + len(hidden)
        rotation = self._weights.rotation[start:end]
        heads = self._weights.heads
        for number, layer in enumerate(self._weights.layers):
            fused = self._normed(hidden) @ layer.query_key_value
            turned = (fused[: 2 * heads].view(np.complex64) * rotation).view(np.float32)
            keys, values = memory.keys[number], memory.values[number]
            keys[:, start:end] = turned[heads:]
            values[:, start:end] = fused[2 * heads :]
            mixed = self._attend(turned[:heads], keys[:, :end], values[:, :end])
            hidden = hidden + np.add.reduce(mixed @ layer.output, axis=0)
            hidden = hidden + self._feed_forward(hidden, layer)
        memory.length = end
        return hidden

    def _attend(self, query: Array, keys: Array, values: Array) -> Array:
        """For each head, the values mixed by how well their keys fit the query."""
        count, end = query.shape[1], keys.shape[1]
        scores: Array = query @ keys.transpose(0, 2, 1)
        if count > 1:
            scores += self._mask[end - count : end, :end]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= np.add.reduce(scores, axis=-1, keepdims=True)
        return scores @ values

    def _feed_forward(self, hidden: Array, layer: DecoderLayer) -> Array:
        both = self._normed(hidden) @ layer.gate_up
        gate, up = both[: len(both) // 2], both[len(both) // 2 :]
        with np.errstate(over="ignore"):  # exp(-gate) may reach infinity; the quotient is then a clean zero
            active = gate / (np.float32(1) + np.exp(-gate))
        active *= up
        result: Array = np.add.reduce(active @ layer.down, axis=0)
        return result

    def _normed(self, hidden: Array) -> Array:
        total: Array = np.add.reduce(hidden * hidden, axis=-1, keepdims=True)
        result: Array = hidden / np.sqrt(total / np.float32(hidden.shape[-1]) + self._weights.epsilon)
        return result
