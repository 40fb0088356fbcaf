"""The attention mask of a pass over a packed prefix tree, and the blocks of it that are not fully masked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.prefix_sharing.prefix_tree import NodeSlice

__all__ = ["AttentionBlock", "Mask", "build_mask", "is_chain", "split_into_blocks"]

Mask = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """Tokens `low` to `high` of a pass, and the spans of keys that any of them attends to."""

    low: int
    high: int
    spans: tuple[tuple[int, int], ...]


def is_chain(slices: Sequence[NodeSlice]) -> bool:
    """Return whether each slice continues the previous one, so that the model's own causal mask suffices."""
    return all(part.parent == number - 1 for number, part in enumerate(slices))


def build_mask(slices: Sequence[NodeSlice], past_length: int, masked_value: float) -> Mask:
    """Return the additive mask of a pass: 0 where a new token attends to a key, else `masked_value`.

    The keys are those of the past, followed by those of the slices. A token attends to the past, to the slices that its
    own slice continues, and to its own slice up to itself.
    """
    total = _find_end(slices[-1])
    mask = np.full((total, past_length + total), masked_value, np.float32)
    mask[:, :past_length] = 0
    for part in slices:
        rows = mask[part.offset : _find_end(part), past_length:]
        rows[:, part.offset : _find_end(part)] = _make_causal_mask(part.high - part.low, masked_value)
        ancestor = part.parent
        while ancestor >= 0:
            rows[:, slices[ancestor].offset : _find_end(slices[ancestor])] = 0
            ancestor = slices[ancestor].parent
    return mask


@lru_cache(maxsize=256)
def _make_causal_mask(size: int, masked_value: float) -> Mask:
    return np.triu(np.full((size, size), masked_value, np.float32), 1)


def _find_end(part: NodeSlice) -> int:
    return part.offset + part.high - part.low


def split_into_blocks(slices: Sequence[NodeSlice], mask: Mask, size: int) -> list[AttentionBlock]:
    """Split the tokens of a pass into blocks of about `size`, keeping branches together, each with the keys it needs.

    Most of the mask of a packed tree is masked: branches do not attend to each other, and no token attends to later ones.
    """
    return [
        AttentionBlock(low, high, _find_visible_spans((mask[low:high] == 0).any(0)))
        for low, high in _find_block_bounds(slices, size)
    ]


def _find_block_bounds(slices: Sequence[NodeSlice], size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of blocks: parts of even size, with a new block where a branch starts far from its parent."""
    starts = [0]
    for part in slices:
        parent_end = _find_end(slices[part.parent]) if part.parent >= 0 else 0
        if part.offset - parent_end > size:
            starts.append(part.offset)
    for start, end in zip(starts, [*starts[1:], _find_end(slices[-1])], strict=True):
        parts = -(-(end - start) // size)
        edges = [start + (end - start) * part // parts for part in range(parts + 1)]
        yield from pairwise(edges)


def _find_visible_spans(visible: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return the spans of visible keys. Gaps are included where skipping them would cost more."""
    edges = np.flatnonzero(np.diff(visible, prepend=False, append=False)).tolist()
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    first, last = runs[0][0], runs[-1][1]
    count = sum(high - low for low, high in runs)
    return tuple(runs) if (last - first - count) * 4 > count else ((first, last),)
