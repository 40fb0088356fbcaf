"""Who sees whom in a pass: the mask of a packed tree, and the blocks of it in which there is something to see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.prefix_sharing.prefix_tree import Piece

__all__ = ["Block", "Mask", "blocks_of", "is_chain", "mask_of"]

Mask = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens of a pass, `low` to `high`, and the stretches of keys that any of them sees."""

    low: int
    high: int
    spans: tuple[tuple[int, int], ...]


def is_chain(pieces: Sequence[Piece]) -> bool:
    """Whether each piece continues the one before it: then no mask is needed but the model's own."""
    return all(piece.parent == number - 1 for number, piece in enumerate(pieces))


def mask_of(pieces: Sequence[Piece], before: int, least: float) -> Mask:
    """What is added for each new token and each key: nothing where it sees it, else `least`.

    The keys are those of the past, then those of the pieces. A token sees the past, the pieces that its own continues, and
    its own up to itself.
    """
    total = _end(pieces[-1])
    mask = np.full((total, before + total), least, np.float32)
    mask[:, :before] = 0
    for piece in pieces:
        rows = mask[piece.offset : _end(piece), before:]
        rows[:, piece.offset : _end(piece)] = _triangle(piece.high - piece.low, least)
        at = piece.parent
        while at >= 0:
            rows[:, pieces[at].offset : _end(pieces[at])] = 0
            at = pieces[at].parent
    return mask


@lru_cache(maxsize=256)
def _triangle(size: int, least: float) -> Mask:
    return np.triu(np.full((size, size), least, np.float32), 1)


def _end(piece: Piece) -> int:
    return piece.offset + piece.high - piece.low


def blocks_of(pieces: Sequence[Piece], mask: Mask, size: int) -> list[Block]:
    """The tokens of a pass in blocks of about `size`, those of one branch together, each with the keys it sees.

    A packed tree is mostly darkness: a document sees nothing of its neighbours, and no token what comes after it.
    """
    return [Block(low, high, _spans((mask[low:high] == 0).any(0))) for low, high in _cuts(pieces, size)]


def _cuts(pieces: Sequence[Piece], size: int) -> Iterator[tuple[int, int]]:
    """Where blocks begin and end: in even parts, and where a branch begins that grew far from here."""
    starts = [0]
    for piece in pieces:
        grown = _end(pieces[piece.parent]) if piece.parent >= 0 else 0
        if piece.offset - grown > size:
            starts.append(piece.offset)
    for start, end in zip(starts, [*starts[1:], _end(pieces[-1])], strict=True):
        parts = -(-(end - start) // size)
        edges = [start + (end - start) * part // parts for part in range(parts + 1)]
        yield from pairwise(edges)


def _spans(seen: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Stretches of keys that are seen; dark ones between them are left in where leaving them out would cost more."""
    edges = np.flatnonzero(np.diff(seen, prepend=False, append=False)).tolist()
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    first, last = runs[0][0], runs[-1][1]
    kept = sum(high - low for low, high in runs)
    return tuple(runs) if (last - first - kept) * 4 > kept else ((first, last),)
