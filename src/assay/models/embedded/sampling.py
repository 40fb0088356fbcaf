"""Which token comes next: greedily, or by a draw from a generator that belongs to one request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.models.embedded.weights import Array

__all__ = ["TokenChoice", "log_softmax", "make_generator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChoice:
    """How to choose. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 switch those limits off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    def pick(self, logits: Array, generator: np.random.Generator) -> int:
        """The id of the next token."""
        if self.temperature <= 0:
            return int(logits.argmax())
        scaled = logits.astype(np.float64) / self.temperature
        order = np.argsort(-scaled, kind="stable")
        if self.top_k > 0:
            order = order[: self.top_k]
        weights = np.exp(scaled[order] - scaled[order[0]])
        reached = np.cumsum(weights / weights.sum())
        if self.top_p < 1:
            kept = int(np.searchsorted(reached, self.top_p)) + 1
            order, reached = order[:kept], reached[:kept]
        place = int(np.searchsorted(reached, generator.random() * reached[-1], side="right"))
        return int(order[min(place, len(order) - 1)])


def make_generator(seed: int, prompt_digest: str, repeat: int) -> np.random.Generator:
    """A generator that depends on what is asked and never on when, so a resumed run draws the same tokens."""
    words = f"{seed}\n{prompt_digest}\n{repeat}".encode()
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(words).digest()[:16], "little")))


def log_softmax(logits: Array) -> NDArray[np.float64]:
    """Log-probabilities along the last axis, in double precision."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide
