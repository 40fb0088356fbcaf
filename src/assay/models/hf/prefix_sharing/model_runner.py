"""One forward pass of a causal model. Computes logits only where they are needed."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.prefix_sharing.attention_mask import build_mask, is_chain, split_into_blocks
from assay.models.hf.prefix_sharing.block_attention import attach_blocks, enable_block_attention
from assay.models.hf.prefix_sharing.kv_cache import SequenceCache, make_cache, read_cache
from assay.models.hf.prefix_sharing.prefix_tree import NodeSlice

__all__ = ["ModelRunner", "PassResult", "PreparedPass"]

_BLOCK_TOKENS = 64
"""Tokens per block of block attention on a CPU."""

_MAX_LOGITS_ON_CPU = 6 << 20
"""Logits computed at once. From 32 MB on, the memory allocator of Linux returns memory after every use."""

_MAX_LOGITS_ON_GPU = 1 << 26


@dataclass(frozen=True, slots=True)
class PreparedPass:
    """The inputs of a pass, ready to compute once its past is computed."""

    slices: Sequence[NodeSlice]
    wanted: NDArray[np.int64]
    """The new tokens whose logits are needed."""

    rows: NDArray[np.int64]
    """The row of the logits for each new token; -1 where none is needed."""

    tokens: Any
    positions: Any
    mask: Any


@dataclass(frozen=True, slots=True)
class PassResult:
    """The output of a pass."""

    slices: Sequence[NodeSlice]
    rows: NDArray[np.int64]
    states: Any
    """What `ModelRunner.compute_logits` needs, one row per wanted token."""

    past: SequenceCache | None
    """The KV cache of the past and the new tokens; None unless requested."""

    past_length: int


class ModelRunner:
    """Calls a loaded causal model and measures the time spent in it."""

    def __init__(self, model: Any, *, autocast_dtype: Any = None, block_attention: bool = True) -> None:
        """`block_attention`: use block attention if the model is on a CPU and supports it."""
        self.model = model
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.device = model.get_input_embeddings().weight.device
        self.dtype = autocast_dtype or model.dtype
        self._autocast_dtype = autocast_dtype
        self._uses_block_attention = block_attention and enable_block_attention(model)
        self._takes_logits_to_keep = "logits_to_keep" in inspect.signature(base.forward).parameters
        self._layers: Any = None
        self._head: Any = None
        """The output layer, if it is computed apart from the other layers."""

        self._vocabulary = 0

        self.model_seconds = 0.0
        self.interrupted = False

    @property
    def separates_head(self) -> bool:
        """Whether `run` leaves out the output layer, so that a caller can compute few logits at a time."""
        return self._head is not None

    def separate_head(self) -> None:
        """Leave out the output layer in `run`, if the model returns the output of this layer unchanged.

        Some models scale or cap it.
        """
        import torch

        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        inputs = {"input_ids": torch.arange(1, 9, device=self.device)[None], "use_cache": False}
        try:
            layers, head = base.base_model, base.get_output_embeddings()
            if layers is base or head is None:
                return
            expected = self._call(self.model, **inputs).logits
            found = self._call(head, self._call(layers, **inputs).last_hidden_state)
        except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
            return
        if found.dtype == expected.dtype and torch.equal(found, expected):
            self._layers, self._head, self._vocabulary = layers, head, expected.shape[-1]

    def prepare(
        self, slices: Sequence[NodeSlice], wanted: NDArray[np.int64], past_length: int
    ) -> PreparedPass:
        """Build the inputs of a pass. Each slice attends to `past_length` past tokens and the slices it continues."""
        import torch

        tokens = np.concatenate([part.node.tokens[part.low : part.high] for part in slices])
        positions = np.concatenate(
            [np.arange(part.node.start + part.low, part.node.start + part.high) for part in slices]
        )
        rows = np.full(len(tokens), -1, np.int64)
        rows[wanted] = np.arange(len(wanted))
        return PreparedPass(
            slices,
            wanted,
            rows,
            torch.from_numpy(tokens.astype(np.int64))[None].to(self.device),
            torch.from_numpy(positions)[None].to(self.device),
            self._build_mask(slices, past_length),
        )

    def run(self, prepared: PreparedPass, past: SequenceCache | None, *, keep_cache: bool) -> PassResult:
        """Compute a prepared pass."""
        with self.count_model_time():
            cache = make_cache(past) if keep_cache or past else None
        inputs = {
            "input_ids": prepared.tokens,
            "attention_mask": prepared.mask,
            "position_ids": prepared.positions,
            "past_key_values": cache,
            "use_cache": cache is not None,
        }
        if self._head is None:
            states = self.forward(wanted=prepared.wanted, **inputs).logits[0]
        else:
            states = self._select(self._call(self._layers, **inputs).last_hidden_state, prepared.wanted)[0]
        past_length = past.length if past else 0
        return PassResult(
            prepared.slices, prepared.rows, states, read_cache(cache) if keep_cache else None, past_length
        )

    def compute_logits(self, states: Any) -> Any:
        """Return the logits of some rows of `PassResult.states`."""
        return states if self._head is None else self._call(self._head, states)

    def compute_logits_in_parts(self, states: Any) -> Iterator[tuple[int, Any]]:
        """Yield the logits of some rows at a time, with the number of the first one."""
        if self._head is None:
            yield 0, states
            return
        size = _MAX_LOGITS_ON_CPU if self.device.type == "cpu" else _MAX_LOGITS_ON_GPU
        step = max(1, size // self._vocabulary)
        for first in range(0, len(states), step):
            yield first, self.compute_logits(states[first : first + step])

    def forward(self, *, wanted: NDArray[np.int64] | None = None, **inputs: Any) -> Any:
        """Call the model. `wanted`: the positions whose logits are needed, by default all."""
        import torch

        if wanted is not None and self._takes_logits_to_keep:
            # an empty selection would mean all positions, so one row is computed and ignored
            positions = torch.from_numpy(wanted).to(self.device) if len(wanted) else 1
            inputs["logits_to_keep"] = positions
        output = self._call(self.model, **inputs)
        if wanted is not None and not self._takes_logits_to_keep:
            with self.count_model_time():
                output.logits = self._select(output.logits, wanted)
        return output

    def _call(self, module: Any, *states: Any, **inputs: Any) -> Any:
        import torch

        self.raise_if_interrupted()
        with (
            self.count_model_time(),
            torch.inference_mode(),
            torch.autocast(
                self.device.type, dtype=self._autocast_dtype, enabled=self._autocast_dtype is not None
            ),
        ):
            return module(*states, **inputs)

    def _select(self, states: Any, positions: NDArray[np.int64]) -> Any:
        import torch

        with torch.inference_mode():
            return states[:, torch.from_numpy(positions).to(self.device)]

    @contextmanager
    def count_model_time(self) -> Iterator[None]:
        """Add the time spent in this context to `model_seconds`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.model_seconds += time.perf_counter() - started

    def raise_if_interrupted(self) -> None:
        """Raise `InterruptedError` if the run was stopped."""
        if self.interrupted:
            raise InterruptedError("the run was stopped while the model computed")

    def _build_mask(self, slices: Sequence[NodeSlice], past_length: int) -> Any:
        """Return the additive attention mask, or None if the model's own causal mask suffices."""
        import torch

        if is_chain(slices) and not self._uses_block_attention:
            return None
        numbers = build_mask(slices, past_length, torch.finfo(self.dtype).min)
        mask = torch.from_numpy(numbers).to(self.device, self.dtype)[None, None]
        if self._uses_block_attention:
            attach_blocks(mask, split_into_blocks(slices, numbers, _BLOCK_TOKENS))
        return mask
