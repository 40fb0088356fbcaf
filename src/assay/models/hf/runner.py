"""One pass through a causal model: tokens in, logits out where they are wanted and nowhere else."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.caches import KeptTokens, kept, seeded_cache
from assay.models.hf.prefix_tree import Node

__all__ = ["Computed", "Piece", "Runner"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of a node that are part of a pass: from its `low`th, at `offset` among the new tokens of the pass."""

    node: Node
    low: int
    high: int
    offset: int
    parent: int
    """The piece it continues, by number; -1 for the past."""


@dataclass(frozen=True, slots=True)
class Computed:
    """What a pass gave."""

    pieces: Sequence[Piece]
    rows: NDArray[np.int64]
    """The row of `logits` that belongs to a new token; -1 where none was wanted."""

    logits: Any
    past: KeptTokens | None
    """What was there before, and the new tokens behind it; None unless it was asked for."""

    past_length: int


class Runner:
    """A loaded causal model, and how it likes to be called."""

    def __init__(self, model: Any, *, autocast_dtype: Any = None) -> None:
        self.model = model
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.device = model.get_input_embeddings().weight.device
        self.dtype = model.dtype
        self._autocast_dtype = autocast_dtype
        self._keeps = "logits_to_keep" in inspect.signature(base.forward).parameters
        self.model_seconds = 0.0
        self.halted = False

    def run(
        self, pieces: Sequence[Piece], wanted: NDArray[np.int64], past: KeptTokens | None, *, keep: bool
    ) -> Computed:
        """Compute pieces of a tree, each seeing the past and the pieces it continues, and nothing else."""
        import torch

        tokens = np.concatenate([one.node.tokens[one.low : one.high] for one in pieces])
        positions = np.concatenate(
            [np.arange(one.node.start + one.low, one.node.start + one.high) for one in pieces]
        )
        rows = np.full(len(tokens), -1, np.int64)
        rows[wanted] = np.arange(len(wanted))
        before = past.length if past else 0
        cache = seeded_cache(past) if keep or past else None
        output = self.forward(
            input_ids=torch.from_numpy(tokens.astype(np.int64))[None].to(self.device),
            attention_mask=None if _is_chain(pieces) else self._mask(pieces, positions, before),
            position_ids=torch.from_numpy(positions)[None].to(self.device),
            past_key_values=cache,
            use_cache=cache is not None,
            wanted=wanted,
        )
        return Computed(pieces, rows, output.logits[0], kept(cache) if keep else None, before)

    def forward(self, *, wanted: NDArray[np.int64] | None = None, **inputs: Any) -> Any:
        """Call the model; `wanted` are the places in the sequence whose logits are asked for, all by default."""
        import torch

        self.check()
        started = time.perf_counter()
        if wanted is not None and self._keeps:
            # an empty choice would mean all: then one row is computed and not looked at
            places = torch.from_numpy(wanted).to(self.device) if len(wanted) else 1
            inputs["logits_to_keep"] = places
        with (
            torch.inference_mode(),
            torch.autocast(
                self.device.type, dtype=self._autocast_dtype, enabled=self._autocast_dtype is not None
            ),
        ):
            output = self.model(**inputs)
            if wanted is not None and not self._keeps:
                output.logits = output.logits[:, torch.from_numpy(wanted).to(self.device)]
        self.model_seconds += time.perf_counter() - started
        return output

    def check(self) -> None:
        """Raise if nobody waits for the answers any more."""
        if self.halted:
            raise InterruptedError("the run was stopped while the model computed")

    def _mask(self, pieces: Sequence[Piece], positions: NDArray[np.int64], before: int) -> Any:
        """Who sees whom, as numbers to be added: nothing or minus infinity."""
        import torch

        sees = np.eye(len(pieces), dtype=bool)
        for number, piece in enumerate(pieces):
            if piece.parent >= 0:
                sees[number] |= sees[piece.parent]
        of = np.repeat(np.arange(len(pieces)), [piece.high - piece.low for piece in pieces])
        open_ = sees[of][:, of] & (positions[:, None] >= positions[None])
        if before:
            open_ = np.concatenate([np.ones((len(of), before), dtype=bool), open_], axis=1)
        dtype = self._autocast_dtype or self.dtype
        mask = torch.zeros(open_.shape, dtype=dtype, device=self.device)
        mask.masked_fill_(torch.from_numpy(~open_).to(self.device), torch.finfo(dtype).min)
        return mask[None, None]


def _is_chain(pieces: Sequence[Piece]) -> bool:
    """Whether each piece continues the one before it: then no mask is needed but the model's own."""
    return all(piece.parent == number - 1 for number, piece in enumerate(pieces))
