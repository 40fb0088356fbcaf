"""One pass through a causal model: tokens in, logits out where they are wanted and nowhere else."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.prefix_sharing.attention_mask import blocks_of, is_chain, mask_of
from assay.models.hf.prefix_sharing.block_attention import attach_blocks, take_over
from assay.models.hf.prefix_sharing.kv_cache import KeptTokens, kept, seeded_cache
from assay.models.hf.prefix_sharing.prefix_tree import Piece

__all__ = ["Computed", "Prepared", "Runner"]

_BLOCK = 64
"""Tokens whose attention is computed together on a processor."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pass that can be computed as soon as the past it continues is there."""

    pieces: Sequence[Piece]
    wanted: NDArray[np.int64]
    """The new tokens whose logits are asked for."""

    rows: NDArray[np.int64]
    """The row of the logits that belongs to a new token; -1 where none is wanted."""

    tokens: Any
    positions: Any
    mask: Any


@dataclass(frozen=True, slots=True)
class Computed:
    """What a pass gave."""

    pieces: Sequence[Piece]
    rows: NDArray[np.int64]
    logits: Any
    past: KeptTokens | None
    """What was there before, and the new tokens behind it; None unless it was asked for."""

    past_length: int


class Runner:
    """A loaded causal model, and how it likes to be called."""

    def __init__(self, model: Any, *, autocast_dtype: Any = None, own_attention: bool = True) -> None:
        """`own_attention`: a model on a processor may compute its attention in the way of `attention`."""
        self.model = model
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.device = model.get_input_embeddings().weight.device
        self.dtype = model.dtype
        self._autocast_dtype = autocast_dtype
        self._in_blocks = own_attention and take_over(model)
        self._keeps = "logits_to_keep" in inspect.signature(base.forward).parameters
        self.model_seconds = 0.0
        self.halted = False

    def prepare(self, pieces: Sequence[Piece], wanted: NDArray[np.int64], before: int) -> Prepared:
        """What a pass over pieces of a tree needs, each seeing `before` tokens of the past and the pieces it continues."""
        import torch

        tokens = np.concatenate([one.node.tokens[one.low : one.high] for one in pieces])
        positions = np.concatenate(
            [np.arange(one.node.start + one.low, one.node.start + one.high) for one in pieces]
        )
        rows = np.full(len(tokens), -1, np.int64)
        rows[wanted] = np.arange(len(wanted))
        return Prepared(
            pieces,
            wanted,
            rows,
            torch.from_numpy(tokens.astype(np.int64))[None].to(self.device),
            torch.from_numpy(positions)[None].to(self.device),
            self._mask(pieces, before),
        )

    def run(self, prepared: Prepared, past: KeptTokens | None, *, keep: bool) -> Computed:
        """Compute a pass."""
        with self.computing():
            cache = seeded_cache(past) if keep or past else None
        output = self.forward(
            input_ids=prepared.tokens,
            attention_mask=prepared.mask,
            position_ids=prepared.positions,
            past_key_values=cache,
            use_cache=cache is not None,
            wanted=prepared.wanted,
        )
        before = past.length if past else 0
        return Computed(
            prepared.pieces, prepared.rows, output.logits[0], kept(cache) if keep else None, before
        )

    def forward(self, *, wanted: NDArray[np.int64] | None = None, **inputs: Any) -> Any:
        """Call the model; `wanted` are the places in the sequence whose logits are asked for, all by default."""
        import torch

        self.check()
        if wanted is not None and self._keeps:
            # an empty choice would mean all: then one row is computed and not looked at
            places = torch.from_numpy(wanted).to(self.device) if len(wanted) else 1
            inputs["logits_to_keep"] = places
        with (
            self.computing(),
            torch.inference_mode(),
            torch.autocast(
                self.device.type, dtype=self._autocast_dtype, enabled=self._autocast_dtype is not None
            ),
        ):
            output = self.model(**inputs)
            if wanted is not None and not self._keeps:
                output.logits = output.logits[:, torch.from_numpy(wanted).to(self.device)]
        return output

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time as the model's: its passes, and what becomes of its logits."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.model_seconds += time.perf_counter() - started

    def check(self) -> None:
        """Raise if nobody waits for the answers any more."""
        if self.halted:
            raise InterruptedError("the run was stopped while the model computed")

    def _mask(self, pieces: Sequence[Piece], before: int) -> Any:
        """Who sees whom, as numbers to be added: nothing or the least there is. None: the model's own mask does."""
        import torch

        if is_chain(pieces) and not self._in_blocks:
            return None
        dtype = self._autocast_dtype or self.dtype
        numbers = mask_of(pieces, before, torch.finfo(dtype).min)
        mask = torch.from_numpy(numbers).to(self.device, dtype)[None, None]
        if self._in_blocks:
            attach_blocks(mask, blocks_of(pieces, numbers, _BLOCK))
        return mask
