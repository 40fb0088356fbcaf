"""The next token by a draw that belongs to one request: not to its batch, nor to the hour."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from assay.core.requests import Generate
from assay.models.hf.choosing import choose_tokens
from assay.models.hf.jobs import choice_of

__all__ = ["make_draws"]


def make_draws(requests: Sequence[Generate], defaults: Any, seed: int) -> Any:
    """A logits processor that leaves each row of a batch only the token drawn for it, so that greedy search takes it.

    The draws of a row depend on the prompt, the seed and the number of the repeat alone.
    """
    import torch
    from transformers import LogitsProcessor

    choices = [choice_of(request, defaults) for request in requests]
    draws = [random.Random(_seed_of(request, seed)) for request in requests]

    class Draws(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            drawn = torch.tensor(choose_tokens(scores, choices, draws), device=scores.device)
            left = torch.full_like(scores, -torch.inf)
            left.scatter_(1, drawn[:, None], 0.0)
            return left

    return Draws()


def _seed_of(request: Generate, seed: int) -> int:
    own = request.settings.seed
    words = f"{seed if own is None else own}\n{request.prompt.digest}\n{request.repeat}\n{request.round}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "little")
