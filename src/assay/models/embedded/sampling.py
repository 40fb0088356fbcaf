"""Select the next token: greedy, or sampled with the random generator of the request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.models.embedded.weights import Array

__all__ = ["TokenSampler", "log_softmax", "make_generator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSampler:
    """Sampling settings. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 turn these limits off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    def sample(self, logits: Array, generator: np.random.Generator) -> int:
        """Return the id of the next token."""
        if self.temperature <= 0:
            return int(logits.argmax())
        scaled = logits.astype(np.float64) / self.temperature
        order = np.argsort(-scaled, kind="stable")
        if self.top_k > 0:
            order = order[: self.top_k]
        weights = np.exp(scaled[order] - scaled[order[0]])
        cumulative = np.cumsum(weights / weights.sum())
        if self.top_p < 1:
            kept = int(np.searchsorted(cumulative, self.top_p)) + 1
            order, cumulative = order[:kept], cumulative[:kept]
        position = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))
        return int(order[min(position, len(order) - 1)])


def make_generator(seed: int, prompt_digest: str, repeat: int) -> np.random.Generator:
    """Return a random generator that depends only on the request, so that a resumed run samples the same tokens."""
    words = f"{seed}\n{prompt_digest}\n{repeat}".encode()
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(words).digest()[:16], "little")))


def log_softmax(logits: Array) -> NDArray[np.float64]:
    """Return log probabilities along the last axis, in double precision."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide
